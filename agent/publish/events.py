"""Events about the Node, as ``kubectl describe node`` shows them, written by server-side apply.

The object is a ``v1`` Event, which every reader of Events knows. Its name follows from what it is
about, so that one write both creates it and counts it up, and an answer that was lost does no harm.
The Node is named as the kubelet names it in its own Events: the uid is the name, the namespace of
the Event is ``default`` (kubernetes 1.36, pkg/kubelet/kubelet.go, nodeRef; API validation of Events
demands that namespace for an object that has none).
"""

import time
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from threading import Event, Lock
from typing import Any
from urllib.parse import quote

import structlog

from agent.errors import ApiUnavailable
from agent.formats.responses import part, parts
from agent.kubeapi.backoff import RETRY_S, RetryPause
from agent.kubeapi.client import Answer, Api

# Events that wait to be written: joined by what they are about, limited in number and rate.

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
        reason: short, CamelCase; see the table in ``docs/operate/runbook.md``.
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


# The loop that writes Events: one at a time, within the budget, later where it was refused.

COMPONENT = "nodetopo"


POLL_S = 0.4
"""How often the loop looks for Events, and for the end."""


MESSAGE_BYTES = 1024
"""As much as the newer Event API takes (kubernetes, pkg/apis/core/validation/events.go,
NoteLengthLimit), so that no reader has to cut."""


NAME_LENGTH = 253
"""Of any object's name (kubernetes, DNS subdomain, RFC 1123)."""


_TAKEN = frozenset({200, 201})


_HOPELESS = frozenset({400, 422})
"""It will not be taken at another time either."""


_log = structlog.get_logger()


def utc_now() -> datetime:
    """Return the time that people read."""
    return datetime.now(UTC)


class EventWriter(ABC):
    """Posts what happens; any thread posts, one runs the loop.

    Nothing is connected before the first Event: the client of the API server costs memory.

    Args:
        kubeconfig: how to reach the API server; ``None`` for the pod's own account.
        node: name of the Node object.
        clock: monotonic seconds, for pauses.
        now: the time that people read.
    """

    def __init__(
        self,
        kubeconfig: Path | None,
        node: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._kubeconfig = kubeconfig
        self._node = node
        self._clock = clock
        self._now = now
        self._queue = EventQueue(clock)
        self._api: Api | None = None
        self._posted = 0
        self._pause = RetryPause(*RETRY_S, least_s=RETRY_S[0])
        self._silent_until = float("-inf")

    @property
    def posted(self) -> int:
        """How many writes the API server took."""
        return self._posted

    @property
    def dropped(self) -> int:
        """How many Events were given up: too many, too old, or refused."""
        return self._queue.dropped

    def post(self, event: NodeEvent) -> None:
        """Have *event* written soon, joined with others of its reason and key; never blocks."""
        self._queue.put(event)

    def run(self, stopping: Event) -> None:
        """Write what is posted until *stopping*; what then still waits is lost."""
        while not stopping.wait(POLL_S):
            self.write_next()

    def write_next(self) -> None:
        """Write one Event if one is due and the API server did not ask for a pause."""
        if self._clock() < self._silent_until:
            return
        waiting = self._queue.take()
        if waiting is None:
            return
        try:
            if self._api is None:
                self._api = Api(self._kubeconfig)
            answer = self.write(self._api, waiting)
        except ApiUnavailable as error:
            self._put_off(waiting, str(error), error.retry_after_s)
            return
        if answer.status in _TAKEN:
            self._posted += 1
            self._pause.reset()
            self._queue.wrote(waiting)
        elif self.is_told(answer):
            self._pause.reset()
        elif answer.status in _HOPELESS or self.is_hopeless(answer):
            self._queue.drop(waiting)
            _log.error("event refused", reason=waiting.event.reason, error=_said(answer))
        else:
            self._put_off(waiting, _said(answer), answer.retry_after_s)

    @abstractmethod
    def write(self, api: Api, waiting: Waiting) -> Answer:
        """Write one Event; raises ApiUnavailable where no answer came."""

    def is_told(self, _answer: Answer) -> bool:
        """Return whether a refusal means that the Event is there already."""
        return False

    def is_hopeless(self, _answer: Answer) -> bool:
        """Return whether a refusal, of another status than those that always are, is for good."""
        return False

    def _put_off(self, waiting: Waiting, problem: str, asked_s: float | None) -> None:
        self._silent_until = self._clock() + self._pause.next_s(asked_s)
        self._queue.put_back(waiting)
        _log.warning("event not posted", reason=waiting.event.reason, error=problem)

    def body(self, waiting: Waiting) -> dict[str, Any]:
        """Return the fields of the object that are the same for all; times and count are not."""
        event = waiting.event
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "type": "Warning" if event.is_warning else "Normal",
            "reason": event.reason,
            "message": _message(event.message, waiting.count - 1),
            "source": {"component": COMPONENT, "host": self._node},
            "reportingComponent": COMPONENT,
            "reportingInstance": self._node,
        }

    def time(self) -> str:
        """Return the present time as Events have it."""
        return self._now().strftime("%Y-%m-%dT%H:%M:%SZ")


def event_name(subject: str, *facts: str) -> str:
    """Return the name of an Event: the same for the same *subject* and *facts*, over restarts."""
    digest = sha256("\n".join(facts).encode()).hexdigest()[:16]
    return f"{subject[: NAME_LENGTH - 1 - len(digest)].rstrip('.-')}.{digest}"


def causes(answer: Answer) -> tuple[str, ...]:
    """Return the reasons of the causes that a refusal names."""
    found: Mapping[str, Any] = part(answer.body, "details")
    return tuple(str(cause.get("reason")) for cause in parts(found, "causes"))


def _message(text: str, joined: int) -> str:
    ending = f" ({joined} more since the last Event)" if joined else ""
    room = MESSAGE_BYTES - len(ending)
    return text.encode()[:room].decode(errors="ignore") + ending


def _said(answer: Answer) -> str:
    return str(answer.body.get("message") or f"HTTP {answer.status}")


# Events about pods, as ``kubectl describe pod`` shows them: each created once, never changed.
#
# The name follows from the pod's uid and what is said, so that an agent that starts anew is told by
# the API server that it has said so already. All that this takes is the right to ``create`` Events.

_EXISTS = 409


_FORBIDDEN = 403


_NO_NAMESPACE = 404


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEvent(NodeEvent):
    """What a person should learn about a pod; the key is to name its uid.

    Attributes:
        uid: of the pod; readers find the Events of a pod by it.
    """

    namespace: str
    pod: str
    uid: str


class PodEventPublisher(EventWriter):
    """Posts :class:`PodEvent` and nothing else."""

    def write(self, api: Api, waiting: Waiting) -> Answer:
        """Create the Event."""
        event, now = waiting.event, self.time()
        assert isinstance(event, PodEvent), "an Event about something else"
        return api.create(
            f"/api/v1/namespaces/{quote(event.namespace, safe='')}/events",
            {"fieldManager": COMPONENT},
            {
                **self.body(waiting),
                "metadata": {
                    "name": event_name(event.pod, event.uid, event.reason),
                    "namespace": event.namespace,
                },
                "involvedObject": {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "namespace": event.namespace,
                    "name": event.pod,
                    "uid": event.uid,
                },
                "firstTimestamp": now,
                "lastTimestamp": now,
                "count": 1,
            },
        )

    def is_told(self, answer: Answer) -> bool:
        """Return whether the Event is there already, from before a restart."""
        return answer.status == _EXISTS

    def is_hopeless(self, answer: Answer) -> bool:
        """Return whether the pod's namespace is gone or going; others must not wait for it."""
        is_going = answer.status == _FORBIDDEN and "NamespaceTerminating" in causes(answer)
        return is_going or answer.status == _NO_NAMESPACE


__all__ = ["EventPublisher", "NodeEvent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """What the API server was told of one thing so far: when it began, and how often it was."""

    first: str
    count: int


class EventPublisher(EventWriter):
    """Posts what happens to one node."""

    def __init__(
        self,
        kubeconfig: Path | None,
        node: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        """Connect to nothing yet; arguments as of :class:`EventWriter`."""
        super().__init__(kubeconfig, node, clock=clock, now=now)
        self._told: OrderedDict[str, _Told] = OrderedDict()  # by name of the Event

    def write(self, api: Api, waiting: Waiting) -> Answer:
        """Create the Event, or count it up."""
        event, now = waiting.event, self.time()
        name = event_name(self._node, self._node, event.reason, event.key)
        before = self._told.get(name, _Told(first=now, count=0))
        told = _Told(first=before.first, count=before.count + waiting.count)
        answer = api.apply(
            f"/api/v1/namespaces/default/events/{name}",
            {"fieldManager": COMPONENT, "force": "true"},
            {
                **self.body(waiting),
                "metadata": {"name": name, "namespace": "default"},
                "involvedObject": {"kind": "Node", "name": self._node, "uid": self._node},
                "firstTimestamp": told.first,
                "lastTimestamp": now,
                "count": told.count,
            },
        )
        if answer.status in {200, 201}:
            self._remember(name, told)
        return answer

    def _remember(self, name: str, told: _Told) -> None:
        self._told[name] = told
        self._told.move_to_end(name)
        if len(self._told) > REMEMBERED:
            self._told.popitem(last=False)
