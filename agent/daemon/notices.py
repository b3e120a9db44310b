"""What a person should learn: a line of the log, and an Event about the Node."""

from collections.abc import Callable, Iterable, Mapping

import structlog

from agent.deviceplugin.plugin import PluginState
from agent.health.notices import Notice
from agent.publish.events import NodeEvent

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
