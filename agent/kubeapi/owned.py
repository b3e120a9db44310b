"""What an object's metadata says about its labels and who owns them.

Ownership is in ``metadata.managedFields``, an entry per manager, operation and subresource, whose
``fieldsV1`` spells a field ``f:<name>`` (Kubernetes API reference).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent.formats.responses import part, parts, texts

_LABELS = ("metadata", "labels")
_ANNOTATIONS = ("metadata", "annotations")


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """The labels of an object as it was read.

    Attributes:
        uid: of the object (``metadata.uid``).
        owned: keys that the field manager in question applied, and that are still there.
        others: keys that another field manager owns, too or alone.
        annotations: all of them.
        owned_annotations: keys that the field manager in question applied.
    """

    uid: str
    labels: Mapping[str, str]
    owned: frozenset[str]
    others: frozenset[str]
    annotations: Mapping[str, str]
    owned_annotations: frozenset[str]


def labelled(metadata: Mapping[str, Any], manager: str) -> Labelled:
    """Return the labels in *metadata*, and which of them *manager* owns by server-side apply.

    Raises:
        ApiUnavailable: it is no metadata.
    """
    labels, annotations = texts(metadata, "labels"), texts(metadata, "annotations")
    strangers = (one for one in _entries(metadata) if not _is_applied_by(one, manager))
    return Labelled(
        uid=str(metadata.get("uid") or ""),
        labels=labels,
        owned=owned_keys(metadata, manager, _LABELS) & labels.keys(),
        others=frozenset().union(*(field_keys(one, _LABELS) for one in strangers)) & labels.keys(),
        annotations=annotations,
        owned_annotations=owned_keys(metadata, manager, _ANNOTATIONS) & annotations.keys(),
    )


def owned_keys(metadata: Mapping[str, Any], manager: str, path: tuple[str, ...]) -> frozenset[str]:
    """Return the keys below *path* in the object that *manager* owns by server-side apply.

    Raises:
        ApiUnavailable: what tells of owners is broken.
    """
    ours = (one for one in _entries(metadata) if _is_applied_by(one, manager))
    return frozenset().union(*(field_keys(one, path) for one in ours))


def _entries(metadata: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    return parts(metadata, "managedFields")


def field_keys(entry: Mapping[str, Any], path: tuple[str, ...]) -> frozenset[str]:
    """Return the keys below *path* that an *entry* of ``managedFields`` names.

    Raises:
        ApiUnavailable: it is no such entry.
    """
    fields = part(entry, "fieldsV1")
    for name in path:
        fields = part(fields, f"f:{name}")
    return frozenset(name.removeprefix("f:") for name in fields if name != ".")


def _is_applied_by(entry: Mapping[str, Any], manager: str) -> bool:
    return (
        entry.get("manager") == manager
        and entry.get("operation") == "Apply"
        and not entry.get("subresource")
    )
