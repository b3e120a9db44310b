"""The loop that keeps what is offered as snapshot, health and settings say.

Whoever has news wakes it. A reading of NVML that takes long keeps nobody waiting here, because
it happens in a loop of its own.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import structlog

from agent.daemon.gpu_health import HealthWatch
from agent.daemon.plugins import Offering
from agent.deviceplugin.plugin import PluginState
from agent.health.notices import Notice
from agent.health.status import HealthView
from agent.publish.events import NodeEvent
from agent.store import SnapshotStore, Versioned

# What a person should learn: a line of the log, and an Event about the Node.

Post = Callable[[NodeEvent], None]


class Notices:
    """Tells each thing once in the log, and posts it; one thread uses it.

    Args:
        post: takes Events and never blocks; ``None`` where none are published.
    """

    def __init__(self, post: Post | None = None) -> None:
        self._post = post
        self._conflicts: dict[str, str] = {}

    def tell(self, notices: Iterable[Notice]) -> None:
        """Tell *notices* in their order."""
        for notice in notices:
            log = structlog.get_logger()
            line = log.warning if notice.is_warning else log.info
            line("notice", reason=notice.reason, message=notice.message, gpu=notice.gpu)
            if self._post is not None:
                self._post(
                    NodeEvent(
                        reason=notice.reason,
                        message=notice.message,
                        is_warning=notice.is_warning,
                        key=notice.key,
                    )
                )

    def tell_conflicts(self, states: Mapping[str, PluginState]) -> None:
        """Tell which resources other plugins have taken since the last call, and given back."""
        now = conflicts(states)
        taken = {name: said for name, said in now.items() if self._conflicts.get(name) != said}
        returned = [name for name in self._conflicts if name not in now]
        self._conflicts = now
        self.tell(_conflict(name, said) for name, said in taken.items())
        self.tell(_end_of_conflict(name) for name in returned)


def conflicts(states: Mapping[str, PluginState]) -> dict[str, str]:
    """Return what is known of the other plugin that has each of these resources."""
    return {name: state.conflict for name, state in states.items() if state.conflict is not None}


def _conflict(resource: str, said: str) -> Notice:
    return Notice(reason="ResourceConflict", message=said, is_warning=True, gpu=None, key=resource)


def _end_of_conflict(resource: str) -> Notice:
    return Notice(
        reason="ResourceConflictOver",
        message=f"no other plugin offers {resource} any more",
        is_warning=False,
        gpu=None,
        key=resource,
    )


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
