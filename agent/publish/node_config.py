"""The label of the own Node that names its config, followed by one watch.

A watch that names no version begins with the Node as it is, so nothing is listed before, and the
right to ``watch`` this one Node is all that it takes (Kubernetes API concepts, "Semantics for
watch"; RBAC sees the name in the field selector).
"""

import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from agent.errors import ApiUnavailable
from agent.publish.api import GONE, Api
from agent.publish.retry_pause import RetryPause
from agent.publish.stream import Expired, Stream

WATCH_S = (300.0, 600.0)
"""How long one watch lasts, by chance, so that nodes do not all come back at once
(client-go, tools/cache/reflector.go)."""

SILENCE_S = 30.0
"""A watch that the server has not ended so long after its time is lost."""

RETRY_S = (1.0, 60.0)
"""First and longest pause after the API server refused, doubled in between, full jitter."""

SHORT_S = 1.0
"""A watch that ends sooner is as good as refused, or a proxy could have us ask without a pause."""

NODES = "/api/v1/nodes"

_ANYTHING = "0"
"""As a version: the Node as the API server has it in memory; it asks no etcd."""

_NEWEST = ""
"""As a version: the Node as it is now, so that nothing older is seen after something newer."""


@dataclass(frozen=True, slots=True)
class SeenLabel:
    """The label as the API server last told it; *value* is ``None`` for a Node without it."""

    value: str | None


class NodeConfigWatch:
    """Follows one label of one Node. One thread runs it, any may read what was seen."""

    def __init__(
        self,
        kubeconfig: Path | None,
        node: str,
        label: str,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """Ask nothing yet; *on_change* is called by the thread that runs, and must be quick."""
        self._kubeconfig = kubeconfig
        self._node = node
        self._label = label
        self._on_change = on_change
        self._api: Api | None = None
        self._version = _ANYTHING
        self._pause = RetryPause(*RETRY_S, least_s=0.0)
        self._stream: Stream | None = None
        self._is_seen = threading.Event()
        self._seen: SeenLabel | None = None
        self._problem: str | None = None

    @property
    def seen(self) -> SeenLabel | None:
        """What was last seen; ``None`` before the first answer."""
        return self._seen

    @property
    def problem(self) -> str | None:
        """Why the Node is not followed now; ``None`` where it is, or was not tried yet."""
        return self._problem

    def wait(self, timeout_s: float) -> SeenLabel | None:
        """Return what was seen, after the first answer or *timeout_s*."""
        self._is_seen.wait(timeout_s)
        return self._seen

    def run(self, stopping: threading.Event) -> None:
        """Follow the Node until *stopping* is set; a stream that is open then ends at once."""
        closer = threading.Thread(target=self._close_at, args=(stopping,), daemon=True)
        closer.start()
        while not stopping.is_set():
            try:
                self._follow(stopping)
            except Expired as error:
                if self._version == _NEWEST:
                    self._wait_after(ApiUnavailable(str(error)), stopping)
                self._version = _NEWEST
            except ApiUnavailable as error:
                self._wait_after(error, stopping)

    def _close_at(self, stopping: threading.Event) -> None:
        stopping.wait()
        if (stream := self._stream) is not None:
            stream.cancel()

    def _follow(self, stopping: threading.Event) -> None:
        """Follow the Node until the watch ends.

        Raises:
            Expired: the server no longer knows where we are.
            ApiUnavailable: there is no watch, or it was lost, or it ended at once.
        """
        with self._opened() as stream:
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
        return self._api.watch_metadata(NODES, query, lasts_s + SILENCE_S)

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
        kind, found = event.get("type"), self._part(event, "object")
        if kind == "ERROR":
            said = str(found.get("message") or found.get("reason") or "an error")
            if found.get("code") == GONE:
                raise Expired(said)
            raise ApiUnavailable(f"watch of node {self._node}: {said}")
        metadata = self._part(found, "metadata")
        self._version = str(metadata.get("resourceVersion") or self._version)
        if metadata.get("name") != self._node:
            return  # a bookmark has no name
        if kind == "DELETED":
            self._see(None)
        elif kind in ("ADDED", "MODIFIED"):
            value = self._part(metadata, "labels").get(self._label)
            self._see(None if value is None else str(value))

    def _part(self, whole: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        """Return the object *name* of *whole*, empty where there is none.

        Raises:
            ApiUnavailable: it is something else.
        """
        found = whole.get(name) or {}
        if not isinstance(found, dict):
            raise ApiUnavailable(f"watch of node {self._node}: {name} is no object")
        return found

    def _see(self, value: str | None) -> None:
        seen = SeenLabel(value)
        if seen == self._seen:
            return
        self._seen = seen
        self._is_seen.set()
        structlog.get_logger().info("config label seen", label=self._label, value=value)
        self._on_change()

    def _wait_after(self, error: ApiUnavailable, stopping: threading.Event) -> None:
        """Say what is wrong, once for each problem, and wait before the next attempt."""
        if (problem := str(error)) != self._problem and not stopping.is_set():
            self._problem = problem
            structlog.get_logger().warning("Node not watched", node=self._node, problem=problem)
        stopping.wait(self._pause.next_s(error.retry_after_s))
