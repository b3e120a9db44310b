"""Fields of untyped documents: JSON or YAML objects such as those of Kubernetes.

Three ways to read them:

- :func:`dig`, :func:`text`, :func:`whole` and :func:`mappings` return None, or nothing, for what
  is absent or of another type;
- ``…_at`` functions, :func:`items` and :func:`amounts` read a field of an object and raise a
  DecodeError with its path unless it is absent or of the right type;
- ``as_…`` functions do the same with a value at hand.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from nodetopo.errors import DecodeError
from nodetopo.formats.placeholders import unfilled
from nodetopo.model.kubernetes import MILLICORES, quantity

Object = Mapping[str, Any]

MAX_AMOUNT = (1 << 63) - 1
"""Larger quantities count as this one (k8s.io/apimachinery ``resource.ParseQuantity``)."""

MAX_DIGITS = 64
"""Longest quantity in characters that is read; the largest one has 19 digits."""


def dig(value: Any, *path: str) -> Any:
    """Return the value at *path* in a JSON value; None if there is none."""
    for name in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


def text(value: Any, *path: str) -> str | None:
    """Return the text at *path*; None if there is none, or an empty one."""
    inner = dig(value, *path)
    return inner if isinstance(inner, str) and inner else None


def whole(value: Any, *path: str) -> int | None:
    """Return the integer at *path*; None if there is none."""
    inner = dig(value, *path)
    return inner if type(inner) is int else None  # `type`, not isinstance: True is no number here


def mappings(value: Any, *path: str) -> tuple[Object, ...]:
    """Return the objects in the list at *path*, without items of other types."""
    inner = dig(value, *path)
    return tuple(it for it in inner if isinstance(it, Mapping)) if isinstance(inner, list) else ()


def full_name(value: Any) -> str:
    """Return ``namespace/name`` of a Kubernetes object, or its name where it has no namespace."""
    name, namespace = text(value, "metadata", "name"), text(value, "metadata", "namespace")
    return f"{namespace}/{name}" if namespace else str(name)


def object_at(parent: Object, field: str, at: str) -> Object:
    """Return an object field of *parent*, which is at the path *at*; empty where it is absent."""
    return as_object(parent.get(field), path_of(at, field))


def items(parent: Object, field: str, at: str) -> Iterator[tuple[str, Object]]:
    """Yield the path of each object of a list field and the object; nothing where it is absent."""
    for item, path in as_items(parent.get(field), path_of(at, field)):
        if not isinstance(item, Mapping):
            raise unexpected(path, "an object", item)
        yield path, item


def text_at(parent: Object, field: str, at: str) -> str | None:
    """Return a text field; None where it is absent."""
    value = parent.get(field)
    return None if value is None else as_text(value, path_of(at, field))


def texts_at(parent: Object, field: str, at: str) -> dict[str, str]:
    """Return an object field whose values are all texts; empty where it is absent."""
    inner, path = object_at(parent, field, at), path_of(at, field)
    return {str(name): text_at(inner, name, path) or "" for name in inner}


def flag_at(parent: Object, field: str, at: str) -> bool:
    """Return whether a boolean field is true; False where it is absent."""
    value = parent.get(field)
    return False if value is None else as_flag(value, path_of(at, field))


def count_at(parent: Object, field: str, at: str) -> int | None:
    """Return an integer field from 0 to :data:`MAX_AMOUNT`; None where it is absent."""
    value = parent.get(field)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_AMOUNT:
        path = path_of(at, field)
        raise unfilled(path, value) or DecodeError(path, "expected a whole number, at least 0")
    return value


def amounts(parent: Object, field: str, at: str) -> dict[str, int]:
    """Return resource → amount: CPU in millicores, everything else in its base unit.

    None is an amount of zero, as Go reads ``null``.
    """
    inner, path = object_at(parent, field, at), path_of(at, field)
    return {
        str(name): 0 if value is None else amount(value, f"{path}.{name}", is_cpu=name == "cpu")
        for name, value in inner.items()
    }


def amount(value: Any, at: str, *, is_cpu: bool = False) -> int:
    """Return the quantity *value*, rounded up; of CPU in millicores."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise unexpected(at, "a quantity", value)
    if isinstance(value, int) and abs(value) > MAX_AMOUNT:
        value = MAX_AMOUNT if value > 0 else -1
    text = str(value)
    if len(text) > MAX_DIGITS:
        raise DecodeError(at, f"a quantity of {len(text)} characters")
    try:
        parsed = quantity(text, per_unit=MILLICORES if is_cpu else 1)
    except ValueError as error:
        raise unfilled(at, value) or DecodeError(at, str(error)) from None
    if parsed < 0:
        raise DecodeError(at, f"a negative amount: {text}")
    return min(parsed, MAX_AMOUNT)


def as_object(value: Any, path: str) -> Object:
    """Return *value* as an object; None is an empty one, as Go reads ``null``."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise unexpected(path, "an object", value)
    return value


def as_items(value: Any, path: str) -> Iterator[tuple[Any, str]]:
    """Yield the items of a list, each with its own path; None is an empty one."""
    if value is None:
        return
    if not isinstance(value, list):
        raise unexpected(path, "a list", value)
    yield from ((item, f"{path}[{position}]") for position, item in enumerate(value))


def as_text(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise unexpected(path, "a text", value)
    return value


def as_flag(value: Any, path: str) -> bool:
    if not isinstance(value, bool):
        raise unexpected(path, "true or false", value)
    return value


def as_count(value: Any, path: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise unexpected(path, "a whole number from 0 on", value)
    return value


def unexpected(path: str, expected: str, value: Any) -> DecodeError:
    problem = f"expected {expected}, found {type(value).__name__}"
    return unfilled(path, value) or DecodeError(path, problem)


def path_of(at: str, field: str) -> str:
    return f"{at}.{field}" if at else field
