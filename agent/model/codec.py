"""Snapshot ⇄ JSON: one versioned document, driven by the types of the records.

Fields that have their default, such as ``None``, are left out, so files stay readable and
``encode(decode(text)) == text`` for every text that :func:`encode` wrote. Fields of a newer
version are dropped with a warning. Size and depth are limited: a snapshot may come from a
stranger's e-mail.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum, IntEnum
from functools import cache, partial
from itertools import repeat
from types import NoneType, UnionType
from typing import Any, TypeAlias, TypeVar, Union, cast, get_args, get_origin

from agent.errors import DecodeError
from agent.model.numa import CpuSet
from agent.model.pci import PciAddress
from agent.model.snapshot import SCHEMA, Snapshot

MAX_BYTES = 16 * 1024 * 1024
"""Largest document accepted; a 16-GPU node with 500 pods is under 1 MiB."""

MAX_DEPTH = 20
"""Deepest nesting accepted; our own records nest 6 deep."""

_Record = TypeVar("_Record")
_Reader: TypeAlias = Callable[[Any, list[str], str], Any]
"""Reads one value from JSON's types: the value, the list for warnings, and its path for those."""
_TIME = "%Y-%m-%dT%H:%M:%SZ"
"""How times are written, always in UTC."""
_CURE = "capture the node again with `nodetopo capture`, or correct the file"


@dataclass(frozen=True, slots=True)
class Decoded:
    """A snapshot read from a document, and a warning for each field that is not known."""

    snapshot: Snapshot
    warnings: tuple[str, ...]


def encode(snapshot: Snapshot) -> str:
    """Return the JSON document of *snapshot*, its fields in fixed order, with a final newline."""
    return json.dumps({"schema": SCHEMA, **to_plain(snapshot)}, indent=1, ensure_ascii=False) + "\n"


def decode(text: str) -> Decoded:
    """Read a document written by :func:`encode`, by this version or a newer one.

    Raises:
        DecodeError: *text* is not such a document; the error's path names the place.
    """
    document = load_json(text)
    if not isinstance(document, dict):
        raise DecodeError("", "not a snapshot: the document is not a JSON object", _CURE)
    schema = document.pop("schema", None)
    if schema != SCHEMA:
        raise DecodeError("schema", f"expected {SCHEMA!r}, found {schema!r}", _CURE)
    warnings: list[str] = []
    try:
        snapshot = from_plain(Snapshot, document, warnings)
    except DecodeError as error:
        raise DecodeError(error.path, error.problem, _CURE) from None
    _check_references(snapshot)
    return Decoded(snapshot, tuple(warnings))


def load_json(text: str) -> Any:
    """Parse JSON of limited size and depth.

    Raises:
        DecodeError: too large, too deep, or not JSON.
    """
    if len(text) > MAX_BYTES:
        raise DecodeError("", f"larger than {MAX_BYTES >> 20} MiB", _CURE)
    try:
        document = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:  # a number of 4300 digits is a ValueError
        raise DecodeError("", f"not JSON: {error}", _CURE) from None
    _check_depth(document)
    return document


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


def _check_references(snapshot: Snapshot) -> None:
    """Check what every reader relies on: GPU indices ascend, UUIDs differ, links have a GPU."""
    indices = [gpu.index for gpu in snapshot.gpus]
    for position, (index, gpu) in enumerate(zip(indices, snapshot.gpus, strict=True)):
        if position and index <= indices[position - 1]:
            raise DecodeError(f"gpus[{position}].index", "indices must ascend", _CURE)
        if gpu.uuid is not None and any(g.uuid == gpu.uuid for g in snapshot.gpus[:position]):
            raise DecodeError(f"gpus[{position}].uuid", f"a second GPU is {gpu.uuid!r}", _CURE)
    for position, link in enumerate(snapshot.nvlinks or ()):
        if link.gpu not in indices:
            raise DecodeError(f"nvlinks[{position}].gpu", f"no GPU has index {link.gpu}", _CURE)


def _check_depth(document: Any) -> None:
    level = [document]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for value in level
            if isinstance(value, dict | list)
            for child in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return
    raise DecodeError("", f"nested deeper than {MAX_DEPTH} levels", _CURE)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


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
