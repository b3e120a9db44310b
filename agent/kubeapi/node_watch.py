"""The metadata of the own Node, followed by one watch."""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from agent.formats.responses import part, texts
from agent.kubeapi.client import Api
from agent.kubeapi.stream import Stream
from agent.kubeapi.watch import Watch

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
