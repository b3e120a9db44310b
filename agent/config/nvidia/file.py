"""NVIDIA's configuration file, ``version: v1``.

It is JSON to NVIDIA's device plugin, so keys of its fixed sections count in any case of letters,
and of a repeated key the last; what it ignores silently is a warning here.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, NoReturn

from agent.config import values
from agent.config.document import Value
from agent.config.nvidia.names import BY_PATH, NAMES, Kind, Name
from agent.config.origin import Given, Place
from agent.config.policies import ONE_EACH, RENAME, SHARED_SUFFIX, TimeSlicing
from agent.errors import InputError
from agent.labels.label import DNS_NAME
from agent.model.kubernetes import go_bool

# The lists of NVIDIA's file: time-slicing, and the resources that it ignores.

_PREFIX = "nvidia.com/"


_MAX_NAME = 63
"""Characters of a resource name, the prefix included (api/config/v1/consts.go)."""


_NAME = re.compile(DNS_NAME)
"""A lower-case RFC 1123 subdomain (k8s.io/apimachinery, api/validation)."""


_UUID = r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"


_DEVICE = re.compile(rf"[0-9]+(:[0-9]+)?|(GPU|MIG)-{_UUID}|MIG-GPU-{_UUID}/[0-9]+/[0-9]+")
"""How a device may be named (api/config/v1/replicas.go): index, MIG index or UUID."""


Say = Callable[[str], None]
"""Takes a warning."""


_REPLICATED = (RENAME, ONE_EACH, "resources")


_RESOURCE = ("name", "devices", "replicas", "rename")


def unknown(value: Value, key: str, known: tuple[str, ...]) -> str:
    """Return the warning for a key that NVIDIA's device plugin ignores silently."""
    close = get_close_matches(key, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
    return f"{value.where}: unknown key, ignored: {hint}"


def switch(value: Value) -> bool:
    """Return YAML's true or false."""
    found = value.scalar()
    if not isinstance(found, bool):
        value.expected("true or false, without quotes")
    return found


def resources(value: Value, say: Say) -> int:
    """Return how many resources a list of ``resources`` renames, after a look at each.

    Raises:
        InputError: NVIDIA's device plugin would not take it.
    """
    entries = [item.entries() for item in value.items()]
    for item, fields in zip(value.items(), entries, strict=True):
        _say_unknown(fields, ("pattern", "name"), say)
        pattern = fields.get("pattern") or item.refuse("no `pattern` is set")
        if not isinstance(pattern.scalar(), str):
            pattern.expected("a text")
        resource(fields.get("name") or item.refuse("no `name` is set"))
    return len(entries)


def time_slicing(value: Value, say: Say) -> TimeSlicing:
    """Return what ``sharing.timeSlicing`` says.

    Of a resource that is named twice, the higher number counts, as with NVIDIA's device plugin.

    Raises:
        InputError: NVIDIA's device plugin would not take it.
    """
    if value.is_null():
        _no_resources(value)
    fields = value.entries()
    _say_unknown(fields, _REPLICATED, say)
    listed = fields.get("resources")
    items = listed.items() if listed is not None and not listed.is_null() else []
    if not items:
        _no_resources(listed or value)
    replicas: dict[str, int] = {}
    for item in items:
        name, count = _replicated(item, is_renamed=_flag(fields, RENAME), say=say)
        if name in replicas:
            say(f"{item.where}: {name} is listed twice; the higher number of replicas counts")
        replicas[name] = max(count, replicas.get(name, 0))
    return TimeSlicing(
        replicas=MappingProxyType(replicas),
        is_renamed=_flag(fields, RENAME),
        fails_requests_greater_than_one=_flag(fields, ONE_EACH),
    )


def resource(value: Value) -> str:
    """Return a resource's name with NVIDIA's prefix, which may be left out in the file.

    Raises:
        InputError: it is no name.
    """
    found = value.scalar()
    if not isinstance(found, str):
        value.expected("a name such as nvidia.com/gpu")
    name = found.removeprefix(_PREFIX)
    if _NAME.fullmatch(name) is None:
        problem = "lower-case letters, digits, - and . after nvidia.com/"
        value.expected(f"a name of {problem}")
    if len(_PREFIX + name) > _MAX_NAME:
        value.refuse(f"longer than {_MAX_NAME} characters: {_PREFIX}{name}")
    return _PREFIX + name


def _no_resources(value: Value) -> NoReturn:
    value.refuse("no resources are listed", "list one, such as {name: nvidia.com/gpu, replicas: 4}")


def _flag(fields: dict[str, Value], name: str) -> bool:
    value = fields.get(name)
    return value is not None and not value.is_null() and switch(value)


def _replicated(item: Value, *, is_renamed: bool, say: Say) -> tuple[str, int]:
    fields = item.entries()
    _say_unknown(fields, _RESOURCE, say)
    name = resource(fields.get("name") or item.refuse("no `name` is set"))
    counted = fields.get("replicas") or item.refuse("no `replicas` are set")
    count = counted.scalar()
    if isinstance(count, bool) or not isinstance(count, int | float) or count != int(count):
        counted.expected("a number of replicas")
    if count < 2:
        counted.expected("2 or more replicas")
    devices, rename = fields.get("devices"), fields.get("rename")
    if devices is not None and not _is_all(devices):
        say(f"{devices.where} is ignored, as by NVIDIA's device plugin: all devices are shared")
    own = name + SHARED_SUFFIX if is_renamed else name
    if rename is not None and resource(rename) != own:
        say(f"{rename.where} is ignored, as by NVIDIA's device plugin: it is offered as {own}")
    return name, int(count)


def _is_all(devices: Value) -> bool:
    """Tell whether all devices are meant; every other choice is ignored, if it is one."""
    if devices.is_list():
        for item in devices.items():
            _check_device(item)
        return False
    found = devices.scalar()
    if isinstance(found, int) and not isinstance(found, bool) and found > 0:
        return False
    if found != "all":
        devices.expected("`all`, how many devices, or a list of them")
    return True


def _check_device(item: Value) -> None:
    found = item.scalar()
    is_index = isinstance(found, int) and not isinstance(found, bool) and found >= 0
    if not is_index and not (isinstance(found, str) and _DEVICE.fullmatch(found)):
        item.expected("an index, a MIG index such as '0:1', or a UUID")


def _say_unknown(fields: dict[str, Value], known: tuple[str, ...], say: Say) -> None:
    for key, value in fields.items():
        if key not in known:
            say(unknown(value, key, known))


# NVIDIA's values as text, from a flag or a variable.

_DURATION = re.compile(r"infinite|0|[-+]?(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+")
"""Go's ``time.ParseDuration``, and NVIDIA's word for ever (api/config/v1/duration.go)."""


_NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)


def text_read(name: Name, text: str) -> Any:
    """Return the value of *name* that *text* holds.

    Raises:
        ValueError: it is none; the text says what it is instead.
    """
    match name.kind:
        case Kind.SWITCH:
            switch = go_bool(text)
            if switch is None:
                raise ValueError("neither true nor false")
            return switch
        case Kind.WORD:
            return values.one_of(name.words)(text)
        case Kind.WORDS:
            return words(name, tuple(word.strip() for word in text.split(",")))
        case Kind.NUMBERS:
            return channels(tuple(word.strip() for word in text.split(",")) if text else ())
        case Kind.DURATION:
            return duration(text)
        case _:
            return values.text(text) if text else ""


def words(name: Name, found: tuple[str, ...]) -> tuple[str, ...]:
    """Return the different words of *found*, in order; NVIDIA's takes repeated ones.

    Raises:
        ValueError: one is not of *name*, or there is none.
    """
    if "device-specs" in found:
        raise ValueError("not NVIDIA's word: it is pass-device-specs there")
    if not found:
        raise ValueError(f"without one of {', '.join(name.words)}")
    return tuple(dict.fromkeys(map(values.one_of(name.words), found)))


def channels(found: tuple[str, ...]) -> tuple[int, ...]:
    """Return the IMEX channels *found*; NVIDIA's knows none but 0 (api/config/v1/imex.go).

    Raises:
        ValueError: it is neither empty nor 0 alone.
    """
    if found and (len(found) > 1 or not _NUMBER.fullmatch(found[0]) or int(found[0])):
        raise ValueError("neither empty nor channel 0 alone")
    return tuple(map(int, found))


def duration(found: str) -> str:
    """Return *found* if it is one of Go's durations.

    Raises:
        ValueError: it is none.
    """
    if _DURATION.fullmatch(found) is None:
        raise ValueError("not a duration such as 60s, nor `infinite`")
    return found


# NVIDIA's settings from its three places: command line over environment over file.


def joined(
    flags: Mapping[str, str], environment: Mapping[str, str], file: Mapping[str, Given]
) -> dict[str, Given]:
    """Return the strongest value of each setting that was given, by NVIDIA's name.

    *flags* holds texts by NVIDIA's name.

    Raises:
        InputError: a value that NVIDIA's device plugin would not take.
    """
    found = dict(file)
    found.update(_environment(environment))
    for name in NAMES:
        if name.name in flags:
            found[name.name] = _places_read(
                name, flags[name.name], f"flag --{name.name}", Place.FLAG
            )
    return found


def _environment(environment: Mapping[str, str]) -> Iterator[tuple[str, Given]]:
    """Yield what the environment sets.

    Empty means false for a switch, as in urfave/cli, and an empty socket means none at all;
    otherwise an empty variable is unset.
    """
    for name in NAMES:
        variable = next((word for word in name.variables if word in environment), None)
        if variable is None:
            continue
        given = environment[variable]
        if name.kind is Kind.SWITCH:
            given = given or "false"
        if given or name.name == "kubelet-socket":
            yield name.name, _places_read(name, given, f"environment {variable}", Place.ENVIRONMENT)


def _places_read(name: Name, given: str, origin: str, place: Place) -> Given:
    try:
        return Given(value=text_read(name, given), origin=origin, place=place)
    except ValueError as error:
        cure = f"docs/operate/configuration.md has what {name.name} may be"
        raise InputError(f"{origin}: {given!r} is {error}", cure) from None


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
            warnings.append(unknown(inner, key, known))
    return found


def _read(name: Name, value: Value, warnings: list[str]) -> Any:
    """Return the value of *name*; ``None`` where none is set."""
    if name.kind is Kind.TIME_SLICING:  # to NVIDIA's, `timeSlicing: null` is one without resources
        return time_slicing(value, warnings.append)
    if value.is_null():
        return None
    if name.kind is Kind.MPS:
        value.refuse("MPS is not supported", _MPS_CURE)
    match name.kind:
        case Kind.RESOURCES:
            return resources(value, warnings.append) or None
        case Kind.SWITCH:
            return switch(value)
        case _:
            return _checked(name, value)


def _checked(name: Name, value: Value) -> Any:
    try:
        match name.kind:
            case Kind.WORDS:
                return _words(name, value)
            case Kind.NUMBERS:
                return channels(tuple(str(item.scalar()) for item in value.items()))
            case Kind.DURATION:
                return _duration(value)
            case _:
                return text_read(name, _text(value))
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
            found += words(name, (word,))
        except ValueError as error:
            item.refuse(f"{item.shown()} is {error}")
    return words(name, tuple(found))


def _duration(value: Value) -> str:
    """Return a duration; a bare number is nanoseconds (api/config/v1/duration.go)."""
    found = value.scalar()
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    return f"{found:g}ns" if is_number else duration(_text(value))
