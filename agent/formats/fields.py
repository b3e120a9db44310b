"""Fields of Kubernetes objects, each read as the type that it must have."""

from collections.abc import Iterator, Mapping
from typing import Any

from agent.errors import DecodeError
from agent.model.kubernetes import quantity

# Values inside an object of the API server: what is not there, or not as expected, is unknown.


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


MILLICORES = 1000
"""Millicores in a CPU, the unit of CPU amounts in the model."""


MAX_AMOUNT = (1 << 63) - 1
"""Larger quantities count as this one (k8s.io/apimachinery ``resource.ParseQuantity``)."""


MAX_DIGITS = 64
"""Longest quantity that is read; the largest one has 19 digits."""


Object = Mapping[str, Any]


def object_at(parent: Object, field: str, at: str) -> Object:
    """Return an object field of *parent*, which is at the path *at*; an absent one is empty.

    Raises:
        DecodeError: it is something else.
    """
    value = parent.get(field)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise DecodeError(path_of(at, field), f"expected an object, found {type(value).__name__}")
    return value


def items(parent: Object, field: str, at: str) -> Iterator[tuple[str, Object]]:
    """Yield the objects of a list field, each with its own path; an absent one is empty.

    Raises:
        DecodeError: it is no list, or one of it is no object.
    """
    found = parent.get(field)
    if found is None:
        return
    if not isinstance(found, list):
        raise DecodeError(path_of(at, field), f"expected a list, found {type(found).__name__}")
    for position, item in enumerate(found):
        place = f"{path_of(at, field)}[{position}]"
        if not isinstance(item, Mapping):
            raise DecodeError(place, f"expected an object, found {type(item).__name__}")
        yield place, item


def text_at(parent: Object, field: str, at: str) -> str | None:
    """Return a text field, ``None`` where it is absent.

    Raises:
        DecodeError: it is something else.
    """
    value = parent.get(field)
    if value is None or isinstance(value, str):
        return value
    raise DecodeError(path_of(at, field), f"expected a text, found {type(value).__name__}")


def texts_at(parent: Object, field: str, at: str) -> dict[str, str]:
    """Return an object field whose values are all texts; an absent one is empty.

    Raises:
        DecodeError: it is something else.
    """
    found = object_at(parent, field, at)
    place = path_of(at, field)
    return {str(name): text_at(found, name, place) or "" for name in found}


def flag_at(parent: Object, field: str, at: str) -> bool:
    """Return whether a field is true; an absent one is not.

    Raises:
        DecodeError: it is neither true nor false.
    """
    value = parent.get(field)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise DecodeError(path_of(at, field), f"expected true or false, found {type(value).__name__}")


def count_at(parent: Object, field: str, at: str) -> int | None:
    """Return a whole number of at least zero, ``None`` where it is absent.

    Raises:
        DecodeError: it is something else.
    """
    value = parent.get(field)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_AMOUNT:
        raise DecodeError(path_of(at, field), "expected a whole number, at least 0")
    return value


def amounts(parent: Object, field: str, at: str) -> dict[str, int]:
    """Return resource → amount: CPU in millicores, everything else in its base unit.

    Raises:
        DecodeError: it is no object of quantities of at least zero.
    """
    found = object_at(parent, field, at)
    place = path_of(at, field)
    return {
        str(name): amount(value, f"{place}.{name}", is_cpu=name == "cpu")
        for name, value in found.items()
    }


def amount(value: Any, at: str, *, is_cpu: bool = False) -> int:
    """Return the quantity *value*, rounded up; of CPU in millicores.

    Raises:
        DecodeError: it is none, or negative.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise DecodeError(at, f"expected a quantity, found {type(value).__name__}")
    if isinstance(value, int) and abs(value) > MAX_AMOUNT:
        value = MAX_AMOUNT if value > 0 else -1
    text = str(value)
    if len(text) > MAX_DIGITS:
        raise DecodeError(at, f"a quantity of {len(text)} characters")
    try:
        found = quantity(text, per_unit=MILLICORES if is_cpu else 1)
    except ValueError as error:
        raise DecodeError(at, str(error)) from None
    if found < 0:
        raise DecodeError(at, f"a negative amount: {text}")
    return min(found, MAX_AMOUNT)


def path_of(at: str, field: str) -> str:
    """Return the path of *field* of the object at the path *at*."""
    return f"{at}.{field}" if at else field
