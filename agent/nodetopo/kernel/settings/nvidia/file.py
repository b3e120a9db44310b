"""NVIDIA's settings from its three places: command line over environment over file.

The file, ``version: v1``, is JSON to NVIDIA's device plugin, so keys of its fixed sections count in
any case of letters, and of a repeated key the last; keys that it ignores silently cause a warning
here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn

from msgspec import Struct

from nodetopo.errors import InputError, closest
from nodetopo.formats.names import DNS_NAME
from nodetopo.kernel.settings import values
from nodetopo.kernel.settings.nvidia.names import BY_PATH, NAMES, Name, ValueKind
from nodetopo.kernel.settings.origin import Given, SettingSource
from nodetopo.kernel.settings.policies import ONE_EACH, RENAME, SHARED_SUFFIX, TimeSlicing
from nodetopo.model.kubernetes import go_bool

if TYPE_CHECKING:
    from nodetopo.formats.document import Value

VERSION = "v1"

OURS = "nodetopo"
"""The key of our own settings in NVIDIA's file; NVIDIA's plugin ignores it."""

SECTIONS = ("version", "flags", "resources", "sharing", "imex", OURS)

_TIME_SLICING_KEYS = (RENAME, ONE_EACH, "resources")
_REPLICATED_KEYS = ("name", "devices", "replicas", "rename")

_PREFIX = "nvidia.com/"

_MAX_NAME = 63
"""Characters of a resource name, the prefix included (api/config/v1/consts.go)."""

_NAME = re.compile(DNS_NAME)
"""A lower-case RFC 1123 subdomain (k8s.io/apimachinery, api/validation)."""

_UUID = r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"

_DEVICE = re.compile(rf"[0-9]+(:[0-9]+)?|(GPU|MIG)-{_UUID}|MIG-GPU-{_UUID}/[0-9]+/[0-9]+")
"""Accepted names of a device (api/config/v1/replicas.go): index, MIG index or UUID."""

_DURATION = re.compile(r"infinite|0|[-+]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+")
"""Go's ``time.ParseDuration``, and NVIDIA's word for ever (api/config/v1/duration.go)."""

_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)

_MPS_CURE = "use sharing.timeSlicing, or leave these nodes to NVIDIA's device plugin"

Warn = Callable[[str], None]
"""Takes a warning."""


class NvidiaFile(Struct, frozen=True, kw_only=True):
    """The settings in NVIDIA's file."""

    given: Mapping[str, Given]  # by NVIDIA's name
    ours: Value | None  # the value of the key :data:`OURS`; ``None`` without it
    warnings: tuple[str, ...]  # for a person, a sentence each


def joined(
    flags: Mapping[str, str], environment: Mapping[str, str], file: Mapping[str, Given]
) -> dict[str, Given]:
    """Return the strongest value of each setting that was given, by NVIDIA's name.

    *flags* holds texts by NVIDIA's name.

    Raises:
        InputError: a value that NVIDIA's device plugin would not accept.
    """
    strongest = dict(file)
    for name in NAMES:
        variable = next((word for word in name.variables if word in environment), None)
        if variable is not None:
            # Empty means false for a switch, as in urfave/cli, and an empty socket means none at
            # all; otherwise an empty variable is unset.
            text = environment[variable] or ("false" if name.kind is ValueKind.SWITCH else "")
            if text or name.name == "kubelet-socket":
                origin = f"environment {variable}"
                strongest[name.name] = _given(name, text, origin, SettingSource.ENVIRONMENT)
        if name.name in flags:
            origin = f"flag --{name.name}"
            strongest[name.name] = _given(name, flags[name.name], origin, SettingSource.FLAG)
    return strongest


def is_nvidias(root: Value) -> bool:
    """Return whether the file has one of NVIDIA's sections, none of which is a key of ours."""
    return any(key.lower() in SECTIONS for key in root.entries())


def read(root: Value, place: SettingSource = SettingSource.FILE) -> NvidiaFile:
    """Read a file for which :func:`is_nvidias` holds; *place* is its strength.

    Raises:
        InputError: another version, or content that NVIDIA's device plugin rejects.
    """
    warnings: list[str] = list(root.repeated())
    sections = _section(root, SECTIONS, warnings)
    if (version := sections.get("version")) is not None:
        word = version.scalar()
        if word not in (None, "", VERSION):
            version.refuse(f"unknown version {word!r}", f"write `version: {VERSION}`")

    # Go down every section to the paths of settings.
    given: dict[str, Given] = {}
    waiting = [(path, value) for path, value in sections.items() if path not in ("version", OURS)]
    for path, value in waiting:
        if path in BY_PATH:
            parsed = _value(BY_PATH[path], value, warnings.append)
            if parsed is not None:
                name = BY_PATH[path].name
                given[name] = Given(value=parsed, origin=value.origin, place=place)
        elif not value.is_null():
            warnings += value.repeated()
            depth = path.count(".") + 1
            below = (known.split(".")[depth] for known in BY_PATH if known.startswith(f"{path}."))
            section = _section(value, tuple(dict.fromkeys(below)), warnings)
            waiting += [(f"{path}.{key}", inner) for key, inner in section.items()]
    ours = sections.get(OURS)
    return NvidiaFile(
        given=given,
        ours=None if ours is None or ours.is_null() else ours,
        warnings=tuple(dict.fromkeys(warnings)),
    )


def _section(value: Value, known: tuple[str, ...], warnings: list[str]) -> dict[str, Value]:
    """Return the values of a mapping by the *known* key that each is meant for."""
    meant = {key.lower(): key for key in known}
    entries: dict[str, Value] = {}
    for key, inner in value.entries().items():
        if key.lower() in meant:
            entries[meant[key.lower()]] = inner
        else:
            warnings.append(_unknown(inner, key, known))
    return entries


def _unknown(value: Value, key: str, known: tuple[str, ...]) -> str:
    """Return the warning for a key that NVIDIA's device plugin ignores silently."""
    close = closest(key, known)
    hint = f"did you mean {close!r}?" if close else f"known are {', '.join(known)}"
    return f"{value.where}: unknown key, ignored: {hint}"


def _warn_unknown(entries: dict[str, Value], known: tuple[str, ...], warn: Warn) -> None:
    for key, value in entries.items():
        if key not in known:
            warn(_unknown(value, key, known))


# One value of the file.


def _value(name: Name, value: Value, warn: Warn) -> Any:
    """Return the value of *name*; ``None`` where none is set."""
    if (
        name.kind is ValueKind.TIME_SLICING
    ):  # to NVIDIA's, `timeSlicing: null` is one without resources
        return _time_slicing(value, warn)
    if value.is_null():
        return None
    try:
        match name.kind:
            case ValueKind.MPS:
                value.refuse("MPS is not supported", _MPS_CURE)
            case ValueKind.RESOURCES:
                return _renamed_resources(value, warn) or None
            case ValueKind.SWITCH:
                return _switch(value)
            case ValueKind.WORDS:
                return _words_of(name, value)
            case ValueKind.NUMBERS:
                return _channels(tuple(str(item.scalar()) for item in value.items()))
            case ValueKind.DURATION:  # a bare number is nanoseconds (api/config/v1/duration.go)
                number = value.scalar()
                is_number = isinstance(number, int | float) and not isinstance(number, bool)
                return f"{number:g}ns" if is_number else _duration(_text(value))
            case _:
                return _parsed(name, _text(value))
    except ValueError as error:
        value.refuse(f"{value.shown()} is {error}")


def _text(value: Value) -> str:
    """Return a text as NVIDIA's YAML has it: numbers and switches are texts where one is meant."""
    scalar = value.scalar()
    return str(scalar).lower() if isinstance(scalar, bool) else str(value.node.value)


def _switch(value: Value) -> bool:
    scalar = value.scalar()
    if not isinstance(scalar, bool):
        value.expected("true or false, without quotes")
    return scalar


def _words_of(name: Name, value: Value) -> tuple[str, ...]:
    """Return a word, or a list of them; here NVIDIA's accepts no numbers for texts."""
    words: list[str] = []
    for item in value.items() if value.is_list() else [value]:
        word = item.scalar()
        if not isinstance(word, str):
            item.expected("a text")
        try:
            words += _words(name, (word,))
        except ValueError as error:
            item.refuse(f"{item.shown()} is {error}")
    return _words(name, tuple(words))


def _renamed_resources(value: Value, warn: Warn) -> int:
    """Return how many resources a list of ``resources`` renames, after a check of each."""
    entries = [item.entries() for item in value.items()]
    for item, fields in zip(value.items(), entries, strict=True):
        _warn_unknown(fields, ("pattern", "name"), warn)
        pattern = fields.get("pattern") or item.refuse("no `pattern` is set")
        if not isinstance(pattern.scalar(), str):
            pattern.expected("a text")
        _resource(fields.get("name") or item.refuse("no `name` is set"))
    return len(entries)


def _resource(value: Value) -> str:
    """Return a resource name with NVIDIA's prefix, which the file can omit."""
    text = value.scalar()
    if not isinstance(text, str):
        value.expected("a name such as nvidia.com/gpu")
    name = text.removeprefix(_PREFIX)
    if _NAME.fullmatch(name) is None:
        value.expected("a name of lower-case letters, digits, - and . after nvidia.com/")
    if len(_PREFIX + name) > _MAX_NAME:
        value.refuse(f"longer than {_MAX_NAME} characters: {_PREFIX}{name}")
    return _PREFIX + name


# ``sharing.timeSlicing``.


def _time_slicing(value: Value, warn: Warn) -> TimeSlicing:
    """Return the time-slicing of the file.

    Of a resource that is named twice, the higher number counts, as with NVIDIA's device plugin.
    """
    if value.is_null():
        _refuse_empty(value)
    fields = value.entries()
    _warn_unknown(fields, _TIME_SLICING_KEYS, warn)
    listed = fields.get("resources")
    items = listed.items() if listed is not None and not listed.is_null() else []
    if not items:
        _refuse_empty(listed or value)
    replicas: dict[str, int] = {}
    for item in items:
        name, count = _replicated(item, is_renamed=_flag(fields, RENAME), warn=warn)
        if name in replicas:
            warn(f"{item.where}: {name} is listed twice; the higher number of replicas counts")
        replicas[name] = max(count, replicas.get(name, 0))
    return TimeSlicing(
        replicas=MappingProxyType(replicas),
        is_renamed=_flag(fields, RENAME),
        fails_requests_greater_than_one=_flag(fields, ONE_EACH),
    )


def _refuse_empty(value: Value) -> NoReturn:
    value.refuse("no resources are listed", "list one, such as {name: nvidia.com/gpu, replicas: 4}")


def _flag(fields: dict[str, Value], name: str) -> bool:
    value = fields.get(name)
    return value is not None and not value.is_null() and _switch(value)


def _replicated(item: Value, *, is_renamed: bool, warn: Warn) -> tuple[str, int]:
    """Return the name of a resource, and its number of replicas."""
    fields = item.entries()
    _warn_unknown(fields, _REPLICATED_KEYS, warn)
    name = _resource(fields.get("name") or item.refuse("no `name` is set"))
    counted = fields.get("replicas") or item.refuse("no `replicas` are set")
    count = counted.scalar()
    if isinstance(count, bool) or not isinstance(count, int | float) or count != int(count):
        counted.expected("a number of replicas")
    if count < 2:
        counted.expected("2 or more replicas")
    devices, rename = fields.get("devices"), fields.get("rename")
    if devices is not None and not _is_all(devices):
        warn(f"{devices.where} is ignored, as by NVIDIA's device plugin: all devices are shared")
    own = name + SHARED_SUFFIX if is_renamed else name
    if rename is not None and _resource(rename) != own:
        warn(f"{rename.where} is ignored, as by NVIDIA's device plugin: it is offered as {own}")
    return name, int(count)


def _is_all(devices: Value) -> bool:
    """Return whether all devices are selected; any other valid selection is ignored."""
    if devices.is_list():
        for item in devices.items():
            device = item.scalar()
            is_index = isinstance(device, int) and not isinstance(device, bool) and device >= 0
            if not is_index and not (isinstance(device, str) and _DEVICE.fullmatch(device)):
                item.expected("an index, a MIG index such as '0:1', or a UUID")
        return False
    scalar = devices.scalar()
    if isinstance(scalar, int) and not isinstance(scalar, bool) and scalar > 0:
        return False
    if scalar != "all":
        devices.expected("`all`, how many devices, or a list of them")
    return True


# One value as text, from a flag or a variable.


def _given(name: Name, text: str, origin: str, place: SettingSource) -> Given:
    try:
        return Given(value=_parsed(name, text), origin=origin, place=place)
    except ValueError as error:
        cure = f"docs/operate/configuration.md has what {name.name} may be"
        raise InputError(f"{origin}: {text!r} is {error}", cure) from None


def _parsed(name: Name, text: str) -> Any:
    """Parse *text* as a value of *name*."""
    match name.kind:
        case ValueKind.SWITCH:
            switch = go_bool(text)
            if switch is None:
                raise ValueError("neither true nor false")
            return switch
        case ValueKind.WORD:
            return values.one_of(name.words)(text)
        case ValueKind.WORDS:
            return _words(name, tuple(word.strip() for word in text.split(",")))
        case ValueKind.NUMBERS:
            return _channels(tuple(word.strip() for word in text.split(",")) if text else ())
        case ValueKind.DURATION:
            return _duration(text)
        case _:
            return values.text(text) if text else ""


def _words(name: Name, words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the different ones of *words*, in order; NVIDIA's accepts repeated ones."""
    if "device-specs" in words:
        raise ValueError("not NVIDIA's word: it is pass-device-specs there")
    if not words:
        raise ValueError(f"without one of {', '.join(name.words)}")
    return tuple(dict.fromkeys(map(values.one_of(name.words), words)))


def _channels(numbers: tuple[str, ...]) -> tuple[int, ...]:
    """Return the IMEX channels *numbers*; NVIDIA's knows none but 0 (api/config/v1/imex.go)."""
    if numbers and (len(numbers) > 1 or not _NUMBER.fullmatch(numbers[0]) or int(numbers[0])):
        raise ValueError("neither empty nor channel 0 alone")
    return tuple(map(int, numbers))


def _duration(text: str) -> str:
    """Return *text* if it is one of Go's durations."""
    if _DURATION.fullmatch(text) is None:
        raise ValueError("not a duration such as 60s, nor `infinite`")
    return text
