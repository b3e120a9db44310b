"""The labels on the Node object, written by server-side apply and only when they change.

Each label is a separate field with separate owners.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import structlog

from nodetopo.components.labels.outputs.output import (
    NODE,
    NOTHING,
    DesiredLabels,
    LabelChanges,
    compare,
)
from nodetopo.formats.responses import part
from nodetopo.kubeapi import apply
from nodetopo.kubeapi.apply import (
    FIELD_MANAGER,
    AppliedObject,
    Connect,
    Labelled,
    connection,
    labelled,
)
from nodetopo.kubeapi.client import Answer

_Items = tuple[tuple[str, str], ...]
"""Labels as (key, value)."""

_INVALID = 422

_log = structlog.get_logger()


class NodeLabelPublisher:
    """Keep the labels of one Node up to date; a LabelOutput.

    The connection is made at the first use. Nodes are never created: the uid of the Node
    that was read is part of the patch, and the API server refuses a patch for any other.
    """

    name = NODE
    needs_api = True
    is_on_node = True

    def __init__(
        self,
        kubeconfig: Path | None,
        node: str,
        *,
        connect: Connect | None = None,
        yields: frozenset[str] = frozenset(),
    ) -> None:
        """Send no request yet.

        Args:
            kubeconfig: of the API server; ``None`` for the pod's own account.
            node: the name of the Node.
            connect: a shared connection, instead of one by *kubeconfig*.
            yields: labels that are left to any other program that writes them.
        """
        self._node = node
        self._yields = yields
        self._object = AppliedObject(
            connect or connection(kubeconfig),
            f"/api/v1/nodes/{quote(node, safe='')}",
            self._cure,
        )
        # Labels, as (key, value), that the API server does not accept; not sent again.
        self.refused: frozenset[tuple[str, str]] = frozenset()
        # What the last publish left: uid, labels, and those yielded to other programs.
        self._left: tuple[str, Mapping[str, str], frozenset[str]] | None = None

    @property
    def place(self) -> str:
        """The Node, as ``kubectl`` names it."""
        return f"node/{self._node}"

    def changes(self, desired: DesiredLabels, *, complete: bool = False) -> LabelChanges:
        """Return the changes that :meth:`publish` would make, if the API server accepts them.

        Raises:
            ApiUnavailable: the Node cannot be read.
        """
        now = self._read()
        changes = self._changes(now, desired, complete=complete)
        if not changes:
            self._remember(now, desired, changes)
        return changes

    def publish(self, desired: DesiredLabels, *, complete: bool = False) -> LabelChanges:
        """Write *desired* to the Node; return the changes.

        Our labels absent from *desired* are removed if it is *complete* evidence and they are not
        unread, and otherwise keep their value. Others' labels are not touched.

        Raises:
            ApiUnavailable: the write may have failed; retry after *retry_after_s*, or at any time
                if that is ``None``.
        """
        now = self._read()
        changes = self._changes(now, desired, complete=complete)
        answer = self._apply(now, desired, changes) if changes else None
        if answer is not None and answer.status == _INVALID:
            # The control of the experiment: refused even without labels, none of them is at fault.
            self._object.checked("PATCH", self._try_out(now, ()))
            refused = frozenset(self._invalid(now, tuple(sorted(desired.labels.items()))))
            for key, value in sorted(refused - self.refused):
                _log.error("API server rejected label", node=self._node, key=key, value=value)
            self.refused |= refused
            changes = self._changes(now, desired, complete=complete)
            answer = self._apply(now, desired, changes) if changes else None
        if answer is not None:
            self._object.checked("PATCH", answer)
        self._remember(now, desired, changes)
        return changes

    def remove(self) -> LabelChanges:
        """Remove only our labels and annotations from the Node; return the changes.

        Raises:
            ApiUnavailable: they may still exist.
        """
        return self.publish(NOTHING, complete=True)

    def labels(self) -> Mapping[str, str]:
        """Return the labels of the Node, from any writer."""
        return self._read().labels

    def is_disturbed(self, node: Mapping[str, Any]) -> bool:
        """Return whether the Node of this metadata differs from the last published state."""
        if self._left is None:
            return False
        uid, left, yielded = self._left
        labels = node.get("labels") or {}
        is_gone = not yielded <= labels.keys()  # the other program has stopped writing them
        return (
            node.get("uid") != uid or is_gone or any(labels.get(key) != left[key] for key in left)
        )

    def _read(self) -> Labelled:
        return labelled(part(self._object.read(), "metadata"), FIELD_MANAGER)

    def _changes(self, now: Labelled, desired: DesiredLabels, *, complete: bool) -> LabelChanges:
        annotations = self._annotations(now, desired)
        return compare(
            now.labels,
            now.owned,
            self._acceptable(now, desired),
            keep=desired.unread if complete else None,
            is_there=bool(now.owned or now.owned_annotations),
            is_stale=any(now.annotations.get(key) != value for key, value in annotations.items())
            or not now.owned_annotations <= annotations.keys(),
        )

    def _apply(self, now: Labelled, desired: DesiredLabels, changes: LabelChanges) -> Answer:
        labels = {**changes.kept, **self._acceptable(now, desired)}
        return self._object.apply(self._patch(now, labels, self._annotations(now, desired)))

    def _remember(self, now: Labelled, desired: DesiredLabels, changes: LabelChanges) -> None:
        yielded = self._yields & now.others & desired.labels.keys()
        self._left = (now.uid, {**changes.kept, **self._acceptable(now, desired)}, yielded)

    def _acceptable(self, now: Labelled, desired: DesiredLabels) -> dict[str, str]:
        """Return the wanted labels that are neither refused nor left to another program."""
        return {
            key: value
            for key, value in desired.labels.items()
            if (key, value) not in self.refused and not (key in self._yields and key in now.others)
        }

    def _annotations(self, now: Labelled, desired: DesiredLabels) -> Mapping[str, str]:
        if desired.annotations is not None:
            return desired.annotations
        return {key: now.annotations[key] for key in now.owned_annotations}

    def _invalid(self, now: Labelled, items: _Items) -> _Items:
        """Return which of *items* the API server refuses, by bisection with dry runs.

        One bad value makes it refuse the whole patch, without naming the value.
        """
        answer = self._try_out(now, items)
        if answer.status != _INVALID:
            self._object.checked("PATCH", answer)
            return ()
        if len(items) <= 1:
            return items
        middle = len(items) // 2
        return self._invalid(now, items[:middle]) + self._invalid(now, items[middle:])

    def _try_out(self, now: Labelled, items: _Items) -> Answer:
        return self._object.try_out(self._patch(now, dict(items), {}))

    def _patch(
        self, now: Labelled, labels: Mapping[str, str], annotations: Mapping[str, str]
    ) -> dict[str, Any]:
        metadata: dict[str, Any] = {
            "name": self._node,
            "uid": now.uid,
            "labels": dict(sorted(labels.items())),
        }
        if annotations:
            metadata["annotations"] = dict(sorted(annotations.items()))
        return {"apiVersion": "v1", "kind": "Node", "metadata": metadata}

    def _cure(self, status: int) -> str:
        match status:
            case 403:
                return "grant `get` and `patch` on nodes to the account of the kubeconfig or pod"
            case 404:
                return f"check --node-name: the cluster has no node {self._node!r}; none is created"
            case _:
                return apply.cure(status)
