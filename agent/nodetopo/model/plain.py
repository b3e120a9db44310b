"""Records ⇄ JSON's own types, driven by the types of the fields.

Fields that have their default, such as ``None``, are left out. Fields that a record does not have
are dropped with a warning: they come from a newer version.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from enum import Enum, IntEnum
from functools import cache, lru_cache, partial
from itertools import repeat
from math import isfinite
from types import NoneType, UnionType
from typing import Annotated, Any, TypeAlias, TypeVar, Union, cast, get_args, get_origin

from msgspec import NODEFAULT, Struct, field
from msgspec.structs import fields

from nodetopo.errors import DecodeError
from nodetopo.model.limits import (
    MAX_CHARACTERS,
    MAX_ITEMS,
    MAX_LISTED_CPUS,
    MAX_NUMBER,
    MAX_UINT64,
    Count,
    Range,
)
from nodetopo.model.numa import CpuSet
from nodetopo.model.pci import PciAddress

_Record = TypeVar("_Record")


class _Reading(Struct):
    """One document while it is read."""

    warnings: list[str]
    is_bounded: bool  # numbers and sizes have limits
    # The CPU lists so far; equal ones are one object.
    lists: dict[str, CpuSet] = field(default_factory=dict)
    listed: int = 0  # CPUs in them


_Reader: TypeAlias = Callable[[Any, _Reading, str], Any]
"""Reads one value from JSON's types: the value, the document, and the value's path for warnings."""
_TIME = "%Y-%m-%dT%H:%M:%SZ"
"""How times are written, always in UTC."""


def to_plain(value: Any) -> Any:
    """Return *value* in JSON's own types; a record becomes an object without default fields."""
    match value:
        case None | bool() | int() | float() | str() if not isinstance(value, Enum):
            return value
        case IntEnum():
            return value.name
        case Enum():
            return value.value
        case PciAddress() | CpuSet():
            return str(value)
        case datetime():
            return value.astimezone(UTC).strftime(_TIME)
        case Mapping():
            return {str(key): to_plain(item) for key, item in value.items()}
        case tuple() | list():
            return [to_plain(item) for item in value]
    plain = {}
    kind: type[Struct] = type(value)
    for name, default in _defaults(kind).items():
        item = getattr(value, name)
        if default is NODEFAULT or item != default:
            plain[name] = to_plain(item)
    return plain


@cache
def _defaults(record: type[Struct]) -> dict[str, Any]:
    return {each.name: each.default for each in fields(record)}


def from_plain(
    record: type[_Record],
    plain: Any,
    warnings: list[str],
    at: str = "",
    *,
    is_bounded: bool = True,
) -> _Record:
    """Build a *record* (a class of :mod:`nodetopo.model`) from JSON's types.

    Unknown fields are named in *warnings*, prefixed by *at*.

    Args:
        is_bounded: whether the limits of :mod:`nodetopo.model.limits` hold; without them, numbers
            are what hardware said a moment ago, whatever they are.

    Raises:
        DecodeError: a field is missing, has the wrong type or is beyond its limits; the path starts
            at the record.
    """
    return cast("_Record", _record(record, plain, _Reading(warnings, is_bounded), at))


def _record(record: Any, plain: Any, reading: _Reading, at: str) -> Any:
    if not isinstance(plain, dict):
        raise DecodeError("", f"expected an object, found {_describe(plain)}")
    readers = _field_readers(record)
    reading.warnings.extend(
        f"{at}{name}: unknown field, ignored" for name in plain if name not in readers
    )
    arguments = {}
    for name, (read, is_required) in readers.items():
        if name in plain:
            try:
                arguments[name] = read(plain[name], reading, f"{at}{name}.")
            except DecodeError as error:
                raise error.under(name) from None
        elif is_required:
            raise DecodeError(name, "missing")
    return record(**arguments)


@cache
def _field_readers(record: Any) -> dict[str, tuple[_Reader, bool]]:
    """Return for each field of a record its reader and whether the field is required.

    A type is taken as it stands in the class, so annotations of records must not be quoted.
    """
    return {
        each.name: (
            _reader(cast("Any", each.type)),
            each.required,
        )
        for each in fields(record)
    }


@cache
def _reader(kind: Any) -> _Reader:
    """Return the function that reads a *kind* from JSON's types; each is built once.

    A document holds thousands of values of some dozen types: what depends on the type alone is
    worked out here, and not for each value.
    """
    limit: Any = None
    if get_origin(kind) is Annotated:
        kind, limit = get_args(kind)
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        (inner,) = (_reader(option) for option in get_args(kind) if option is not NoneType)
        return lambda plain, reading, at: None if plain is None else inner(plain, reading, at)
    if origin is tuple:
        kinds = get_args(kind)
        if kinds[-1] is Ellipsis:
            return partial(_sequence, limit or Count(0, MAX_ITEMS), repeat(_reader(kinds[0])))
        exact = Count(len(kinds), len(kinds))
        return partial(_sequence, exact, [_reader(item) for item in kinds])
    if origin is Mapping:
        return partial(_mapping, _reader(get_args(kind)[1]))
    if kind is CpuSet:
        return _cpus
    if kind is PciAddress:
        return _parsed(_address)
    if isinstance(kind, type) and issubclass(kind, Struct):
        return partial(_record, kind)
    if kind is datetime:
        return _parsed(_utc)
    if isinstance(kind, type) and issubclass(kind, IntEnum):
        return partial(_member, kind.__members__)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return partial(_member, {str(member.value): member for member in kind})
    if kind is int:
        return partial(_whole, limit or Range(0, MAX_UINT64))
    if kind is float:
        return _number
    return _text if kind is str else partial(_scalar, kind)


def _sequence(
    count: Count, readers: Iterable[_Reader], plain: Any, reading: _Reading, at: str
) -> tuple[Any, ...]:
    if not isinstance(plain, list):
        raise DecodeError("", f"expected a list, found {_describe(plain)}")
    if len(plain) < count.least or (
        len(plain) > count.most and (reading.is_bounded or count.least == count.most)
    ):
        if count.least == count.most:
            raise DecodeError("", f"expected {count.most} values, found {len(plain)}")
        problem = f"expected {count.least} to {count.most} items, found {len(plain)}"
        raise DecodeError("", problem)
    items = []
    for position, (read, item) in enumerate(zip(readers, plain, strict=False)):
        try:
            items.append(read(item, reading, f"{at.rstrip('.')}[{position}]."))
        except DecodeError as error:
            raise error.under(f"[{position}]") from None
    return tuple(items)


def _mapping(read: _Reader, plain: Any, reading: _Reading, at: str) -> dict[str, Any]:
    if not isinstance(plain, dict):
        raise DecodeError("", f"expected an object, found {_describe(plain)}")
    if reading.is_bounded and len(plain) > MAX_ITEMS:
        raise DecodeError("", f"expected at most {MAX_ITEMS} fields, found {len(plain)}")
    return {
        _text(key, reading, at): read(item, reading, f"{at}{key}.") for key, item in plain.items()
    }


def _parsed(parse: Callable[[str], Any]) -> _Reader:
    """Return the reader of a text that *parse* reads, raising ValueError where it cannot."""

    def read(plain: Any, reading: _Reading, at: str) -> Any:
        try:
            return parse(_text(plain, reading, at))
        except ValueError as error:
            raise DecodeError("", str(error)) from None

    return read


_address = lru_cache(maxsize=4096)(PciAddress.parse)
"""Bridges stand on the paths of many devices: one object for each compares faster, too."""


def _cpus(plain: Any, reading: _Reading, at: str) -> CpuSet:
    text = _text(plain, reading, at)
    if text not in reading.lists:
        try:
            cpus = CpuSet.parse(text)
        except ValueError as error:
            raise DecodeError("", str(error)) from None
        reading.listed += len(cpus)
        if reading.is_bounded and reading.listed > MAX_LISTED_CPUS:
            raise DecodeError("", f"more than {MAX_LISTED_CPUS} CPUs in the lists up to here")
        reading.lists[text] = cpus
    return reading.lists[text]


def _utc(text: str) -> datetime:
    with suppress(ValueError):
        time = datetime.fromisoformat(text)
        if time.strftime(_TIME) == text:
            return time
    # Only other notations get here: the first call costs 15 ms.
    return datetime.strptime(text, _TIME).replace(tzinfo=UTC)


def _member(members: Mapping[str, Any], plain: Any, _reading: _Reading, _at: str) -> Any:
    if not isinstance(plain, str) or plain not in members:
        raise DecodeError("", f"expected one of {', '.join(members)}, found {_describe(plain)}")
    return members[plain]


def _text(plain: Any, reading: _Reading, at: str) -> str:
    text: str = _scalar(str, plain, reading, at)
    if reading.is_bounded and len(text) > MAX_CHARACTERS:
        raise DecodeError("", f"a text of {len(text)} characters, {_describe(text)}")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:  # half of a surrogate pair, which JSON can spell, but not print
            raise DecodeError("", f"not Unicode text: {text[:40]!r}") from None
    return text


def _whole(allowed: Range, plain: Any, reading: _Reading, at: str) -> int:
    value: int = _scalar(int, plain, reading, at)
    if reading.is_bounded and not allowed.low <= value <= allowed.high:
        limits = f"from {allowed.low} to {allowed.high}"
        raise DecodeError("", f"expected a whole number {limits}, found {_describe(value)}")
    return value


def _number(plain: Any, reading: _Reading, at: str) -> float:
    value: float = _scalar(float, plain, reading, at)
    if not isfinite(value) or (reading.is_bounded and abs(value) > MAX_NUMBER):
        limits = f"from {-MAX_NUMBER:g} to {MAX_NUMBER:g}"
        raise DecodeError("", f"expected a number {limits}, found {_describe(plain)}")
    return value


def _scalar(kind: Any, plain: Any, _reading: _Reading, _at: str) -> Any:
    if type(plain) is kind:  # `type`, not isinstance: True is not a number here
        return plain
    if kind is float and type(plain) is int:
        try:
            return float(plain)
        except OverflowError as error:
            raise DecodeError("", str(error)) from None
    raise DecodeError("", f"expected {_NAMES[kind]}, found {_describe(plain)}")


_NAMES = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}


def _describe(plain: Any) -> str:
    text = json.dumps(plain[:40] if isinstance(plain, str) else plain)
    return text if len(text) <= 40 else text[:37] + "..."
