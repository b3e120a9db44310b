"""Values inside an object of the API server: what is not there, or not as expected, is unknown."""

from collections.abc import Mapping
from typing import Any


def dig(found: Any, *path: str) -> Any:
    """Return what stands at *path* in the JSON value *found*; ``None`` where nothing does."""
    for name in path:
        if not isinstance(found, Mapping):
            return None
        found = found.get(name)
    return found


def text(found: Any, *path: str) -> str | None:
    """Return the text at *path*; ``None`` where there is none, or an empty one."""
    value = dig(found, *path)
    return value if isinstance(value, str) and value else None


def whole(found: Any, *path: str) -> int | None:
    """Return the whole number at *path*."""
    value = dig(found, *path)
    return value if type(value) is int else None  # `type`, not isinstance: True is no number here


def mappings(found: Any, *path: str) -> tuple[Mapping[str, Any], ...]:
    """Return the objects in the list at *path*."""
    value = dig(found, *path)
    return (
        tuple(one for one in value if isinstance(one, Mapping)) if isinstance(value, list) else ()
    )


def full_name(found: Any) -> str:
    """Return ``namespace/name`` of an object, or its name alone where it has no namespace."""
    name, namespace = text(found, "metadata", "name"), text(found, "metadata", "namespace")
    return f"{namespace}/{name}" if namespace else str(name)
