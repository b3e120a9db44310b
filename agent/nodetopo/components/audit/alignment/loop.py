"""The loop that measures how pods with GPUs are aligned: counts for metrics, and Events on pods."""

from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from itertools import groupby

import structlog
from msgspec import Struct

from nodetopo.components.audit.alignment.measure import measured
from nodetopo.components.audit.alignment.record import Alignment, PodAlignment
from nodetopo.errors import AgentError
from nodetopo.kernel.events import PodEvent, Post
from nodetopo.kernel.loops import PeriodicLoop
from nodetopo.kernel.running_pods import Published, RunningPods, listed_pods
from nodetopo.kernel.settings.own import KernelSettings
from nodetopo.kernel.shown import ListedPods
from nodetopo.kernel.store import SnapshotStore
from nodetopo.model.snapshot import Snapshot
from nodetopo.outage import Outage

OUTAGE_ATTEMPTS = 2
"""Measurements in a row that the kubelet left unanswered, after which its silence is reported."""

LOOK_S = 60.0
"""How often pods are measured. What a pod has is settled when it is admitted; only its cgroup can
change afterwards."""

REASON = "PodMisaligned"
"""Of the Event."""

REMEMBERED = 1024
"""Pods that are not reported twice; a kubelet runs at most 110 by default."""

PodName = tuple[str, str, str | None]
"""Namespace, name and uid."""


class MeasuredPods(Struct, frozen=True, kw_only=True):
    """How the pods are aligned.

    Attributes:
        verdicts: ``aligned``, ``misaligned`` or ``unknown`` → pods; all three are there.
        reasons: the first cause of each misaligned pod → pods.
    """

    verdicts: Mapping[str, int]
    reasons: Mapping[str, int]


class AlignmentLoop(PeriodicLoop):
    """Measures pods; one thread runs it, any thread can read the result.

    A pod that is misaligned in two consecutive measurements is reported once, in the log and as an
    Event: while a container is created, its cgroup does not have its final values.

    Attributes:
        post: takes Events; ``None`` if Events are off.
        found: the last measurement; ``None`` before the first and after a failure.
        listed: the pods of that measurement; ``None`` after a failure.
        errors: failed measurements, mostly because the kubelet did not answer.
    """

    def __init__(
        self,
        settings: KernelSettings,
        store: SnapshotStore,
        *,
        post: Post | None,
        read: Callable[[Snapshot], Snapshot] | None = None,
        published: Callable[[], Published] = lambda: None,
    ) -> None:
        """Measure nothing yet.

        Args:
            settings: locate the kubelet and its files.
            store: has the machine.
            post: takes Events; ``None`` if Events are off.
            read: puts the pods into a snapshot; ``None`` reads them by *settings*.
            published: returns the devices that DRA drivers publish for the node.
        """
        self._store = store
        self._pods = RunningPods(settings, published)
        self._read = read or self._pods.read_with_offer
        self._bug = Outage()
        self._outage = Outage(OUTAGE_ATTEMPTS)
        self._suspects: frozenset[PodName] = frozenset()
        self._reported: OrderedDict[PodName, None] = OrderedDict()
        self.post = post
        self.found: MeasuredPods | None = None
        self.listed: ListedPods | None = None
        self.errors = 0

    def step(self) -> float:
        """Measure once; return the seconds until the next measurement."""
        current = self._store.current
        if current is None:
            return 1.0  # the first scan is still running
        problem, bug = None, None
        try:
            snapshot = self._read(current.snapshot)
            rows = measured(snapshot)
            by_pod = groupby(rows, key=lambda row: (row.namespace, row.pod, row.uid))
            pods = {name: tuple(group) for name, group in by_pod}
        except AgentError as error:
            problem = str(error)
        except Exception as error:  # noqa: BLE001 - no pod must end what offers the GPUs
            problem = bug = f"a bug in nodetopo: {error!r}"

        log = structlog.get_logger()
        is_new_bug = self._bug.changed(bug)
        if problem is None:
            if self._outage.ended() or is_new_bug:
                log.info("pods measured again")
            self._take(pods)
            self.listed = listed_pods(snapshot)
        else:
            self.errors += 1
            self.found = self.listed = None
            is_lasting = bug is None and self._outage.failed()
            if is_lasting or (bug is not None and is_new_bug):
                log.warning("pods not measured", error=problem, exc_info=bug is not None)
        return LOOK_S

    def close(self) -> None:
        """Close the connection to the kubelet."""
        self._pods.close()

    def _take(self, pods: Mapping[PodName, tuple[PodAlignment, ...]]) -> None:
        """Count *pods*, and report those misaligned for the second time."""
        verdicts: Counter[str] = Counter()
        reasons: Counter[str] = Counter()
        misaligned = set()
        for name, rows in pods.items():
            verdicts_of_pod = {row.verdict for row in rows}
            worst_first = (Alignment.MISALIGNED, Alignment.UNKNOWN, Alignment.ALIGNED)
            verdict = next(each for each in worst_first if each in verdicts_of_pod)
            verdicts[verdict.value] += 1
            if verdict is Alignment.MISALIGNED:
                misaligned.add(name)
                reasons[next(cause.code for row in rows for cause in row.causes)] += 1
        self.found = MeasuredPods(
            verdicts={each.value: verdicts[each.value] for each in Alignment}, reasons=reasons
        )

        for name in sorted(misaligned & self._suspects, key=lambda name: name[:2]):
            if name not in self._reported:
                self._reported[name] = None
                self._report(name, pods[name])
        while len(self._reported) > REMEMBERED:
            self._reported.popitem(last=False)
        self._suspects = frozenset(misaligned)

    def _report(self, pod: PodName, rows: tuple[PodAlignment, ...]) -> None:
        namespace, name, uid = pod
        message = "; ".join(
            f"container {row.container} with {', '.join(row.gpus or row.hcas)}: "
            f"{part.part.value} {part.observed}, expected {part.expected}: "
            f"{part.causes[0].text} ({part.causes[0].code})"
            for row in rows
            for part in row.apart
        )
        causes = [cause.code for row in rows for cause in row.causes]
        structlog.get_logger().warning(
            "pod misaligned",
            pod=f"{namespace}/{name}",
            uid=uid,
            causes=list(dict.fromkeys(causes)),
            message=message,
        )
        if self.post is not None and uid is not None:  # readers find an Event by the pod's uid
            self.post(
                PodEvent(
                    reason=REASON,
                    message=message,
                    is_warning=True,
                    key=uid,
                    namespace=namespace,
                    pod=name,
                    uid=uid,
                )
            )
