"""A Node object of the Kubernetes API, reduced to what an audit needs."""

from collections.abc import Iterator, Mapping
from typing import Any

from agent.formats.fields import Object, amounts, items, object_at, text_at
from agent.model.node import NodeStatus

LABELS_OF = "nvidia.com/"
"""The prefix of the labels whose writers are told."""

_FIELD = "f:"
"""Of each name in ``fieldsV1`` (Kubernetes API reference, FieldsV1)."""


def node_status_from_object(obj: Mapping[str, Any]) -> NodeStatus:
    """Return what the API server has of the node *obj*.

    A node whose kubelet never reported has neither capacity nor versions. The writers of labels
    come from ``metadata.managedFields``, and are ``None`` where an answer left these out.

    Raises:
        DecodeError: *obj* has not the shape of a Node; the path starts at the node.
    """
    metadata = object_at(obj, "metadata", "")
    status = object_at(obj, "status", "")
    about = object_at(status, "nodeInfo", "status")
    return NodeStatus(
        kubelet_version=text_at(about, "kubeletVersion", "status.nodeInfo") or None,
        container_runtime=text_at(about, "containerRuntimeVersion", "status.nodeInfo") or None,
        capacity=_amounts(status, "capacity"),
        allocatable=_amounts(status, "allocatable"),
        label_writers=_writers(metadata),
    )


def _amounts(status: Object, field: str) -> dict[str, int] | None:
    return None if status.get(field) is None else amounts(status, field, "status")


def _writers(metadata: Object) -> dict[str, tuple[str, ...]] | None:
    if metadata.get("managedFields") is None:
        return None
    writers: dict[str, set[str]] = {}
    for at, entry in items(metadata, "managedFields", "metadata"):
        manager = text_at(entry, "manager", at) or "unknown"
        for label in _labels(entry, at):
            writers.setdefault(label, set()).add(manager)
    return {label: tuple(sorted(writers[label])) for label in sorted(writers)}


def _labels(entry: Object, at: str) -> Iterator[str]:
    fields = object_at(entry, "fieldsV1", at)
    below = object_at(fields, "f:metadata", f"{at}.fieldsV1")
    for name in object_at(below, "f:labels", f"{at}.fieldsV1.f:metadata"):
        label = str(name).removeprefix(_FIELD)
        if label.startswith(LABELS_OF):
            yield label
