"""Events about the Node, as ``kubectl describe node`` shows them, written by server-side apply.

The object is a ``v1`` Event, which every reader of Events knows. Its name follows from what it is
about, so that one write both creates it and counts it up, and an answer that was lost does no harm.
The Node is named as the kubelet names it in its own Events: the uid is the name, the namespace of
the Event is ``default`` (kubernetes 1.36, pkg/kubelet/kubelet.go, nodeRef; API validation of Events
demands that namespace for an object that has none).
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from threading import Event
from typing import Any

import structlog

from agent.errors import ApiUnavailable
from agent.publish.api import Answer, Api
from agent.publish.event_queue import REMEMBERED, EventQueue, NodeEvent, Waiting
from agent.publish.retry_pause import RETRY_S, RetryPause

__all__ = ["EventPublisher", "NodeEvent"]

COMPONENT = "nodetopo"

POLL_S = 0.4
"""How often the loop looks for Events, and for the end."""

MESSAGE_BYTES = 1024
"""As much as the newer Event API takes (kubernetes, pkg/apis/core/validation/events.go,
NoteLengthLimit), so that no reader has to cut."""

NAME_LENGTH = 253
"""Of any object's name (kubernetes, DNS subdomain, RFC 1123)."""

_log = structlog.get_logger()


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """What the API server was told of one thing so far: when it began, and how often it was."""

    first: str
    count: int


class EventPublisher:
    """Posts what happens to one node; any thread posts, one runs the loop.

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
        now: Callable[[], datetime] = _utc_now,
    ) -> None:
        self._kubeconfig = kubeconfig
        self._node = node
        self._clock = clock
        self._now = now
        self._queue = EventQueue(clock)
        self._told: OrderedDict[str, _Told] = OrderedDict()  # by name of the Event
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
            answer = self._apply(waiting)
        except ApiUnavailable as error:
            self._put_off(waiting, str(error), error.retry_after_s)
            return
        if answer.status in {200, 201}:
            self._posted += 1
            self._pause.reset()
            self._queue.wrote(waiting)
        elif answer.status in {400, 422}:  # it will not be taken at another time either
            self._queue.drop(waiting)
            _log.error("event refused", reason=waiting.event.reason, error=_said(answer))
        else:
            self._put_off(waiting, _said(answer), answer.retry_after_s)

    def _put_off(self, waiting: Waiting, problem: str, asked_s: float | None) -> None:
        self._silent_until = self._clock() + self._pause.next_s(asked_s)
        self._queue.put_back(waiting)
        _log.warning("event not posted", reason=waiting.event.reason, error=problem)

    def _apply(self, waiting: Waiting) -> Answer:
        if self._api is None:
            self._api = Api(self._kubeconfig)
        name = _name(self._node, waiting.event)
        now = self._now().strftime("%Y-%m-%dT%H:%M:%SZ")
        before = self._told.get(name, _Told(first=now, count=0))
        told = _Told(first=before.first, count=before.count + waiting.count)
        answer = self._api.apply(
            f"/api/v1/namespaces/default/events/{name}",
            {"fieldManager": COMPONENT, "force": "true"},
            self._body(name, waiting, told, now),
        )
        if answer.status in {200, 201}:
            self._remember(name, told)
        return answer

    def _remember(self, name: str, told: _Told) -> None:
        self._told[name] = told
        self._told.move_to_end(name)
        if len(self._told) > REMEMBERED:
            self._told.popitem(last=False)

    def _body(self, name: str, waiting: Waiting, told: _Told, now: str) -> Mapping[str, Any]:
        event = waiting.event
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": "default"},
            "involvedObject": {"kind": "Node", "name": self._node, "uid": self._node},
            "type": "Warning" if event.is_warning else "Normal",
            "reason": event.reason,
            "message": _message(event.message, waiting.count - 1),
            "source": {"component": COMPONENT, "host": self._node},
            "reportingComponent": COMPONENT,
            "reportingInstance": self._node,
            "firstTimestamp": told.first,
            "lastTimestamp": now,
            "count": told.count,
        }


def _name(node: str, event: NodeEvent) -> str:
    """Return the same name for the same node, reason and key, over restarts as well."""
    digest = sha256(f"{node}\n{event.reason}\n{event.key}".encode()).hexdigest()[:16]
    return f"{node[: NAME_LENGTH - 1 - len(digest)].rstrip('.-')}.{digest}"


def _message(text: str, joined: int) -> str:
    ending = f" ({joined} more since the last Event)" if joined else ""
    room = MESSAGE_BYTES - len(ending)
    return text.encode()[:room].decode(errors="ignore") + ending


def _said(answer: Answer) -> str:
    return str(answer.body.get("message") or f"HTTP {answer.status}")
