"""What an object's metadata says about its labels and who owns them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelled:
    """The labels of an object as it was read.

    Attributes:
        uid, version: of the object (``metadata.uid``, ``metadata.resourceVersion``).
        owned: keys that the field manager in question applied, and that are still there.
    """

    uid: str
    version: str
    labels: Mapping[str, str]
    owned: frozenset[str]


def labelled(body: Mapping[str, Any], manager: str) -> Labelled:
    """Return the labels in *body*, and which of them *manager* owns by server-side apply.

    Ownership is in ``metadata.managedFields``, an entry per manager, operation and
    subresource, whose ``fieldsV1`` spells a field ``f:<name>`` (Kubernetes API reference).
    """
    metadata = body.get("metadata") or {}
    labels = metadata.get("labels") or {}
    applied = [
        (((entry.get("fieldsV1") or {}).get("f:metadata") or {}).get("f:labels") or {})
        for entry in metadata.get("managedFields") or ()
        if entry.get("manager") == manager
        and entry.get("operation") == "Apply"
        and not entry.get("subresource")
    ]
    fields = {name.removeprefix("f:") for names in applied for name in names if name != "."}
    return Labelled(
        uid=metadata.get("uid", ""),
        version=metadata.get("resourceVersion", ""),
        labels=labels,
        owned=frozenset(fields & labels.keys()),
    )
