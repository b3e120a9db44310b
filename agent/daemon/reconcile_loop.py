"""The loop that keeps what is offered as snapshot, health and settings say.

Whoever has news wakes it. A reading of NVML that takes long keeps nobody waiting here, because
it happens in a loop of its own.
"""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import MappingProxyType

from agent.daemon.gpu_health import HealthWatch
from agent.daemon.notices import Notices
from agent.daemon.plugins import Offering
from agent.health.notices import Notice
from agent.health.status import HealthView
from agent.store import SnapshotStore, Versioned

TICK_S = 1.0
"""How often time alone is a reason to look: recoveries are due, plugins may have come to an end."""


_NOT_WATCHED: HealthView = MappingProxyType({})


@dataclass(slots=True)
class Upkeep:
    """Offers what there is, tells what is new, and notices when only a new container can help.

    Attributes:
        health: ``None`` where GPUs are not watched; a lost one is Unhealthy all the same.
        reload: takes settings that have changed, if any have, and returns what to tell of it.
        on_offer: called after each change of what is offered.
        wake: set by whoever has news.
        failure: why the loop ended by itself; ``None`` as a rule.
    """

    store: SnapshotStore
    offering: Offering
    health: HealthWatch | None
    notices: Notices
    reload: Callable[[], Iterable[Notice]]
    on_offer: Callable[[], None]
    wake: threading.Event
    failure: str | None = None
    _offered: tuple[Versioned, HealthView] | None = field(default=None, init=False)

    def step(self) -> None:
        """Wait for news, for :data:`TICK_S` at most, and do what they ask for."""
        self.wake.wait(TICK_S)
        self.wake.clear()
        if self.health is not None:
            self.health.tick()
        self.notices.tell(self.reload())
        self._offer()
        self._tell()
        self.failure = self._why_end()

    def _offer(self) -> None:
        """Offer what was scanned last, also where it says nothing new: the host's files may."""
        current = self.store.current
        view = _NOT_WATCHED if self.health is None else self.health.view
        before = self._offered
        if current is None or (before and before[0] is current and before[1] is view):
            return
        self.offering.take(current.snapshot, view)
        self._offered = current, view
        self.on_offer()

    def _tell(self) -> None:
        if self.health is not None:
            self.notices.tell(self.health.notices())
        self.notices.tell_conflicts(self.offering.states)

    def _why_end(self) -> str | None:
        """Return why a new container would do better than this one; ``None`` as a rule."""
        if lost := self.offering.lost:
            return lost[0].last_problem or "a device plugin reaches no kubelet any more"
        if self.health is not None and self.health.wants_fresh_container:
            return "NVML refuses this container, though the PCI bus shows GPUs"
        return None
