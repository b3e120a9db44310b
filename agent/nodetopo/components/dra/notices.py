"""Our DRA driver's notices for people: in the log and as Events about the Node."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from nodetopo.components.dra.slices import LISTS
from nodetopo.model.notice import Notice

Report = Callable[[Iterable[Notice]], None]

TWICE, ONCE = "GpusPublishedTwice", "GpusPublishedOnce"
"""Reasons of Events."""

DROPPED, KEPT = "SliceFieldsDropped", "SliceFieldsKept"
"""Reasons of Events."""


class DraNotices:
    """Reports each state once, and its end; for one thread."""

    def __init__(self, report: Report) -> None:
        """Report by *report*, which never blocks."""
        self._report = report
        self._said: dict[str, str] = {}

    def report_foreign(self, foreign: Mapping[str, str]) -> None:
        """Report which GPUs other drivers have, by GPU id."""
        drivers = Counter(foreign.values())
        counts = ", ".join(
            f"{count} {'GPU' if count == 1 else 'GPUs'} by {driver}"
            for driver, count in sorted(drivers.items())
        )
        problem = (
            f"another DRA driver publishes GPUs of this node, or pods have claims of it: {counts}; "
            "our devices of these GPUs accept no new claims — turn one of the drivers off on "
            "this node"
        )
        over = "no other DRA driver publishes GPUs of this node"
        self._say(TWICE, problem if foreign else None, (ONCE, over))

    def report_dropped(self, dropped: frozenset[str], version: str | None) -> None:
        """Report which fields of slices the API server of *version* does not keep."""
        lost = sorted(dropped - {LISTS})
        effects = ["sets of GPUs are not published"]
        if "taints" in dropped:
            effects.append("unhealthy GPUs are left out of the slices, and no pod is evicted")
        problem = (
            f"the API server ({version or 'of unknown version'}) drops {', '.join(lost)} of "
            f"ResourceSlices: {'; '.join(effects)} — switch on the feature gates "
            "DRAPartitionableDevices and DRADeviceTaints, or upgrade to Kubernetes 1.36"
        )
        over = "the API server keeps all fields of ResourceSlices"
        self._say(DROPPED, problem if lost else None, (KEPT, over))

    def _say(self, reason: str, problem: str | None, over: tuple[str, str]) -> None:
        before = self._said.get(reason)
        if problem == before:
            return
        if problem is not None:
            self._said[reason] = problem
            notice = Notice(reason=reason, message=problem, is_warning=True, gpu=None, key=reason)
        else:
            del self._said[reason]
            name, text = over
            notice = Notice(reason=name, message=text, is_warning=False, gpu=None, key=reason)
        self._report([notice])
