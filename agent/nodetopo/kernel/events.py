"""Events about the Node and about pods, as ``kubectl describe`` shows them.

The objects are ``v1`` Events, which every reader of Events knows. The name of an Event follows
from its subject, so that a write whose answer was lost does no harm when it is repeated.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from threading import Event, Lock
from typing import Any
from urllib.parse import quote

import structlog
from msgspec import Struct

from nodetopo.backoff import API_RETRY_S, Backoff
from nodetopo.errors import ApiUnavailable
from nodetopo.formats.harmless import harmless
from nodetopo.formats.responses import part, parts
from nodetopo.kubeapi.client import Answer, Api

COMPONENT = "nodetopo"

POLL_S = 0.4
"""Pause between two Events."""

IDLE_S = 10.0
"""Pause between rounds of the loop while no Event waits; a new Event ends the pause."""

MESSAGE_BYTES = 1024
"""The limit of the newer Event API (kubernetes, pkg/apis/core/validation/events.go,
NoteLengthLimit), so that no reader has to truncate."""

NAME_LENGTH = 253
"""Of any object's name (kubernetes, DNS subdomain, RFC 1123)."""

WAITING = 64
"""Most Events in the queue; beyond it, the oldest is dropped.

A node has at most 16 GPUs, and few of their conditions last.
"""

QUIET_S = 600.0
"""One Event in ten minutes reports a lasting condition."""

BUDGET = 10
BUDGET_S = 3600.0
"""Writes an hour at most: the API server keeps an Event for an hour by default (kube-apiserver,
``--event-ttl``), and 15,000 nodes can fail at once.
"""

EXPIRY_S = 3600.0
"""An Event that could not be written for this long is dropped as outdated."""

REMEMBERED = 256
"""Subjects whose last write is remembered; the next Event of a forgotten one is written at once."""

_OK = (200, 201)
_INVALID = (400, 422)
"""The API server will not accept it at another time either."""
_CONFLICT = 409
_FORBIDDEN = 403
_NOT_FOUND = 404

_log = structlog.get_logger()


class NodeEvent(Struct, frozen=True, kw_only=True):
    """An Event about the node."""

    reason: str  # short, CamelCase; see the table in ``docs/operate/runbook.md``
    message: str  # a sentence for a person
    is_warning: bool  # of type Warning, else Normal
    # The subject, such as a GPU, and after a space what of it; Events of one reason and key are
    # joined, those of one subject keep their order.
    key: str


class PodEvent(NodeEvent, frozen=True, kw_only=True):
    """An Event about a pod; the key should contain its uid."""

    namespace: str
    pod: str
    uid: str  # of the pod; readers find the Events of a pod by it


Post = Callable[[PodEvent], None]
"""Takes Events on pods and never blocks."""


def utc_now() -> datetime:
    """Return the current time for people."""
    return datetime.now(UTC)


class EventWriter(ABC):
    """Write posted Events one at a time; any thread posts, one runs the loop.

    Nothing is connected before the first Event: the client of the API server costs memory.

    Args:
        kubeconfig: how to reach the API server; ``None`` for the pod's own account.
        node: name of the Node object.
        clock: monotonic seconds, for pauses.
        now: the time in the Events.
        budget: writes an hour at most.
    """

    def __init__(
        self,
        kubeconfig: Path | None,
        node: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = utc_now,
        budget: int = BUDGET,
    ) -> None:
        self._kubeconfig = kubeconfig
        self._node = node
        self._clock = clock
        self._queue = EventQueue(clock, budget, now)
        self._api: Api | None = None
        self._posted = 0
        self._pause = Backoff(*API_RETRY_S, least_s=API_RETRY_S[0])
        self._silent_until = float("-inf")

    @property
    def posted(self) -> int:
        """How many writes the API server accepted."""
        return self._posted

    @property
    def dropped(self) -> int:
        """How many Events were dropped: too many, too old, or refused."""
        return self._queue.dropped

    def post(self, event: NodeEvent) -> None:
        """Have *event* written soon, joined with others of its reason and key; never blocks."""
        self._queue.put(event)

    def run(self, stopping: Event) -> None:
        """Write posted Events until *stopping* is set; Events still queued then are lost."""
        while not stopping.is_set():
            if not self._queue.has_events:
                self._queue.wait(IDLE_S)
            elif not stopping.wait(POLL_S):
                self.write_next()

    def wake(self) -> None:
        """Have :meth:`run` see now that it is to stop."""
        self._queue.wake()

    def write_next(self) -> None:
        """Write one Event if due and the API server requested no pause."""
        self._silent_until -= self._pause.relief_s()
        if self._clock() < self._silent_until:
            return
        waiting = self._queue.take()
        if waiting is None:
            return
        retry_after_s = None
        try:
            if self._api is None:
                self._api = Api(self._kubeconfig)
            answer = self.write(self._api, waiting)
        except ApiUnavailable as error:
            problem, retry_after_s = str(error), error.retry_after_s
        else:
            if answer.status in _OK:
                self._posted += 1
                self._pause.reset()
                self._queue.wrote(waiting)
                return
            if self.is_duplicate(answer):
                self._pause.reset()
                return
            problem = str(answer.body.get("message") or f"HTTP {answer.status}")
            if answer.status in _INVALID or self.is_permanent(answer):
                self._queue.drop(waiting)
                _log.error("event rejected", reason=waiting.event.reason, error=problem)
                return
            retry_after_s = answer.retry_after_s
        self._silent_until = self._clock() + self._pause.next_s(retry_after_s)
        self._queue.put_back(waiting)
        _log.warning("event not posted", reason=waiting.event.reason, error=problem)

    @abstractmethod
    def write(self, api: Api, waiting: Waiting) -> Answer:
        """Write one Event; raises ApiUnavailable if there was no answer."""

    def is_duplicate(self, _answer: Answer) -> bool:
        """Return whether the refusal means that the Event already exists."""
        return False

    def is_permanent(self, _answer: Answer) -> bool:
        """Return whether a refusal is permanent although its status usually isn't."""
        return False

    def body(
        self, waiting: Waiting, metadata: Mapping[str, Any], subject: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the object, except for its first time and its count."""
        event, joined = waiting.event, waiting.count - 1
        ending = f" ({joined} more since the last Event)" if joined else ""
        message = harmless(event.message, MESSAGE_BYTES).encode()
        text = message[: MESSAGE_BYTES - len(ending)].decode(errors="ignore")
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "type": "Warning" if event.is_warning else "Normal",
            "reason": event.reason,
            "message": text + ending,
            "source": {"component": COMPONENT, "host": self._node},
            "reportingComponent": COMPONENT,
            "reportingInstance": self._node,
            "metadata": metadata,
            "involvedObject": subject,
            "lastTimestamp": waiting.at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }


class EventPublisher(EventWriter):
    """Write Events about one node by server-side apply, which creates them and raises their counts.

    The Node is named as the kubelet names it in its own Events: the uid is the name, the namespace
    of the Event is ``default`` (kubernetes 1.36, pkg/kubelet/kubelet.go, nodeRef; API validation of
    Events demands that namespace for an object without one).
    """

    @cached_property
    def _written(self) -> OrderedDict[str, tuple[str, int]]:
        """By name of an Event: its first time, and how often it has happened."""
        return OrderedDict()

    def write(self, api: Api, waiting: Waiting) -> Answer:
        """Create the Event, or count it up."""
        event = waiting.event
        name = event_name(self._node, self._node, event.reason, event.key)
        body = self.body(
            waiting,
            {"name": name, "namespace": "default"},
            {"kind": "Node", "name": self._node, "uid": self._node},
        )
        first, before = self._written.get(name, (body["lastTimestamp"], 0))
        count = before + waiting.count
        answer = api.apply(
            f"/api/v1/namespaces/default/events/{name}",
            {"fieldManager": COMPONENT, "force": "true"},
            {**body, "firstTimestamp": first, "count": count},
        )
        if answer.status in _OK:
            self._written[name] = first, count
            self._written.move_to_end(name)
            if len(self._written) > REMEMBERED:
                self._written.popitem(last=False)
        return answer


class PodEventPublisher(EventWriter):
    """Write :class:`PodEvent` and nothing else; each is created once and never changed.

    The name is derived from the pod's uid and the reason, so the API server rejects a duplicate
    from a restarted agent. Only the right to ``create`` Events is needed.
    """

    def write(self, api: Api, waiting: Waiting) -> Answer:
        """Create the Event."""
        event = waiting.event
        assert isinstance(event, PodEvent), "an Event about something else"
        namespace = event.namespace
        body = self.body(
            waiting,
            {"name": event_name(event.pod, event.uid, event.reason), "namespace": namespace},
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "namespace": namespace,
                "name": event.pod,
                "uid": event.uid,
            },
        )
        return api.create(
            f"/api/v1/namespaces/{quote(namespace, safe='', errors='replace')}/events",
            {"fieldManager": COMPONENT},
            {**body, "firstTimestamp": body["lastTimestamp"], "count": 1},
        )

    def is_duplicate(self, answer: Answer) -> bool:
        """Return whether the Event already exists, from before a restart."""
        return answer.status == _CONFLICT

    def is_permanent(self, answer: Answer) -> bool:
        """Return whether the pod's namespace is gone or terminating; other Events need not wait."""
        causes = parts(part(answer.body, "details"), "causes")
        is_terminating = any(cause.get("reason") == "NamespaceTerminating" for cause in causes)
        return answer.status == _NOT_FOUND or (answer.status == _FORBIDDEN and is_terminating)


def event_name(subject: str, *facts: str) -> str:
    """Return the name of an Event: the same for the same *subject* and *facts*, over restarts."""
    digest = sha256("\n".join(facts).encode(errors="surrogatepass")).hexdigest()[:16]
    return f"{subject[: NAME_LENGTH - 1 - len(digest)].rstrip('.-')}.{digest}"


class Waiting(Struct):
    """A queued Event: the latest of the Events merged into it."""

    event: NodeEvent
    count: int  # number of merged Events, at least 1
    since: float  # when the first was posted, on the queue's clock
    at: datetime  # when the latest was posted


class EventQueue:
    """Events to write, merged by subject, limited in number and rate; never blocks.

    Threads can share it. The clock returns monotonic seconds, and *now* the time for people.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        budget: int = BUDGET,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._clock = clock
        self._now = now
        self._lock = Lock()  # guards everything below
        self._waiting: OrderedDict[tuple[str, str], Waiting] = OrderedDict()
        self._written: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._spent: deque[float] = deque(maxlen=budget)
        self.dropped = 0  # how many Events were never written: too many, too old, or refused
        self._news = Event()

    def wait(self, seconds: float) -> None:
        """Wait until something is put, or :meth:`wake` is called."""
        self._news.wait(seconds)
        self._news.clear()

    def wake(self) -> None:
        """End a wait."""
        self._news.set()

    @property
    def has_events(self) -> bool:
        """Whether any Event waits, due or not."""
        return bool(self._waiting)

    def put(self, event: NodeEvent) -> None:
        """Let *event* wait; it replaces a waiting Event of its subject, which is counted."""
        with self._lock:
            waiting = self._waiting.get(_subject(event))
            if waiting is not None:
                waiting.event, waiting.at = event, self._now()
                waiting.count += 1
                self._waiting.move_to_end(_subject(event))
                return
            if len(self._waiting) >= WAITING:
                _, oldest = self._waiting.popitem(last=False)
                self.dropped += oldest.count
            self._waiting[_subject(event)] = Waiting(event, 1, self._clock(), self._now())
        self._news.set()

    def take(self) -> Waiting | None:
        """Remove and return the next Event to write: warnings first, then the oldest.

        Events of one subject, such as a GPU, keep their order: the latest says how it is. So one
        that was just written does not wait if a newer one is due.
        ``None`` if the queue is empty, the budget is spent, or every queued Event was just written.
        """
        with self._lock:
            now = self._clock()
            for subject, waiting in tuple(self._waiting.items()):
                if now - waiting.since >= EXPIRY_S:
                    self.dropped += self._waiting.pop(subject).count
            if len(self._spent) == self._spent.maxlen and now - self._spent[0] < BUDGET_S:
                return None
            due = [
                waiting
                for subject, waiting in self._waiting.items()
                if now - self._written.get(subject, float("-inf")) >= QUIET_S
            ]
            if not due:
                return None
            wanted = min(due, key=lambda waiting: not waiting.event.is_warning)
            about = _about(wanted.event)
            return self._waiting.pop(
                next(at for at, it in self._waiting.items() if _about(it.event) == about)
            )

    def put_back(self, taken: Waiting) -> None:
        """Queue *taken* again, merged with Events posted since."""
        with self._lock:
            subject = _subject(taken.event)
            newer = self._waiting.get(subject)
            if newer is None:
                self._waiting[subject] = taken
                self._waiting.move_to_end(subject, last=False)
            else:
                newer.count += taken.count
                newer.since = taken.since

    def wrote(self, taken: Waiting) -> None:
        """Count the write of *taken* against the budget, and keep its subject quiet for a while."""
        with self._lock:
            now, subject = self._clock(), _subject(taken.event)
            self._spent.append(now)
            self._written[subject] = now
            self._written.move_to_end(subject)
            if len(self._written) > REMEMBERED:
                self._written.popitem(last=False)

    def drop(self, taken: Waiting) -> None:
        """Give *taken* up."""
        with self._lock:
            self.dropped += taken.count


def _subject(event: NodeEvent) -> tuple[str, str]:
    return event.reason, event.key


def _about(event: NodeEvent) -> str:
    """Return what the Event is about: the GPU, of all its conditions."""
    return event.key.partition(" ")[0]
