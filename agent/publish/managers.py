"""Which other programs write fields of an object, by its ``metadata.managedFields``."""

from collections.abc import Collection, Mapping
from typing import Any

from agent.publish.answer_parts import parts
from agent.publish.applied import FIELD_MANAGER
from agent.publish.owned import field_keys


def other_managers(
    metadata: Mapping[str, Any], fields: Collection[str], below: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Return the field managers but ours that own one of *fields* below *below*, sorted.

    Empty also where the API server leaves ``managedFields`` away.

    Raises:
        ApiUnavailable: what tells of owners is broken.
    """
    entries = parts(metadata, "managedFields")
    found = {str(one.get("manager")) for one in entries if field_keys(one, below) & set(fields)}
    return tuple(sorted(found - {FIELD_MANAGER}))
