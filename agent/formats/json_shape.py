"""Typed steps into what JSON had, with the way there in each error."""

from collections.abc import Iterator, Mapping
from typing import Any

from agent.errors import DecodeError


def json_map(value: Any, path: str) -> Mapping[str, Any]:
    """Return *value* as a map; nothing is an empty one, as Go reads ``null``."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _unlike(path, "an object", value)
    return value


def json_items(value: Any, path: str) -> Iterator[tuple[Any, str]]:
    """Yield the items of a list, each with its own path; nothing is an empty one."""
    if value is None:
        return
    if not isinstance(value, list):
        raise _unlike(path, "a list", value)
    yield from ((item, f"{path}[{place}]") for place, item in enumerate(value))


def json_text(value: Any, path: str) -> str:
    """Return *value* as a text."""
    if not isinstance(value, str):
        raise _unlike(path, "a text", value)
    return value


def json_count(value: Any, path: str) -> int:
    """Return *value* as a whole number from 0 on."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise _unlike(path, "a whole number from 0 on", value)
    return value


def _unlike(path: str, wanted: str, value: Any) -> DecodeError:
    return DecodeError(path, f"expected {wanted}, found {type(value).__name__}")
