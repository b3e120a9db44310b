"""Watches that are restarted whenever they end, for as long as the program runs.

A watch without a version begins with the existing objects, so it needs no list before, and only
permission to ``watch`` (Kubernetes API concepts, "Semantics for watch"; RBAC sees the name in the
field selector).
"""

import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import structlog

from nodetopo.backoff import Backoff
from nodetopo.errors import ApiUnavailable
from nodetopo.formats.responses import part, texts
from nodetopo.kubeapi.client import GONE, Api, Expired, Refused, Stream

NODES = "/api/v1/nodes"

WATCH_S = (1800.0, 3600.0)
"""Bounds of the random duration of one watch, so that nodes do not all return at once: the API
server does the same with a watch without a timeout (kubernetes, ``--min-request-timeout``). A new
watch costs it a TLS handshake.
"""

SILENCE_S = 90.0
"""A watch without data for this long is lost: bookmarks come once a minute. TCP keepalive notices
sooner that the other end of a connection is gone."""

QUIET_S = 400.0
"""The same after a watch without bookmarks, which an API server does not send as long as no object
of the kind has changed since its start (k8s.io/apiserver pkg/storage/cacher/cacher.go)."""

RETRY_S = (1.0, 60.0)
"""First and longest pause after the API server failed, doubled in between, full jitter."""

REFUSED_S = (1.0, 3600.0)
"""The same without permission to watch: grants are rare, and 15,000 agents that ask twice a minute
would be 500 requests a second.
"""

LOOK_S = 1.0
"""Interval in a pause that the API server asked for, to see whether it answers others again."""

SHORT_S = 1.0
"""A watch that ends sooner counts as a failure, or a proxy could have us ask without a pause."""

_ANYTHING = "0"
"""As a resourceVersion: the API server's cached state, without a read from etcd."""

_NEWEST = ""
"""As a resourceVersion: the current objects, so that events stay in order."""


class Watch(ABC):
    """Follows the objects of a field selector. One thread runs it, any thread can read its problem.

    Args:
        kubeconfig: how to reach the API server; None for the pod's own account.
        what: the objects, for messages, e.g. ``node gpu-1``.
    """

    # LOST, AGAIN: log events for a failed watch, and for its recovery.
    LOST: str
    AGAIN: str

    def __init__(self, kubeconfig: Path | None, *, what: str, node: str, selector: str) -> None:
        self._kubeconfig = kubeconfig
        self._what = what
        self._subject = node
        self._selector = selector
        self._api: Api | None = None
        self._version = _ANYTHING
        self._pause = Backoff(*RETRY_S, least_s=0.0)
        self._refused_pause = Backoff(*REFUSED_S, least_s=0.0)
        self._stream: Stream | None = None
        self._silence_s = SILENCE_S
        self._has_bookmarks = False
        self._problem: str | None = None

    @property
    def problem(self) -> str | None:
        """Why the watch is currently down; None if it works or was not tried yet."""
        return self._problem

    @abstractmethod
    def open(self, api: Api, query: Mapping[str, str], silence_s: float) -> Stream:
        """Open the stream; raises ApiUnavailable, Refused and Expired as :class:`Api` does."""

    @abstractmethod
    def take(self, kind: str, found: Mapping[str, Any]) -> None:
        """Take an object's state after a change of *kind* (``ADDED``, ``MODIFIED``, ``DELETED``).

        Called by the thread that runs, so it must be quick.

        Raises:
            ApiUnavailable: *found* is not a valid object.
        """

    def forget(self) -> None:  # noqa: B027 - those that hold one object need not
        """Forget all objects: the next stream begins with those that exist."""

    def take_bookmark(self, metadata: Mapping[str, Any]) -> None:  # noqa: B027 - most need none
        """Take the *metadata* of a bookmark, which marks the stream's progress."""

    def run(self, stopping: threading.Event) -> None:
        """Follow until *stopping* is set; an open stream then ends at once."""

        def close() -> None:
            stopping.wait()
            if (stream := self._stream) is not None:
                stream.cancel()

        threading.Thread(target=close, daemon=True).start()
        try:
            while not stopping.is_set():
                try:
                    self._follow(stopping)
                except Expired as error:
                    if self._version == _NEWEST:
                        self._wait_after(ApiUnavailable(str(error)), stopping)
                    self._version = _NEWEST
                    self.forget()
                except ApiUnavailable as error:
                    self._wait_after(error, stopping)
        finally:  # even after an internal error: stale objects must not be trusted
            self._problem = self._problem or "the watch has ended"

    def _follow(self, stopping: threading.Event) -> None:
        with self._opened() as stream:
            self._refused_pause.reset()
            began, self._stream, self._has_bookmarks = time.monotonic(), stream, False
            if stopping.is_set():  # `close` can have run before the stream existed
                return
            try:
                for event in stream.events():
                    self._take(event)
                    if self._problem is not None:
                        self._problem = None
                        structlog.get_logger().info(self.AGAIN, node=self._subject)
            finally:
                is_short = time.monotonic() - began < SHORT_S
                if not is_short:
                    self._pause.reset()
                if time.monotonic() - began >= SILENCE_S and not self._has_bookmarks:
                    self._silence_s = QUIET_S
        if is_short:
            raise ApiUnavailable(f"watch of {self._what}: it ended at once")

    def _opened(self) -> Stream:
        if self._api is None:
            self._api = Api(self._kubeconfig)
        lasts_s = random.uniform(*WATCH_S)  # noqa: S311 - spreads the load
        query = {
            "watch": "true",
            "fieldSelector": self._selector,
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(round(lasts_s)),
        }
        return self.open(self._api, query, self._silence_s)

    def _take(self, event: Mapping[str, Any]) -> None:
        kind, body = event.get("type"), part(event, "object")
        if kind == "ERROR":
            problem = str(body.get("message") or body.get("reason") or "an error")
            if body.get("code") == GONE:
                raise Expired(problem)
            raise ApiUnavailable(f"watch of {self._what}: {problem}")
        metadata = part(body, "metadata")
        if kind in ("ADDED", "MODIFIED", "DELETED"):
            self.take(str(kind), body)
        elif kind == "BOOKMARK":
            if not part(metadata, "annotations"):  # not the end of the initial objects
                self._silence_s, self._has_bookmarks = SILENCE_S, True
            self.take_bookmark(metadata)
        self._version = str(metadata.get("resourceVersion") or self._version)

    def _wait_after(self, error: ApiUnavailable, stopping: threading.Event) -> None:
        """Log a new problem once, and wait before the next attempt."""
        if (problem := str(error)) != self._problem and not stopping.is_set():
            self._problem = problem
            structlog.get_logger().warning(self.LOST, node=self._subject, problem=problem)
        pause = self._refused_pause if isinstance(error, Refused) else self._pause
        left_s = pause.next_s(error.retry_after_s)
        look_s = LOOK_S if error.retry_after_s else left_s
        while left_s > 0 and not stopping.wait(min(left_s, look_s)):
            left_s -= min(left_s, look_s) + pause.relief_s()


OnNode = Callable[[Mapping[str, Any] | None], None]
"""Takes the metadata of the Node whenever it has changed; None once the Node is gone."""


class NodeWatch(Watch):
    """Follows the metadata of one Node."""

    LOST = "Node not watched"
    AGAIN = "Node watched again"

    def __init__(self, kubeconfig: Path | None, node: str) -> None:
        super().__init__(
            kubeconfig, what=f"node {node}", node=node, selector=f"metadata.name={node}"
        )
        self._node = node
        self._listeners: list[OnNode] = []
        self._notifying = threading.Lock()
        self._last: Mapping[str, Any] | None = None
        self._has_seen = False

    @property
    def is_sound(self) -> bool:
        """Whether the Node was seen, without an error since."""
        return self._has_seen and self.problem is None

    def subscribe(self, listener: OnNode) -> None:
        """Call *listener* with the Node as it was last seen, and with every change from now on.

        Called by the thread that runs, so it must be quick.
        """
        with self._notifying:
            if self._has_seen:
                listener(self._last)
            self._listeners.append(listener)

    def open(self, api: Api, query: Mapping[str, str], silence_s: float) -> Stream:
        return api.watch_metadata(NODES, query, silence_s)

    def take(self, kind: str, found: Mapping[str, Any]) -> None:
        """Notify the listeners of the Node's current state."""
        metadata = part(found, "metadata")
        texts(metadata, "labels")  # raises for malformed ones, before a listener reads them
        if metadata.get("name") != self._node:
            return
        node = None if kind == "DELETED" else metadata
        with self._notifying:
            self._has_seen, self._last = True, node
            for listener in self._listeners:
                listener(node)


class PodWatch(Watch):
    """Follows the whole pods of one node.

    It needs permission to ``watch`` pods; RBAC cannot limit it to the pods of one node, but the
    field selector does. A proxy can ignore that, so :meth:`take` gets pods of other nodes, too.
    """

    def __init__(self, kubeconfig: Path | None, node: str) -> None:
        super().__init__(
            kubeconfig, what=f"pods of {node}", node=node, selector=f"spec.nodeName={node}"
        )
        self._node = node

    def open(self, api: Api, query: Mapping[str, str], silence_s: float) -> Stream:
        return api.watch("/api/v1/pods", query, silence_s)
