"""One watch that is followed for as long as the program runs, whatever ends it.

A watch that names no version begins with what there is, so nothing is listed before, and the right
to ``watch`` is all that it takes (Kubernetes API concepts, "Semantics for watch"; RBAC sees the
name in the field selector).
"""

import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import structlog

from agent.errors import ApiUnavailable
from agent.formats.responses import part, texts
from agent.kubeapi.backoff import RetryPause
from agent.kubeapi.client import GONE, Api, Expired, Refused, Stream

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


_ANYTHING = "0"
"""As a version: what the API server has in memory; it asks no etcd."""


_NEWEST = ""
"""As a version: what there is now, so that nothing older is seen after something newer."""


class Watch(ABC):
    """Follows what a field selector names. One thread runs it, any may ask for its problem.

    Attributes:
        LOST, AGAIN: what the log says when it cannot be followed, and when it is again.

    Args:
        kubeconfig: how to reach the API server; ``None`` for the pod's own account.
        what: is followed, for messages, e.g. ``node gpu-1``.
        node: the name of the node.
        selector: the field selector.
    """

    LOST: str
    AGAIN: str

    def __init__(self, kubeconfig: Path | None, *, what: str, node: str, selector: str) -> None:
        self._kubeconfig = kubeconfig
        self._what = what
        self._subject = node
        self._selector = selector
        self._api: Api | None = None
        self._version = _ANYTHING
        self._pause = RetryPause(*RETRY_S, least_s=0.0)
        self._refused_pause = RetryPause(*REFUSED_S, least_s=0.0)
        self._stream: Stream | None = None
        self._problem: str | None = None

    @property
    def problem(self) -> str | None:
        """Why nothing is followed now; ``None`` where it is, or was not tried yet."""
        return self._problem

    @abstractmethod
    def open(self, api: Api, query: Mapping[str, str], silence_s: float) -> Stream:
        """Open the stream; raises ApiUnavailable, Refused and Expired as :class:`Api` does."""

    @abstractmethod
    def take(self, kind: str, found: Mapping[str, Any]) -> None:
        """Take an object as it is after a change of *kind* (``ADDED``, ``MODIFIED``, ``DELETED``).

        The thread that runs calls it, so it must be quick.

        Raises:
            ApiUnavailable: what came is no such object.
        """

    def run(self, stopping: threading.Event) -> None:
        """Follow until *stopping* is set; a stream that is open then ends at once."""
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
        """Follow until the watch ends; after a failure, wait."""
        try:
            self._follow(stopping)
        except Expired as error:
            if self._version == _NEWEST:
                self._wait_after(ApiUnavailable(str(error)), stopping)
            self._version = _NEWEST
        except ApiUnavailable as error:
            self._wait_after(error, stopping)

    def _follow(self, stopping: threading.Event) -> None:
        """Follow until the watch ends.

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
        return self.open(self._api, query, SILENCE_S)

    def _tell_of_end_of_problem(self) -> None:
        if self._problem is not None:
            self._problem = None
            structlog.get_logger().info(self.AGAIN, node=self._subject)

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
            raise ApiUnavailable(f"watch of {self._what}: {said}")
        metadata = part(found, "metadata")
        if kind in ("ADDED", "MODIFIED", "DELETED"):
            self.take(str(kind), found)
        self._version = str(metadata.get("resourceVersion") or self._version)

    def _wait_after(self, error: ApiUnavailable, stopping: threading.Event) -> None:
        """Say what is wrong, once for each problem, and wait before the next attempt."""
        if (problem := str(error)) != self._problem and not stopping.is_set():
            self._problem = problem
            structlog.get_logger().warning(self.LOST, node=self._subject, problem=problem)
        pause = self._refused_pause if isinstance(error, Refused) else self._pause
        stopping.wait(pause.next_s(error.retry_after_s))


# The metadata of the own Node, followed by one watch.

NODES = "/api/v1/nodes"


OnNode = Callable[[Mapping[str, Any] | None], None]
"""Takes the metadata of the Node whenever it has changed; ``None`` once the Node is gone."""


class NodeWatch(Watch):
    """Follows one Node. One thread runs it, any may ask for its problem."""

    LOST = "Node not watched"
    AGAIN = "Node watched again"

    def __init__(self, kubeconfig: Path | None, node: str) -> None:
        """Ask nothing yet."""
        super().__init__(
            kubeconfig, what=f"node {node}", node=node, selector=f"metadata.name={node}"
        )
        self._node = node
        self._listeners: list[OnNode] = []
        self._telling = threading.Lock()
        self._last: Mapping[str, Any] | None = None
        self._has_seen = False

    @property
    def is_sound(self) -> bool:
        """Whether the Node was seen, and nothing is wrong since."""
        return self._has_seen and self.problem is None

    def subscribe(self, listener: OnNode) -> None:
        """Have *listener* told what is known already, and what is seen from now on.

        The thread that runs calls it, so it must be quick.
        """
        with self._telling:
            if self._has_seen:
                listener(self._last)
            self._listeners.append(listener)

    def open(self, api: Api, query: Mapping[str, str], silence_s: float) -> Stream:
        """Open the stream."""
        return api.watch_metadata(NODES, query, silence_s)

    def take(self, kind: str, found: Mapping[str, Any]) -> None:
        """Tell the listeners of the Node as it is now."""
        metadata = part(found, "metadata")
        texts(metadata, "labels")
        if metadata.get("name") == self._node:
            self._tell(None if kind == "DELETED" else metadata)

    def _tell(self, node: Mapping[str, Any] | None) -> None:
        with self._telling:
            self._has_seen, self._last = True, node
            for listener in self._listeners:
                listener(node)
