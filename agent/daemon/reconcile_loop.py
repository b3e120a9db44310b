"""The loop that keeps what is offered in step with snapshot, health and settings.

Whoever has news wakes it. A reading of NVML that takes long delays nothing here, because it
happens in a loop of its own.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import structlog

from agent.daemon.gpu_health import GpuHealthMonitor
from agent.daemon.hca_health import HcaHealthMonitor
from agent.daemon.loops import PeriodicLoop
from agent.daemon.plugins import PluginSet
from agent.deviceplugin.hand_over import HandOver
from agent.deviceplugin.plugin import PluginState
from agent.dra.neighbours import NOBODY, ServedByDra
from agent.health.hca import HcaHealthView
from agent.health.notices import Notice
from agent.health.status import HealthView
from agent.model.snapshot import Snapshot
from agent.publish.events import NodeEvent
from agent.store import SnapshotStore, Versioned
from agent.topology.presence import missing_text

if TYPE_CHECKING:  # loaded only in a cluster
    from agent.daemon.dra_neighbours import DraNeighbours
    from agent.daemon.driver_pause import DriverPause

TICK_S = 2.0
"""How often time alone is a reason to look: recoveries are due, files may have changed, plugins may
have ended. Each wake-up costs 0.3 ms of CPU; whoever has news wakes the loop."""

LAST_WORDS_S = 2.0
"""How long a daemon that ends by itself waits, so that its reason becomes an Event."""

Post = Callable[[NodeEvent], None]
"""Takes Events and never blocks."""

_NOT_WATCHED: HealthView = MappingProxyType({})
_NO_HCAS: HcaHealthView = MappingProxyType({})


class NoticeReporter:
    """Reports each notice in the log and as an Event about the Node; one thread uses it.

    Args:
        post: takes Events; ``None`` where none are published.
    """

    def __init__(self, post: Post | None = None) -> None:
        self.post = post
        self._said: dict[str, Mapping[str, str]] = {}  # reason → resource → sentence
        self._cdi_problem: str | None = None
        self._hand_over: HandOver | None = None
        self._served_by_dra = NOBODY
        self._missing: str | None = None

    def report(self, notices: Iterable[Notice]) -> None:
        """Report *notices* in their order."""
        for notice in notices:
            log = structlog.get_logger()
            line = log.warning if notice.is_warning else log.info
            line("notice", reason=notice.reason, message=notice.message, gpu=notice.gpu)
            if self.post is not None:
                self.post(
                    NodeEvent(
                        reason=notice.reason,
                        message=notice.message,
                        is_warning=notice.is_warning,
                        key=notice.key,
                    )
                )

    def report_plugins(self, states: Mapping[str, PluginState]) -> None:
        """Report which resources others have taken since the last call, and given back.

        Others are another maker's plugin, a plugin that only the kubelet's list gives away, and
        another instance of this program.
        """
        instances = {
            name: f"another nodetopo serves {name} on this node, by the sockets "
            f"{', '.join(state.siblings)}: run one, unless this is a rollout"
            for name, state in states.items()
            if state.siblings
        }
        unlisted = {name: text for name, state in states.items() if (text := state.unlisted)}
        self._report_each(
            "ResourceConflict",
            conflicts(states),
            ("ResourceConflictOver", "no other plugin offers {} any more"),
        )
        self._report_each(
            "NotListed", unlisted, ("ListedAgain", "the kubelet lists the devices of {} again")
        )
        self._report_each(
            "AnotherInstance", instances, ("OnlyInstance", "no other nodetopo serves {}")
        )

    def _report_each(self, reason: str, now: Mapping[str, str], over: tuple[str, str]) -> None:
        """Report what is new among the sentences *now*, by resource, and what is *over*."""
        before = self._said.get(reason, {})
        self._said[reason] = now
        self.report(
            Notice(reason=reason, message=text, is_warning=True, gpu=None, key=resource)
            for resource, text in now.items()
            if before.get(resource) != text
        )
        self.report(
            Notice(
                reason=over[0],
                message=over[1].format(resource),
                is_warning=False,
                gpu=None,
                key=resource,
            )
            for resource in before
            if resource not in now
        )

    def report_hand_over(self, now: HandOver | None) -> None:
        """Report how devices reach containers if that has changed since the start, or is no way."""
        before, self._hand_over = self._hand_over, now
        if now is None or now == before:
            return
        if now.problem is not None:
            reason, message = "NoHandOver", now.problem
        elif before is None:  # the start, which the log has
            return
        else:
            reason = "HandOverChanged"
            message = f"devices reach containers by {now.strategy}: {now.reason}"
        is_bad = now.problem is not None
        self.report(
            [Notice(reason=reason, message=message, is_warning=is_bad, gpu=None, key=reason)]
        )

    def report_missing(self, snapshot: Snapshot | None) -> None:
        """Report which GPUs are missing if that has changed, and that none is any longer."""
        if snapshot is None:
            return
        before, self._missing = self._missing, missing_text(snapshot)
        if self._missing == before:
            return
        is_bad = self._missing is not None
        reason = "GpusMissing" if is_bad else "GpusComplete"
        message = self._missing or "no GPU is missing"
        self.report(
            [Notice(reason=reason, message=message, is_warning=is_bad, gpu=None, key=reason)]
        )

    def report_dra(self, now: ServedByDra) -> None:
        """Report which GPUs DRA drivers have taken since the last call, and given back."""
        before, self._served_by_dra = self._served_by_dra, now
        if now == before:
            return
        reason, message = "GpusServedByDra", "; ".join(now.sentences())
        if not now:
            reason, message = "GpusOfferedAgain", "no DRA driver gives out GPUs of this node"
        self.report(
            [Notice(reason=reason, message=message, is_warning=False, gpu=None, key=reason)]
        )

    def report_cdi(self, problem: str | None) -> None:
        """Report *problem* of our CDI specification if it is new, and that it is over."""
        before, self._cdi_problem = self._cdi_problem, problem
        if problem == before:
            return
        reason, message = "CdiNotWritten", problem
        if message is None:
            reason, message = "CdiWritten", "the CDI specification has all devices that are offered"
        is_bad = problem is not None
        self.report(
            [Notice(reason=reason, message=message, is_warning=is_bad, gpu=None, key=reason)]
        )


def conflicts(states: Mapping[str, PluginState]) -> dict[str, str]:
    """Return what is known of the other plugin that has taken a resource, by resource."""
    return {name: state.conflict for name, state in states.items() if state.conflict is not None}


class ReconcileLoop(PeriodicLoop):
    """Offers what there is, reports what is new, and notices when only a new container can help.

    Args:
        health: ``None`` where GPUs are not watched; a lost one is Unhealthy all the same.
        hcas: the same for HCAs, which are watched while they are offered.
        neighbours: other DRA drivers of the node; ``None`` where nobody looks for them.
        pause: whether somebody asks for a free driver; ``None`` where nobody can.
        notices: reports to people.
        reload: takes settings that have changed, if any have, and returns what to report of it.
        beat: called at each step, to show that the loop lives.
        wake: set by whoever has news.
        scan: has the node scanned now, where that would say more about a verdict.

    Attributes:
        failure: why the loop ended by itself; ``None`` as a rule.
    """

    def __init__(
        self,
        store: SnapshotStore,
        plugins: PluginSet,
        *,
        health: GpuHealthMonitor | None,
        notices: NoticeReporter,
        reload: Callable[[], Iterable[Notice]],
        beat: Callable[[], None],
        wake: threading.Event,
        hcas: HcaHealthMonitor | None = None,
        neighbours: "DraNeighbours | None" = None,
        pause: "DriverPause | None" = None,
        scan: Callable[[], None] = lambda: None,
    ) -> None:
        self._pause = pause
        self._scan = scan
        self._neighbours = neighbours
        self._store = store
        self._plugins = plugins
        self._health = health
        self._hcas = hcas
        self._notices = notices
        self._reload = reload
        self._beat = beat
        self._wake = wake
        self._offered: tuple[Versioned, HealthView, HcaHealthView, ServedByDra] | None = None
        self.failure: str | None = None

    def step(self) -> float | None:
        """Do what the news ask for; return the seconds until the next step, ``None`` to end."""
        self._wake.clear()
        self._beat()
        if self._health is not None:
            self._health.tick()
            is_paused = self._pause is not None and self._pause.claim is not None
            if self._health.wants_look and not is_paused:
                self._scan()
        self._notices.report(self._reload())

        # Also a snapshot that says nothing new is offered: the host's files may have changed.
        current = self._store.current
        view = _NOT_WATCHED if self._health is None else self._health.view
        hca_view = self._judged_hcas(current)
        if current:
            now = current, view, hca_view, self._served_by_dra(current)
            before = self._offered
            if before is None or any(a is not b for a, b in zip(now, before, strict=True)):
                unhealthy = {key for key, health in hca_view.items() if not health.is_healthy}
                self._plugins.take(current.snapshot, view, unhealthy, now[3])
                self._offered = now

        self._plugins.look_again()
        if self._health is not None:
            self._notices.report(self._health.notices())
        if self._hcas is not None:
            self._notices.report(self._hcas.notices())
        if self._pause is not None:
            self._notices.report(self._pause.notices())
        self._notices.report_hand_over(self._plugins.hand_over)
        self._notices.report_plugins(self._plugins.states)
        self._notices.report_missing(None if current is None else current.snapshot)
        self._notices.report_dra(self._plugins.served_by_dra)
        self._notices.report_cdi(self._plugins.cdi_problem)
        if lost := self._plugins.lost:
            problem = lost[0].last_problem
            self.failure = problem or "a device plugin reaches no kubelet any more"
        elif self._health is not None and self._health.wants_fresh_container:
            self.failure = "NVML refuses this container, though the PCI bus shows GPUs"
        return TICK_S if self.failure is None else None

    def _served_by_dra(self, current: Versioned) -> ServedByDra:
        if self._neighbours is None:
            return NOBODY
        is_taken = self._offered is not None and self._offered[0] is current
        known = self._plugins.published if is_taken else None
        return self._neighbours.look(known or self._plugins.with_lost(current.snapshot))

    def _judged_hcas(self, current: Versioned | None) -> HcaHealthView:
        """Return the verdicts on the HCAs of *current*; none while no HCA is offered."""
        hcas = self._hcas
        if hcas is None or current is None:
            return _NO_HCAS
        if not self._plugins.offers_hcas:
            hcas.rest()
        elif self._offered is None or self._offered[0] is not current or not hcas.known:
            hcas.take(current.snapshot)
        return hcas.view

    def wait(self, _stopping: threading.Event, seconds: float) -> None:
        """Wait for news."""
        self._wake.wait(seconds)

    def run(self, stopping: threading.Event) -> None:
        """Run until *stopping* is set, or a new container would do better than this one."""
        super().run(stopping)
        if self.failure is not None and not stopping.is_set():
            structlog.get_logger().error("daemon ends", problem=self.failure)
            stopping.wait(LAST_WORDS_S if self._notices.post is not None else 0)
