"""The loop that measures how pods with GPUs are aligned: counts for metrics, and Events on pods."""

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

import structlog

from agent.checks.alignment.measure import measured
from agent.checks.alignment.record import Alignment, PodAlignment
from agent.config.settings import Settings
from agent.daemon.running_pods import HeldPods
from agent.errors import UnreadableError
from agent.model.snapshot import Snapshot
from agent.publish.events import PodEvent
from agent.store import SnapshotStore

LOOK_S = 60.0
"""How often pods are measured. What a pod has is settled when it is admitted; only its cgroup can
change afterwards."""

REASON = "PodMisaligned"
"""Of the Event."""

REMEMBERED = 1024
"""Pods that are not told of twice; a kubelet runs 110 unless told otherwise."""

Post = Callable[[PodEvent], None]
"""Takes Events and never blocks."""

Name = tuple[str, str, str | None]
"""Namespace, name and uid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPods:
    """How the pods of one look are aligned.

    Attributes:
        verdicts: ``aligned``, ``misaligned`` or ``unknown`` → pods; all three are there.
        reasons: the first cause of each misaligned pod → pods.
    """

    verdicts: Mapping[str, int]
    reasons: Mapping[str, int]


class Auditing:
    """Measures pods; one thread runs it, any may read what it found.

    A pod that is misaligned at two looks, one after the other, is told of once, in the log and as
    an Event: while a container is made, its cgroup is not what it will be.

    Attributes:
        post: takes Events; ``None`` where none are wanted.
        errors: looks at which the kubelet did not tell its pods and what it offers, or that failed
            otherwise.
    """

    def __init__(
        self,
        settings: Settings,
        store: SnapshotStore,
        *,
        post: Post | None,
        read: Callable[[Snapshot], Snapshot] | None = None,
    ) -> None:
        """Begin with nothing measured.

        Args:
            settings: where the kubelet and its files are met.
            store: where the machine comes from.
            post: takes Events; ``None`` where none are wanted.
            read: puts the pods into a snapshot; ``None`` for those of *settings*.
        """
        self._store = store
        self.post = post
        self._held = HeldPods(settings)
        self._read = read or self._held.read_whole
        self._problem: str | None = None
        self._suspects: frozenset[Name] = frozenset()
        self._told: OrderedDict[Name, None] = OrderedDict()
        self._found: MeasuredPods | None = None
        self.errors = 0

    @property
    def found(self) -> MeasuredPods | None:
        """What the last look found; ``None`` where there was none, or the kubelet was silent."""
        return self._found

    def run(self, stopping: threading.Event) -> None:
        """Measure until *stopping* is set."""
        while not stopping.is_set():
            stopping.wait(self.step())
        self._held.close()

    def step(self) -> float:
        """Measure once; return the seconds until the next look."""
        current = self._store.current
        if current is None:
            return 1.0  # the first scan goes on
        try:
            pods = dict(_by_pod(measured(self._read(current.snapshot))))
        except UnreadableError as error:
            self._failed(str(error))
        except Exception as error:  # noqa: BLE001 - anybody's pod must not end what offers the GPUs
            self._failed(f"a bug of ours: {error!r}", is_bug=True)
        else:
            self._recovered()
            self._take(pods)
        return LOOK_S

    def _recovered(self) -> None:
        if self._problem is not None:
            self._problem = None
            structlog.get_logger().info("pods measured again")

    def _take(self, pods: Mapping[Name, tuple[PodAlignment, ...]]) -> None:
        verdicts = {pod: _verdict(rows) for pod, rows in pods.items()}
        bad = frozenset(pod for pod, found in verdicts.items() if found is Alignment.MISALIGNED)
        counts = Counter(found.value for found in verdicts.values())
        self._found = MeasuredPods(
            verdicts={each.value: counts[each.value] for each in Alignment},
            reasons=Counter(_first_cause(pods[pod]) for pod in bad),
        )
        for pod in sorted(bad & self._suspects, key=lambda name: name[:2]):
            if pod not in self._told:
                self._told[pod] = None
                self._tell(pod, pods[pod])
        while len(self._told) > REMEMBERED:
            self._told.popitem(last=False)
        self._suspects = bad

    def _tell(self, pod: Name, rows: tuple[PodAlignment, ...]) -> None:
        namespace, name, uid = pod
        message = "; ".join(_sentences(rows))
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

    def _failed(self, problem: str, *, is_bug: bool = False) -> None:
        self.errors += 1
        self._found = None
        if problem != self._problem:
            self._problem = problem
            log = structlog.get_logger()
            log.warning("pods not measured", error=problem, exc_info=is_bug)


def _by_pod(rows: Iterable[PodAlignment]) -> Iterator[tuple[Name, tuple[PodAlignment, ...]]]:
    for name, found in groupby(rows, key=lambda row: (row.namespace, row.pod, row.uid)):
        yield name, tuple(found)


def _verdict(rows: Iterable[PodAlignment]) -> Alignment:
    found = {row.verdict for row in rows}
    worst = (Alignment.MISALIGNED, Alignment.UNKNOWN)
    return next((each for each in worst if each in found), Alignment.ALIGNED)


def _first_cause(rows: Iterable[PodAlignment]) -> str:
    return next(cause.code for row in rows for cause in row.causes)


def _sentences(rows: Iterable[PodAlignment]) -> Iterator[str]:
    for row in rows:
        for one in row.apart:
            cause = one.causes[0]
            yield (
                f"container {row.container} with {', '.join(row.gpus or row.hcas)}: "
                f"{one.part.value} {one.observed}, expected {one.expected}: "
                f"{cause.text} ({cause.code})"
            )
