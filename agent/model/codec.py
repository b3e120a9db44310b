"""Snapshot ⇄ JSON: one versioned document, driven by the records' own types.

Fields that are ``None`` or empty are left out, so files stay readable and
``encode(decode(text)) == text`` for every text that :func:`encode` wrote. Fields from a
newer version are dropped with a warning. Size and depth are capped: a snapshot may come
from a stranger's e-mail.
"""

import json
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum, IntEnum
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from agent.errors import DecodeError
from agent.model.numa import CpuSet
from agent.model.pci import PciAddress
from agent.model.snapshot import SCHEMA, Snapshot

MAX_BYTES = 16 * 1024 * 1024
"""Largest document accepted; a 16-GPU node with 500 pods is under 1 MiB."""

MAX_DEPTH = 20
"""Deepest nesting accepted; our own records go 6 deep."""

_Record = TypeVar("_Record")
_CURE = "capture the node again with `nodetopo capture`, or correct the file"


@dataclass(frozen=True, slots=True)
class Decoded:
    """A snapshot read from a document, and what of the document was not understood."""

    snapshot: Snapshot
    warnings: tuple[str, ...]


def encode(snapshot: Snapshot) -> str:
    """Return the JSON document of *snapshot*: stable field order, one trailing newline."""
    return json.dumps({"schema": SCHEMA, **to_plain(snapshot)}, indent=1, ensure_ascii=False) + "\n"


def decode(text: str) -> Decoded:
    """Read a document written by :func:`encode`, by this version or a newer one.

    Raises:
        DecodeError: not such a document; its path names the place.
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
    """Parse JSON with the caps on size and depth.

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


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


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


def _check_references(snapshot: Snapshot) -> None:
    """Hold what every reader relies on: GPU indices are unique and ascending, links have a GPU."""
    indices = [gpu.index for gpu in snapshot.gpus]
    for position, (index, gpu) in enumerate(zip(indices, snapshot.gpus, strict=True)):
        if position and index <= indices[position - 1]:
            raise DecodeError(f"gpus[{position}].index", "indices must ascend", _CURE)
        if gpu.uuid is not None and any(g.uuid == gpu.uuid for g in snapshot.gpus[:position]):
            raise DecodeError(f"gpus[{position}].uuid", f"a second GPU is {gpu.uuid!r}", _CURE)
    for position, link in enumerate(snapshot.nvlinks or ()):
        if link.gpu not in indices:
            raise DecodeError(f"nvlinks[{position}].gpu", f"no GPU has index {link.gpu}", _CURE)


def to_plain(value: Any) -> Any:
    """Return *value* in JSON's own types; a record becomes an object without empty fields."""
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
            return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
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


@cache
def _hints(record: Any) -> dict[str, Any]:
    return get_type_hints(record)


def from_plain(record: type[_Record], plain: Any, warnings: list[str], at: str = "") -> _Record:
    """Build a *record* (a dataclass of :mod:`agent.model`) from JSON's types.

    Unknown fields are named in *warnings*, prefixed by *at*.

    Raises:
        DecodeError: a field is missing or has the wrong type; the path starts at the record.
    """
    if not isinstance(plain, dict):
        raise DecodeError("", f"expected an object, found {_describe(plain)}")
    hints = _hints(cast("Any", record))
    known = {field.name: field for field in fields(record)}  # type: ignore[arg-type]
    warnings.extend(f"{at}{name}: unknown field, ignored" for name in plain if name not in known)
    arguments = {}
    for name, field in known.items():
        if name in plain:
            try:
                arguments[name] = _value(hints[name], plain[name], warnings, f"{at}{name}.")
            except DecodeError as error:
                raise error.under(name) from None
        elif field.default is MISSING and field.default_factory is MISSING:
            raise DecodeError(name, "missing")
    return record(**arguments)


def _value(kind: Any, plain: Any, warnings: list[str], at: str) -> Any:
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        (inner,) = (option for option in get_args(kind) if option is not NoneType)
        return None if plain is None else _value(inner, plain, warnings, at)
    if origin is tuple:
        return _sequence(get_args(kind), plain, warnings, at)
    if origin is Mapping:
        return _mapping(get_args(kind)[1], plain, warnings, at)
    if is_dataclass(kind) and kind not in (PciAddress, CpuSet):
        return from_plain(cast("type[Any]", kind), plain, warnings, at)
    return _scalar(kind, plain)


def _sequence(kinds: tuple[Any, ...], plain: Any, warnings: list[str], at: str) -> tuple[Any, ...]:
    if not isinstance(plain, list):
        raise DecodeError("", f"expected a list, found {_describe(plain)}")
    is_open = kinds[-1] is Ellipsis
    if not is_open and len(kinds) != len(plain):
        raise DecodeError("", f"expected {len(kinds)} values, found {len(plain)}")
    items = []
    for position, item in enumerate(plain):
        try:
            kind = kinds[0] if is_open else kinds[position]
            items.append(_value(kind, item, warnings, f"{at.rstrip('.')}[{position}]."))
        except DecodeError as error:
            raise error.under(f"[{position}]") from None
    return tuple(items)


def _mapping(kind: Any, plain: Any, warnings: list[str], at: str) -> dict[str, Any]:
    if not isinstance(plain, dict):
        raise DecodeError("", f"expected an object, found {_describe(plain)}")
    return {
        _scalar(str, key): _value(kind, item, warnings, f"{at}{key}.")
        for key, item in plain.items()
    }


def _scalar(kind: Any, plain: Any) -> Any:
    if kind in (PciAddress, CpuSet):
        return _parsed(kind.parse, _scalar(str, plain))
    if kind is datetime:
        return _parsed(_utc, _scalar(str, plain))
    if isinstance(kind, type) and issubclass(kind, IntEnum):
        return _member(kind.__members__, plain)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _member({str(member.value): member for member in kind}, plain)
    if kind is float and type(plain) is int:
        return _parsed(_float, plain)
    if type(plain) is not kind:  # `type`, not isinstance: True is no number here
        raise DecodeError("", f"expected {_NAMES[kind]}, found {_describe(plain)}")
    return _parsed(_text, plain) if kind is str else plain


def _parsed(parse: Any, plain: Any) -> Any:
    try:
        return parse(plain)
    except ValueError as error:
        raise DecodeError("", str(error)) from None


def _text(plain: str) -> str:
    try:
        plain.encode()
    except UnicodeEncodeError:  # JSON can spell half of a surrogate pair, which cannot be printed
        raise ValueError(f"not Unicode text: {plain!r}") from None
    return plain


def _float(plain: int) -> float:
    try:
        return float(plain)
    except OverflowError as error:
        raise ValueError(str(error)) from None


def _member(members: Mapping[str, Any], plain: Any) -> Any:
    if not isinstance(plain, str) or plain not in members:
        raise DecodeError("", f"expected one of {', '.join(members)}, found {_describe(plain)}")
    return members[plain]


def _utc(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)


_NAMES = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}


def _describe(plain: Any) -> str:
    text = json.dumps(plain)
    return text if len(text) <= 40 else text[:37] + "..."
