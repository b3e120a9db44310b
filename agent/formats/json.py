"""JSON from sources that may mean harm."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from agent.errors import DecodeError

# Typed steps into what JSON had, with the way there in each error.


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


MAX_CHARACTERS = 4 << 20
"""Largest text. The kubelet's checkpoint of 250 pods with 8 devices each is under 1 MiB."""


MAX_NODES = 200_000
"""Most commas and opening brackets, before anything is built: 4 MiB of ``{},`` would take 130 MiB
and three seconds. That checkpoint has 6,000, and 40,000 with 32 replicas of each GPU."""


MAX_DEPTH = 64
"""Deepest nesting; the kubelet's configuration is 6 deep, a Node object 8 with managedFields."""


def load(text: str) -> Any:
    """Return what *text* means.

    Raises:
        ValueError: not JSON, or beyond a cap. The message says what, and where.
    """
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"larger than {MAX_CHARACTERS >> 20} Mi characters")
    if sum(map(text.count, ",[{")) > MAX_NODES:
        raise ValueError(f"more than {MAX_NODES} values")
    try:
        value = json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ValueError(f"nested more than {MAX_DEPTH} deep") from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise ValueError(f"not JSON: {error.msg}: {place}") from None
    _check_depth(value)
    return value


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"not JSON: {word} is no number of it")


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return
    raise ValueError(f"nested more than {MAX_DEPTH} deep")


def _inside(value: Any) -> Any:
    """Return the lists and maps directly in *value*."""
    held = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [inner for inner in held if isinstance(inner, dict | list)]
