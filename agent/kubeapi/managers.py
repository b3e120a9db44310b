"""Which other programs write fields of an object, by its ``metadata.managedFields``."""

from collections.abc import Collection, Mapping
from typing import Any

from agent.formats.responses import parts
from agent.kubeapi.apply import FIELD_MANAGER
from agent.kubeapi.owned import field_keys


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
