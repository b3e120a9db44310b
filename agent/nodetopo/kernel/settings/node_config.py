"""The label of the own Node that names its configuration."""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import structlog
from msgspec import Struct

from nodetopo.kubeapi.watch import NodeWatch


class SeenLabel(Struct, frozen=True):
    """The label as last reported by the API server; *value* is ``None`` for a Node without it."""

    value: str | None


class NodeConfigWatch(NodeWatch):
    """Follows one label of one Node. One thread runs it, any thread can read the label."""

    def __init__(
        self,
        kubeconfig: Path | None,
        node: str,
        label: str,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """Send no request yet; *on_change* is called by the running thread, and must be quick."""
        super().__init__(kubeconfig, node)
        self._label = label
        self._on_change = on_change
        self._is_seen = threading.Event()
        self.seen: SeenLabel | None = None  # the label last seen; ``None`` before the first answer
        self.subscribe(self._see)

    def wait(self, timeout_s: float) -> SeenLabel | None:
        """Return the label last seen, after the first answer or *timeout_s*."""
        self._is_seen.wait(timeout_s)
        return self.seen

    def _see(self, node: Mapping[str, Any] | None) -> None:
        labels = {} if node is None else node.get("labels") or {}
        value = labels.get(self._label)
        seen = SeenLabel(None if value is None else str(value))
        if seen == self.seen:
            return
        self.seen = seen
        self._is_seen.set()
        structlog.get_logger().info("config label seen", label=self._label, value=seen.value)
        self._on_change()
