"""The metadata of the own Node, followed by one watch.

A watch that names no version begins with the Node as it is, so nothing is listed before, and the
right to ``watch`` this one Node is all that it takes (Kubernetes API concepts, "Semantics for
watch"; RBAC sees the name in the field selector).
"""

import random
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import structlog

from agent.errors import ApiUnavailable
from agent.publish.answer_parts import part, texts
from agent.publish.api import GONE, Api, Refused
from agent.publish.retry_pause import RetryPause
from agent.publish.stream import Expired, Stream

WATCH_S = (1800.0, 3600.0)
"""How long one watch lasts, by chance, so that nodes do not all come back at once: as long as the
API server lets one last that names no time (kubernetes, ``--min-request-timeout``). A new one
costs it a TLS handshake."""

SILENCE_S = 400.0
"""A watch that brings nothing for so long is lost: a kubelet reports its Node's status every five
minutes (``nodeStatusReportFrequency``), and bookmarks come about once a minute."""

RETRY_S = (1.0, 60.0)
"""First and longest pause after the API server failed, doubled in between, full jitter."""

REFUSED_S = (1.0, 3600.0)
"""The same where the account may not watch: somebody has to grant that, which seldom happens, and
15,000 agents that ask twice a minute would be 500 requests in a second."""

SHORT_S = 1.0
"""A watch that ends sooner is as good as refused, or a proxy could have us ask without a pause."""

NODES = "/api/v1/nodes"

_ANYTHING = "0"
"""As a version: the Node as the API server has it in memory; it asks no etcd."""

_NEWEST = ""
"""As a version: the Node as it is now, so that nothing older is seen after something newer."""


OnNode = Callable[[Mapping[str, Any] | None], None]
"""Takes the metadata of the Node whenever it has changed; ``None`` once the Node is gone."""


class NodeWatch:
    """Follows one Node. One thread runs it, any may ask for its problem."""

    def __init__(self, kubeconfig: Path | None, node: str) -> None:
        """Ask nothing yet."""
        self._kubeconfig = kubeconfig
        self._node = node
        self._listeners: list[OnNode] = []
        self._telling = threading.Lock()
        self._last: Mapping[str, Any] | None = None
        self._has_seen = False
        self._api: Api | None = None
        self._version = _ANYTHING
        self._pause = RetryPause(*RETRY_S, least_s=0.0)
        self._refused_pause = RetryPause(*REFUSED_S, least_s=0.0)
        self._stream: Stream | None = None
        self._problem: str | None = None

    @property
    def problem(self) -> str | None:
        """Why the Node is not followed now; ``None`` where it is, or was not tried yet."""
        return self._problem

    @property
    def is_sound(self) -> bool:
        """Whether the Node was seen, and nothing is wrong since."""
        return self._has_seen and self._problem is None

    def subscribe(self, listener: OnNode) -> None:
        """Have *listener* told what is known already, and what is seen from now on.

        The thread that runs calls it, so it must be quick.
        """
        with self._telling:
            if self._has_seen:
                listener(self._last)
            self._listeners.append(listener)

    def run(self, stopping: threading.Event) -> None:
        """Follow the Node until *stopping* is set; a stream that is open then ends at once."""
        closer = threading.Thread(target=self._close_at, args=(stopping,), daemon=True)
        closer.start()
        try:
            while not stopping.is_set():
                self._follow_on(stopping)
        finally:  # after a bug of ours, too: nobody must go on trusting what is seen
            self._problem = self._problem or "the watch has ended"

    def _close_at(self, stopping: threading.Event) -> None:
        stopping.wait()
        if (stream := self._stream) is not None:
            stream.cancel()

    def _follow_on(self, stopping: threading.Event) -> None:
        """Follow the Node until the watch ends; after a failure, wait."""
        try:
            self._follow(stopping)
        except Expired as error:
            if self._version == _NEWEST:
                self._wait_after(ApiUnavailable(str(error)), stopping)
            self._version = _NEWEST
        except ApiUnavailable as error:
            self._wait_after(error, stopping)

    def _follow(self, stopping: threading.Event) -> None:
        """Follow the Node until the watch ends.

        Raises:
            Expired: the server no longer knows where we are.
            ApiUnavailable: there is no watch, or it was lost, or it ended at once.
        """
        with self._opened() as stream:
            self._refused_pause.reset()
            began, self._stream = time.monotonic(), stream
            if stopping.is_set():  # the closer may have looked before there was a stream
                return
            try:
                for event in stream.events():
                    self._take(event)
                    self._tell_of_end_of_problem()
            finally:
                is_short = time.monotonic() - began < SHORT_S
                if not is_short:
                    self._pause.reset()
        if is_short:
            raise ApiUnavailable(f"watch of node {self._node}: it ended at once")

    def _opened(self) -> Stream:
        if self._api is None:
            self._api = Api(self._kubeconfig)
        lasts_s = random.uniform(*WATCH_S)  # noqa: S311 - spreads the load
        query = {
            "watch": "true",
            "fieldSelector": f"metadata.name={self._node}",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(round(lasts_s)),
        }
        return self._api.watch_metadata(NODES, query, SILENCE_S)

    def _tell_of_end_of_problem(self) -> None:
        if self._problem is not None:
            self._problem = None
            structlog.get_logger().info("Node watched again", node=self._node)

    def _take(self, event: Mapping[str, Any]) -> None:
        """Take what one event says.

        Raises:
            Expired: the server no longer knows where we are.
            ApiUnavailable: it says that it failed.
        """
        kind, found = event.get("type"), part(event, "object")
        if kind == "ERROR":
            said = str(found.get("message") or found.get("reason") or "an error")
            if found.get("code") == GONE:
                raise Expired(said)
            raise ApiUnavailable(f"watch of node {self._node}: {said}")
        metadata = part(found, "metadata")
        texts(metadata, "labels")
        self._version = str(metadata.get("resourceVersion") or self._version)
        if metadata.get("name") != self._node:
            return  # a bookmark has no name
        if kind == "DELETED":
            self._tell(None)
        elif kind in ("ADDED", "MODIFIED"):
            self._tell(metadata)

    def _tell(self, node: Mapping[str, Any] | None) -> None:
        with self._telling:
            self._has_seen, self._last = True, node
            for listener in self._listeners:
                listener(node)

    def _wait_after(self, error: ApiUnavailable, stopping: threading.Event) -> None:
        """Say what is wrong, once for each problem, and wait before the next attempt."""
        if (problem := str(error)) != self._problem and not stopping.is_set():
            self._problem = problem
            structlog.get_logger().warning("Node not watched", node=self._node, problem=problem)
        pause = self._refused_pause if isinstance(error, Refused) else self._pause
        stopping.wait(pause.next_s(error.retry_after_s))
