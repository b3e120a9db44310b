"""Which other programs write fields of an object, by its ``metadata.managedFields``."""

from collections.abc import Collection, Mapping
from typing import Any

from agent.publish.answer_parts import part, parts
from agent.publish.applied import FIELD_MANAGER


def other_managers(
    metadata: Mapping[str, Any], fields: Collection[str], below: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Return the field managers but ours that own one of *fields* below *below*, sorted.

    Empty also where the API server leaves ``managedFields`` away.

    Raises:
        ApiUnavailable: what tells of owners is broken.
    """
    entries = parts(metadata, "managedFields")
    found = {str(one.get("manager")) for one in entries if _keys(one, below) & set(fields)}
    return tuple(sorted(found - {FIELD_MANAGER}))


def _keys(entry: Mapping[str, Any], below: tuple[str, ...]) -> frozenset[str]:
    fields = part(entry, "fieldsV1")
    for name in below:
        fields = part(fields, f"f:{name}")
    return frozenset(name.removeprefix("f:") for name in fields)
