"""Events that wait to be written: joined by what they are about, limited in number and rate."""

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

WAITING = 64
"""Events that may wait; of more, the oldest is dropped. A node has 16 GPUs at most, and few of
the things that can befall one last."""

QUIET_S = 600.0
"""One Event in ten minutes says that a thing goes on."""

BUDGET = 10
BUDGET_S = 3600.0
"""Writes in an hour, whatever happens: the API server keeps an Event for an hour by default
(kube-apiserver, ``--event-ttl``), and 15,000 nodes may fail at once."""

EXPIRY_S = 3600.0
"""An Event that could not be written for this long is no news any more."""

REMEMBERED = 256
"""Things whose last write is remembered; of one that was forgotten the next is written at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEvent:
    """What a person should learn about the node.

    Attributes:
        reason: short, CamelCase; see the table in ``docs/operations.md``.
        message: a sentence for a person.
        is_warning: Warning, else Normal.
        key: what it is about, such as a GPU; Events of one reason and key are joined.
    """

    reason: str
    message: str
    is_warning: bool
    key: str


@dataclass(slots=True)
class Waiting:
    """An Event that waits, the latest of those that were joined in it.

    Attributes:
        count: how many were joined, 1 or more.
        since: when the first of them came, on the queue's clock.
    """

    event: NodeEvent
    count: int
    since: float


class EventQueue:
    """What waits, and what may be written now. Safe to share between threads; never blocks.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = Lock()  # guards everything below
        self._waiting: OrderedDict[tuple[str, str], Waiting] = OrderedDict()
        self._written: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._spent: deque[float] = deque(maxlen=BUDGET)
        self._dropped = 0

    @property
    def dropped(self) -> int:
        """How many Events were never written: too many, too old, or refused."""
        return self._dropped

    def put(self, event: NodeEvent) -> None:
        """Let *event* wait; one that waits already for the same thing is replaced and counted."""
        with self._lock:
            waiting = self._waiting.get(_thing(event))
            if waiting is not None:
                waiting.event = event
                waiting.count += 1
                return
            if len(self._waiting) >= WAITING:
                _, oldest = self._waiting.popitem(last=False)
                self._dropped += oldest.count
            self._waiting[_thing(event)] = Waiting(event, 1, self._clock())

    def take(self) -> Waiting | None:
        """Remove and return what may be written now: warnings first, then the oldest.

        ``None`` where nothing waits, the budget is spent, or all that waits was just written.
        """
        with self._lock:
            now = self._clock()
            self._expire(now)
            if len(self._spent) == BUDGET and now - self._spent[0] < BUDGET_S:
                return None
            due = [one for thing, one in self._waiting.items() if self._is_due(thing, now)]
            if not due:
                return None
            first = min(due, key=lambda one: not one.event.is_warning)
            return self._waiting.pop(_thing(first.event))

    def put_back(self, taken: Waiting) -> None:
        """Let *taken* wait again, joined with what has come meanwhile."""
        with self._lock:
            thing = _thing(taken.event)
            newer = self._waiting.get(thing)
            if newer is None:
                self._waiting[thing] = taken
            else:
                newer.count += taken.count
                newer.since = taken.since
            self._waiting.move_to_end(thing, last=False)

    def wrote(self, taken: Waiting) -> None:
        """Count the write of *taken* against the budget, and keep its thing quiet for a while."""
        with self._lock:
            now = self._clock()
            self._spent.append(now)
            self._written[_thing(taken.event)] = now
            self._written.move_to_end(_thing(taken.event))
            if len(self._written) > REMEMBERED:
                self._written.popitem(last=False)

    def drop(self, taken: Waiting) -> None:
        """Give *taken* up."""
        with self._lock:
            self._dropped += taken.count

    def _expire(self, now: float) -> None:
        late = [thing for thing, one in self._waiting.items() if now - one.since >= EXPIRY_S]
        for thing in late:
            self._dropped += self._waiting.pop(thing).count

    def _is_due(self, thing: tuple[str, str], now: float) -> bool:
        return now - self._written.get(thing, float("-inf")) >= QUIET_S


def _thing(event: NodeEvent) -> tuple[str, str]:
    return event.reason, event.key
