"""Records ⇄ JSON's own types, driven by the types of the fields.

Fields that have their default, such as ``None``, are left out. Fields that a record does not have
are dropped with a warning: they come from a newer version.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum, IntEnum
from functools import cache, partial
from itertools import repeat
from types import NoneType, UnionType
from typing import Any, TypeAlias, TypeVar, Union, cast, get_args, get_origin

from agent.errors import DecodeError
from agent.model.numa import CpuSet
from agent.model.pci import PciAddress

_Record = TypeVar("_Record")
_Reader: TypeAlias = Callable[[Any, list[str], str], Any]
"""Reads one value from JSON's types: the value, the list for warnings, and its path for those."""
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
    for field in fields(value):
        item = getattr(value, field.name)
        if field.default is MISSING or item != field.default:
            plain[field.name] = to_plain(item)
    return plain


def from_plain(record: type[_Record], plain: Any, warnings: list[str], at: str = "") -> _Record:
    """Build a *record* (a dataclass of :mod:`agent.model`) from JSON's types.

    Unknown fields are named in *warnings*, prefixed by *at*.

    Raises:
        DecodeError: a field is missing or has the wrong type; the path starts at the record.
    """
    if not isinstance(plain, dict):
        raise DecodeError("", f"expected an object, found {_describe(plain)}")
    readers = _field_readers(cast("Any", record))
    warnings.extend(f"{at}{name}: unknown field, ignored" for name in plain if name not in readers)
    arguments = {}
    for name, (read, is_required) in readers.items():
        if name in plain:
            try:
                arguments[name] = read(plain[name], warnings, f"{at}{name}.")
            except DecodeError as error:
                raise error.under(name) from None
        elif is_required:
            raise DecodeError(name, "missing")
    return record(**arguments)


@cache
def _field_readers(record: Any) -> dict[str, tuple[_Reader, bool]]:
    """Return for each field of a dataclass its reader and whether the field is required.

    A type is taken as it stands in the class, so annotations of records must not be quoted.
    """
    return {
        field.name: (
            _reader(cast("Any", field.type)),
            field.default is MISSING and field.default_factory is MISSING,
        )
        for field in fields(record)
    }


@cache
def _reader(kind: Any) -> _Reader:
    """Return the function that reads a *kind* from JSON's types; each is built once.

    A document holds thousands of values of some dozen types: what depends on the type alone is
    worked out here, and not for each value.
    """
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        (inner,) = (_reader(option) for option in get_args(kind) if option is not NoneType)
        return lambda plain, warnings, at: None if plain is None else inner(plain, warnings, at)
    if origin is tuple:
        kinds = get_args(kind)
        if kinds[-1] is Ellipsis:
            return partial(_sequence, None, repeat(_reader(kinds[0])))
        return partial(_sequence, len(kinds), [_reader(item) for item in kinds])
    if origin is Mapping:
        return partial(_mapping, _reader(get_args(kind)[1]))
    if kind in (PciAddress, CpuSet):
        return _parsed(kind.parse)
    if is_dataclass(kind):
        return partial(from_plain, cast("type[Any]", kind))
    if kind is datetime:
        return _parsed(_utc)
    if isinstance(kind, type) and issubclass(kind, IntEnum):
        return partial(_member, kind.__members__)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return partial(_member, {str(member.value): member for member in kind})
    return _text if kind is str else partial(_scalar, kind)


def _sequence(
    length: int | None, readers: Iterable[_Reader], plain: Any, warnings: list[str], at: str
) -> tuple[Any, ...]:
    if not isinstance(plain, list):
        raise DecodeError("", f"expected a list, found {_describe(plain)}")
    if length is not None and length != len(plain):
        raise DecodeError("", f"expected {length} values, found {len(plain)}")
    items = []
    for position, (read, item) in enumerate(zip(readers, plain, strict=False)):
        try:
            items.append(read(item, warnings, f"{at.rstrip('.')}[{position}]."))
        except DecodeError as error:
            raise error.under(f"[{position}]") from None
    return tuple(items)


def _mapping(read: _Reader, plain: Any, warnings: list[str], at: str) -> dict[str, Any]:
    if not isinstance(plain, dict):
        raise DecodeError("", f"expected an object, found {_describe(plain)}")
    return {
        _text(key, warnings, at): read(item, warnings, f"{at}{key}.") for key, item in plain.items()
    }


def _parsed(parse: Callable[[str], Any]) -> _Reader:
    """Return the reader of a text that *parse* reads, raising ValueError where it cannot."""

    def read(plain: Any, warnings: list[str], at: str) -> Any:
        try:
            return parse(_text(plain, warnings, at))
        except ValueError as error:
            raise DecodeError("", str(error)) from None

    return read


def _utc(text: str) -> datetime:
    with suppress(ValueError):
        time = datetime.fromisoformat(text)
        if time.strftime(_TIME) == text:
            return time
    # Only what is written in another way gets here: the first call costs 15 ms.
    return datetime.strptime(text, _TIME).replace(tzinfo=UTC)


def _member(members: Mapping[str, Any], plain: Any, _warnings: list[str], _at: str) -> Any:
    if not isinstance(plain, str) or plain not in members:
        raise DecodeError("", f"expected one of {', '.join(members)}, found {_describe(plain)}")
    return members[plain]


def _text(plain: Any, warnings: list[str], at: str) -> str:
    text: str = _scalar(str, plain, warnings, at)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:  # half of a surrogate pair, which JSON can spell, but not print
            raise DecodeError("", f"not Unicode text: {text!r}") from None
    return text


def _scalar(kind: Any, plain: Any, _warnings: list[str], _at: str) -> Any:
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
    text = json.dumps(plain)
    return text if len(text) <= 40 else text[:37] + "..."
