"""The parts of what the API server said, as the types that they are to have.

What stands between may answer with anything, and a loop that stumbles over it would take the
whole program along.
"""

from collections.abc import Mapping
from typing import Any

from agent.errors import ApiUnavailable

_CURE = "is there a proxy in between? It is tried again later"


def part(whole: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the object *name* of *whole*, empty where there is none.

    Raises:
        ApiUnavailable: it is something else.
    """
    found = whole.get(name) or {}
    if not isinstance(found, dict):
        raise _broken(name, "no object")
    return found


def parts(whole: Mapping[str, Any], name: str) -> tuple[Mapping[str, Any], ...]:
    """Return the objects that *name* of *whole* lists, none where there is no such list.

    Raises:
        ApiUnavailable: it is something else.
    """
    found = whole.get(name) or []
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise _broken(name, "no list of objects")
    return tuple(found)


def texts(whole: Mapping[str, Any], name: str) -> Mapping[str, str]:
    """Return the object *name* of *whole*, such as labels, all of whose values are texts.

    Raises:
        ApiUnavailable: it is something else.
    """
    found = part(whole, name)
    for key, value in found.items():
        if not isinstance(value, str):
            raise _broken(f"{name}.{key}", "no text")
    return found


def _broken(name: str, problem: str) -> ApiUnavailable:
    return ApiUnavailable(f"the answer of the API server is broken: {name} is {problem}", _CURE)
