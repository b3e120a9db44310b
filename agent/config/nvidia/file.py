"""NVIDIA's configuration file, ``version: v1``.

It is JSON to NVIDIA's device plugin, so keys of its fixed sections count in any case of letters,
and of a repeated key the last; what it ignores silently is a warning here.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agent.config.document import Value
from agent.config.nvidia import shapes, text
from agent.config.nvidia.names import BY_PATH, Kind, Name
from agent.config.origin import Given, Place

VERSION = "v1"
OURS = "nodetopo"
"""The key of NVIDIA's file below which our own settings stand; NVIDIA's ignores it."""

SECTIONS = ("version", "flags", "resources", "sharing", "imex", OURS)

_MPS_CURE = "use sharing.timeSlicing, or leave these nodes to NVIDIA's device plugin"


@dataclass(frozen=True, slots=True, kw_only=True)
class NvidiaFile:
    """What NVIDIA's file says.

    Attributes:
        given: by NVIDIA's name.
        ours: what stands below :data:`OURS`; ``None`` for nothing.
        warnings: for a person, a sentence each.
    """

    given: Mapping[str, Given]
    ours: Value | None
    warnings: tuple[str, ...]


def is_nvidias(root: Value) -> bool:
    """Tell whether the file has one of NVIDIA's sections; we have no such keys."""
    return any(key.lower() in SECTIONS for key in root.entries())


def read(root: Value, place: Place = Place.FILE) -> NvidiaFile:
    """Read a file for which :func:`is_nvidias` holds; *place* is how strong it is.

    Raises:
        InputError: another version, or what NVIDIA's device plugin would not take.
    """
    warnings: list[str] = list(root.repeated())
    sections = _section(root, SECTIONS, warnings)
    _check_version(sections.get("version"))
    given: dict[str, Given] = {}
    for name, value in _values(sections, warnings):
        found = _read(name, value, warnings)
        if found is not None:
            given[name.name] = Given(value=found, origin=value.origin, place=place)
    ours = sections.get(OURS)
    return NvidiaFile(
        given=given,
        ours=None if ours is None or ours.is_null() else ours,
        warnings=tuple(dict.fromkeys(warnings)),
    )


def _check_version(value: Value | None) -> None:
    found = None if value is None else value.scalar()
    if value is not None and found not in (None, "", VERSION):
        value.refuse(f"unknown version {found!r}", f"write `version: {VERSION}`")


def _values(sections: Mapping[str, Value], warnings: list[str]) -> Iterator[tuple[Name, Value]]:
    """Yield every setting that has a value in the sections of NVIDIA's."""
    waiting = [(name, value) for name, value in sections.items() if name not in ("version", OURS)]
    for path, value in waiting:
        if path in BY_PATH:
            yield BY_PATH[path], value
        elif not value.is_null():
            warnings += value.repeated()
            known = _section(value, _children(path), warnings)
            waiting += [(f"{path}.{key}", inner) for key, inner in known.items()]


def _children(path: str) -> tuple[str, ...]:
    depth = path.count(".") + 1
    below = (found.split(".")[depth] for found in BY_PATH if found.startswith(f"{path}."))
    return tuple(dict.fromkeys(below))


def _section(value: Value, known: tuple[str, ...], warnings: list[str]) -> dict[str, Value]:
    """Return the values of a mapping by the *known* key that each is meant for."""
    meant = {key.lower(): key for key in known}
    found: dict[str, Value] = {}
    for key, inner in value.entries().items():
        if key.lower() in meant:
            found[meant[key.lower()]] = inner
        else:
            warnings.append(shapes.unknown(inner, key, known))
    return found


def _read(name: Name, value: Value, warnings: list[str]) -> Any:
    """Return the value of *name*; ``None`` where none is set."""
    if name.kind is Kind.TIME_SLICING:  # to NVIDIA's, `timeSlicing: null` is one without resources
        return shapes.time_slicing(value, warnings.append)
    if value.is_null():
        return None
    if name.kind is Kind.MPS:
        value.refuse("MPS is not supported", _MPS_CURE)
    match name.kind:
        case Kind.RESOURCES:
            return shapes.resources(value, warnings.append) or None
        case Kind.SWITCH:
            return shapes.switch(value)
        case _:
            return _checked(name, value)


def _checked(name: Name, value: Value) -> Any:
    try:
        match name.kind:
            case Kind.WORDS:
                return _words(name, value)
            case Kind.NUMBERS:
                return text.channels(tuple(str(item.scalar()) for item in value.items()))
            case Kind.DURATION:
                return _duration(value)
            case _:
                return text.read(name, _text(value))
    except ValueError as error:
        value.refuse(f"{value.shown()} is {error}")


def _text(value: Value) -> str:
    """Return a text as NVIDIA's YAML has it: numbers and switches are texts where one is meant."""
    found = value.scalar()
    return str(found).lower() if isinstance(found, bool) else str(value.node.value)


def _words(name: Name, value: Value) -> tuple[str, ...]:
    """Return a word, or a list of them; here NVIDIA's takes no numbers for texts."""
    items = value.items() if value.is_list() else [value]
    found: list[str] = []
    for item in items:
        word = item.scalar()
        if not isinstance(word, str):
            item.expected("a text")
        try:
            found += text.words(name, (word,))
        except ValueError as error:
            item.refuse(f"{item.shown()} is {error}")
    return text.words(name, tuple(found))


def _duration(value: Value) -> str:
    """Return a duration; a bare number is nanoseconds (api/config/v1/duration.go)."""
    found = value.scalar()
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    return f"{found:g}ns" if is_number else text.duration(_text(value))
