"""Notices about the offered devices: changes since the last look."""

from collections.abc import Iterator, Mapping

from nodetopo.deviceplugin.hand_over import HandOver
from nodetopo.deviceplugin.plugin import PluginState
from nodetopo.model.notice import Notice
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.neighbours import NOBODY, ServedByDra
from nodetopo.topology.presence import missing_text


class OfferNotices:
    """Compares the offered devices with the previous look; for one thread."""

    def __init__(self) -> None:
        self._reported: dict[str, Mapping[str, str]] = {}  # reason → resource → sentence
        self._cdi_problem: str | None = None
        self._hand_over: HandOver | None = None
        self._served_by_dra = NOBODY
        self._missing: str | None = None

    def of_plugins(self, states: Mapping[str, PluginState]) -> Iterator[Notice]:
        """Yield which resources others have taken since the last call, and given back.

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
        yield from self._by_resource(
            "ResourceConflict",
            conflicts(states),
            ("ResourceConflictOver", "no other plugin advertises {} now"),
        )
        yield from self._by_resource(
            "NotListed", unlisted, ("ListedAgain", "the kubelet lists the devices of {} again")
        )
        yield from self._by_resource(
            "AnotherInstance", instances, ("OnlyInstance", "no other nodetopo serves {}")
        )

    def _by_resource(
        self, reason: str, now: Mapping[str, str], over: tuple[str, str]
    ) -> Iterator[Notice]:
        """Yield the new sentences of *now*, by resource, and *over* once none is left."""
        before = self._reported.get(reason, {})
        self._reported[reason] = now
        for resource, text in now.items():
            if before.get(resource) != text:
                yield _notice(reason, text, is_warning=True, key=resource)
        for resource in before:
            if resource not in now:
                yield _notice(over[0], over[1].format(resource), is_warning=False, key=resource)

    def of_hand_over(self, now: HandOver | None) -> Iterator[Notice]:
        """Yield the way devices reach containers if it has changed, or if there is no way."""
        before, self._hand_over = self._hand_over, now
        if now is None or now == before:
            return
        if now.problem is not None:
            yield _notice("NoHandOver", now.problem, is_warning=True)
        elif before is not None:  # the log has the first list
            message = f"devices reach containers by {now.strategy}: {now.reason}"
            yield _notice("HandOverChanged", message, is_warning=False)

    def of_missing(self, snapshot: Snapshot | None) -> Iterator[Notice]:
        """Yield which GPUs are missing if that has changed, and that no GPU is any longer."""
        if snapshot is None:
            return
        before, self._missing = self._missing, missing_text(snapshot)
        if self._missing == before:
            return
        if self._missing is None:
            yield _notice("GpusComplete", "no GPU is missing", is_warning=False)
        else:
            yield _notice("GpusMissing", self._missing, is_warning=True)

    def of_dra(self, now: ServedByDra) -> Iterator[Notice]:
        """Yield which GPUs DRA drivers have taken since the last call, and given back."""
        before, self._served_by_dra = self._served_by_dra, now
        if now == before:
            return
        if now:
            yield _notice("GpusServedByDra", "; ".join(now.sentences()), is_warning=False)
        else:
            text = "no DRA driver publishes GPUs of this node"
            yield _notice("GpusOfferedAgain", text, is_warning=False)

    def of_cdi(self, problem: str | None) -> Iterator[Notice]:
        """Yield *problem* of our CDI specification if it is new, and that it is over."""
        before, self._cdi_problem = self._cdi_problem, problem
        if problem == before:
            return
        if problem is None:
            text = "the CDI specification defines all advertised devices"
            yield _notice("CdiWritten", text, is_warning=False)
        else:
            yield _notice("CdiNotWritten", problem, is_warning=True)


def conflicts(states: Mapping[str, PluginState]) -> dict[str, str]:
    """Return the sentences about other plugins that have taken a resource, by resource."""
    return {name: state.conflict for name, state in states.items() if state.conflict is not None}


def _notice(reason: str, message: str, *, is_warning: bool, key: str | None = None) -> Notice:
    """Return a notice about the node; its reason is its key unless *key* is given."""
    return Notice(
        reason=reason, message=message, is_warning=is_warning, gpu=None, key=key or reason
    )
