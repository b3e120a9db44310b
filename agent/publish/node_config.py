"""The label of the own Node that names its config."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from agent.kubeapi.watch import NodeWatch


@dataclass(frozen=True, slots=True)
class SeenLabel:
    """The label as the API server last told it; *value* is ``None`` for a Node without it."""

    value: str | None


class NodeConfigWatch(NodeWatch):
    """Follows one label of one Node. One thread runs it, any may read what was seen."""

    def __init__(
        self,
        kubeconfig: Path | None,
        node: str,
        label: str,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """Ask nothing yet; *on_change* is called by the thread that runs, and must be quick."""
        super().__init__(kubeconfig, node)
        self._label = label
        self._on_change = on_change
        self._is_seen = threading.Event()
        self._seen: SeenLabel | None = None
        self.subscribe(self._see)

    @property
    def seen(self) -> SeenLabel | None:
        """What was last seen; ``None`` before the first answer."""
        return self._seen

    def wait(self, timeout_s: float) -> SeenLabel | None:
        """Return what was seen, after the first answer or *timeout_s*."""
        self._is_seen.wait(timeout_s)
        return self._seen

    def _see(self, node: Mapping[str, Any] | None) -> None:
        labels = {} if node is None else node.get("labels") or {}
        found = labels.get(self._label)
        value = None if found is None else str(found)
        seen = SeenLabel(value)
        if seen == self._seen:
            return
        self._seen = seen
        self._is_seen.set()
        structlog.get_logger().info("config label seen", label=self._label, value=value)
        self._on_change()
