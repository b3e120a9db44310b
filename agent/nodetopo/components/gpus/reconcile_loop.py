"""The loop that keeps the offered devices in step with snapshot, health and settings.

Other components wake it when they have news. A slow NVML reading delays nothing here, because it
has a separate loop.
"""

import threading
from collections.abc import Callable, Iterable
from types import MappingProxyType

import structlog

from nodetopo.components.gpus.health.monitor import GpuHealthMonitor
from nodetopo.components.gpus.plugins import PluginSet
from nodetopo.kernel.component import Kernel
from nodetopo.kernel.loops import PeriodicLoop
from nodetopo.kernel.store import Versioned
from nodetopo.model.gpu_health import HealthView
from nodetopo.model.notice import Notice
from nodetopo.topology.neighbours import NOBODY, ServedByDra

TICK_S = 2.0
"""Interval between steps without news: for recoveries, changed files, and ended plugins. Each
wake-up costs 0.3 ms of CPU; news wakes the loop.
"""

LAST_WORDS_S = 2.0
"""How long a daemon that ends by itself waits, so that its reason becomes an Event."""

_NOT_WATCHED: HealthView = MappingProxyType({})


class ReconcileLoop(PeriodicLoop):
    """Offers devices, reports news, and detects when the container must be restarted.

    Args:
        health: ``None`` where health is not watched; a lost GPU is Unhealthy all the same.
        is_paused: whether a free driver is requested; then no scan is requested.
        reload: applies changed settings.
        notices: returns the notices of all components.
        scan: scans the node early, where that could change a GPU's health.
    """

    def __init__(
        self,
        kernel: Kernel,
        plugins: PluginSet,
        *,
        health: GpuHealthMonitor | None,
        reload: Callable[[], None] = lambda: None,
        notices: Callable[[], Iterable[Notice]] = lambda: (),
        is_paused: Callable[[], bool] = lambda: False,
        scan: Callable[[], None] = lambda: None,
    ) -> None:
        self._kernel = kernel
        self._plugins = plugins
        self._health = health
        self._reload = reload
        self._notices = notices
        self._is_paused = is_paused
        self._scan = scan
        self._offered: tuple[Versioned, HealthView, object, ServedByDra] | None = None

    def step(self) -> float | None:
        """Act on the news; return the seconds until the next step, ``None`` to end."""
        kernel = self._kernel
        kernel.wake.clear()
        kernel.heartbeats.beat("reconcile")
        if self._health is not None:
            is_paused = self._is_paused()
            self._health.tick(is_paused=is_paused)
            if self._health.wants_look and not is_paused:
                self._scan()
        self._reload()

        # Offer an unchanged snapshot too: the host's files may have changed.
        current = kernel.store.current
        view = _NOT_WATCHED if self._health is None else self._health.view
        if current:
            before = self._offered
            is_new = before is None or before[0] is not current
            others = kernel.companion.look(current.snapshot, is_new=is_new)
            now = current, view, others, self._served_by_dra(current)
            if before is None or any(a is not b for a, b in zip(now, before, strict=True)):
                self._plugins.take(current.snapshot, view, now[3])
                self._offered = now

        self._plugins.look_again()
        kernel.report(self._notices())
        if lost := self._plugins.lost:
            problem = lost[0].last_problem
            kernel.failure = problem or "a device plugin reaches no kubelet any more"
        elif self._health is not None and self._health.wants_fresh_container:
            kernel.failure = "NVML refuses this container, though the PCI bus shows GPUs"
        return TICK_S if kernel.failure is None else None

    def _served_by_dra(self, current: Versioned) -> ServedByDra:
        claims = self._kernel.claims
        if claims is None:
            return NOBODY
        is_taken = self._offered is not None and self._offered[0] is current
        known = self._plugins.published if is_taken else None
        return claims.look(known or self._plugins.with_lost(current.snapshot))

    def wait(self, _stopping: threading.Event, seconds: float) -> None:
        """Wait for news."""
        self._kernel.wake.wait(seconds)

    def run(self, stopping: threading.Event) -> None:
        """Run until *stopping* is set or the container must be restarted."""
        super().run(stopping)
        failure = self._kernel.failure
        if failure is not None and not stopping.is_set():
            structlog.get_logger().error("daemon ends", problem=failure)
            stopping.wait(0 if self._kernel.events is None else LAST_WORDS_S)
