"""The loop that writes Events: one at a time, within the budget, later where it was refused."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from threading import Event
from typing import Any

import structlog

from agent.errors import ApiUnavailable
from agent.formats.responses import part, parts
from agent.kubeapi.backoff import RETRY_S, RetryPause
from agent.kubeapi.client import Answer, Api
from agent.publish.event_queue import EventQueue, NodeEvent, Waiting

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
