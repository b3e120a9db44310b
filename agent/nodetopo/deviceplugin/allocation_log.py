"""Logs one line for each allocation: the devices, their bandwidth, and the reasons.

The kubelet does not name the pod, and asks for a preference only if it has a choice: it takes the
devices of a NUMA node without asking if their number is exactly the pod's request (kubelet 1.36
pkg/kubelet/cm/devicemanager, devicesToAllocate). So a set equal to one of our recent answers was
our choice, and any other set the kubelet's.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from queue import Full, Queue
from threading import Event, Lock, Thread

from msgspec import Struct
from structlog.typing import FilteringBoundLogger

ANSWERS = 32
"""Answers remembered. The kubelet admits one pod at a time and allocates right after asking,
so one for each container of a pod is enough."""

REMEMBERED = 16
"""Allocations that the status page shows."""

WAITING = 64
"""Most allocations waiting for their line; beyond these, lines have no reasons."""

QUIET_S = 0.1
"""How long the worker lets a call that woke it finish: Python runs one thread at a time, and
the answer to the kubelet comes first."""


class Asked(Struct, frozen=True, kw_only=True):
    """A request of the kubelet for a preferred set, and the milliseconds that the answer took."""

    available: tuple[str, ...]
    required: tuple[str, ...]
    size: int
    took_ms: float


class LoggedAllocation(Struct, frozen=True, kw_only=True):
    """One allocation, for the status page."""

    at: datetime  # time of the log line, UTC
    resource: str
    devices: tuple[str, ...]
    is_ours: bool  # whether the set was our answer, not the kubelet's own choice
    said: str | None  # the reasons as one sentence; ``None`` if unknown
    # By which GPUs were chosen; ``None`` for other devices, and where the kubelet chose.
    policy: str | None = None


Explain = Callable[[Sequence[str], Asked | None], Mapping[str, object]]
"""(ids allocated, the request; ``None`` if the kubelet chose itself) → keys of the line."""


def no_reasons(ids: Sequence[str], asked: Asked | None) -> Mapping[str, object]:
    """Return no reasons."""
    del ids, asked
    return {}


class AllocationLog:
    """Writes the lines in a separate thread, so that no call of the kubelet waits.

    *close_s* is how long :meth:`close` waits for the last lines, in seconds.
    """

    def __init__(
        self,
        explain: Explain,
        log: FilteringBoundLogger,
        close_s: float,
        *,
        resource: str = "",
    ) -> None:
        self.count = 0  # containers that were given devices
        # Allocations that were logged without their reasons, because too many waited.
        self.dropped = 0
        self.unchosen = 0  # answers that were any valid set, because none was chosen in time
        self._explain = explain
        self._log = log
        self._close_s = close_s
        self._resource = resource
        self._recent: deque[LoggedAllocation] = deque(maxlen=REMEMBERED)
        self._waiting: Queue[tuple[tuple[str, ...], Asked | None]] = Queue(WAITING)
        self._closing = Event()
        self._lock = Lock()  # guards the counters, and the two below
        self._answers: OrderedDict[frozenset[str], Asked] = OrderedDict()
        self._thread: Thread | None = None

    @property
    def recent(self) -> tuple[LoggedAllocation, ...]:
        """The latest allocations, oldest first."""
        return tuple(self._recent.copy())

    def answered(self, asked: Asked, chosen: Sequence[str], *, is_choice: bool = True) -> None:
        """Remember the answer *chosen* to the request *asked*.

        *is_choice* is false of any valid set.
        """
        key = frozenset(chosen)
        with self._lock:
            self.unchosen += not is_choice
            self._answers[key] = asked
            self._answers.move_to_end(key)
            if len(self._answers) > ANSWERS:
                self._answers.popitem(last=False)

    def allocated(self, ids: Sequence[str]) -> None:
        """Log that *ids* were allocated; the line is written a moment later."""
        with self._lock:
            self.count += 1
            asked = self._answers.pop(frozenset(ids), None)
            if not self._closing.is_set():
                self._start()
                with suppress(Full):
                    self._waiting.put_nowait((tuple(ids), asked))
                    return
            self.dropped += 1
        self._remember(ids, asked, {})
        self._log.warning("devices allocated", chosen=list(ids), unexplained=self.dropped)

    def _start(self) -> None:
        """Start the thread, if there is none yet."""
        if self._thread is None:
            thread = Thread(target=self._run, name="allocation log", daemon=True)
            with suppress(RuntimeError):  # at the limit: the next allocation tries again
                thread.start()
                self._thread = thread

    def close(self) -> None:
        """Write the lines that still wait, and end the thread."""
        with self._lock:
            self._closing.set()
        with suppress(Full):
            self._waiting.put_nowait(((), None))  # wakes the thread
        if self._thread is None:
            self._run()
        else:
            self._thread.join(self._close_s)

    def _run(self) -> None:
        while not (self._closing.is_set() and self._waiting.empty()):
            ids, asked = self._waiting.get()
            if self._waiting.empty():
                self._closing.wait(QUIET_S)
            if ids:
                self._write(ids, asked)

    def _write(self, ids: tuple[str, ...], asked: Asked | None) -> None:
        try:
            reasons = self._explain(ids, asked)
        except Exception:  # noqa: BLE001 - a fault in the reasons must not end the log
            self._log.error("allocation not explained", chosen=list(ids), exc_info=True)
            self._remember(ids, asked, {})
            return
        line = {
            "chosen": list(ids),
            **reasons,
            "chosen_by": "us" if asked else "kubelet",
            "took_ms": asked.took_ms if asked else None,
        }
        self._log.info("devices allocated", **line)
        self._remember(ids, asked, reasons)

    def _remember(
        self, ids: Sequence[str], asked: Asked | None, reasons: Mapping[str, object]
    ) -> None:
        """Keep an allocation for :attr:`recent`."""
        said, policy = (
            None if (word := reasons.get(key)) is None else str(word) for key in ("said", "policy")
        )
        self._recent.append(
            LoggedAllocation(
                at=datetime.now(UTC),
                resource=self._resource,
                devices=tuple(ids),
                is_ours=asked is not None,
                said=said,
                policy=policy,
            )
        )
