"""A Node's metadata, as the API server and ``kubectl`` write it, turned into a ClusterNode."""

from collections.abc import Mapping
from typing import Any

from agent.cluster.node import ClusterNode
from agent.errors import DecodeError


def cluster_node(metadata: Any) -> ClusterNode:
    """Return the node that *metadata* (``.metadata`` of a Node object) tells of.

    Owners come from ``managedFields``, whose ``fieldsV1`` spells a field ``f:<name>``
    (Kubernetes API reference, ManagedFieldsEntry).

    Raises:
        DecodeError: not metadata of a Node; its path starts at *metadata*.
    """
    found = _mapping("", metadata)
    name = found.get("name")
    if not isinstance(name, str) or not name:
        raise DecodeError("name", f"expected a name, found {name!r}")
    labels = _mapping("labels", found.get("labels"))
    for key, value in labels.items():
        if not isinstance(key, str) or not isinstance(value, str):
            cure = "put label values in quotes"
            raise DecodeError(f"labels.{key}", f"expected text, found {value!r}", cure)
    return ClusterNode(name=name, labels=labels, owners=_owners(found.get("managedFields"), labels))


def _owners(managed: Any, labels: Mapping[str, str]) -> dict[str, tuple[str, ...]] | None:
    """Return the managers of each of *labels* that has any; ``None`` where nothing was told."""
    if managed is None:
        return None
    if not isinstance(managed, list):
        raise DecodeError("managedFields", f"expected a list, found {type(managed).__name__}")
    owners: dict[str, set[str]] = {}
    for position, entry in enumerate(managed):
        at = f"managedFields[{position}]"
        manager = str(_mapping(at, entry).get("manager"))
        for key in _label_fields(at, entry):
            if key in labels:
                owners.setdefault(key, set()).add(manager)
    return {key: tuple(sorted(names)) for key, names in sorted(owners.items())}


def _label_fields(at: str, entry: Mapping[str, Any]) -> list[str]:
    fields: Any = entry
    for name in ("fieldsV1", "f:metadata", "f:labels"):
        at = f"{at}.{name}"
        fields = _mapping(at, fields.get(name))
    return [str(key).removeprefix("f:") for key in fields]


def _mapping(at: str, value: Any) -> Mapping[str, Any]:
    """Return *value*, nothing for ``null``."""
    if value is None and at:
        return {}
    if not isinstance(value, Mapping):
        raise DecodeError(at, f"expected an object, found {type(value).__name__}")
    return value
