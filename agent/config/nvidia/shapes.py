"""The lists of NVIDIA's file: time-slicing, and the resources that it ignores."""

import re
from collections.abc import Callable
from difflib import get_close_matches
from types import MappingProxyType
from typing import NoReturn

from agent.config.document import Value
from agent.config.sharing import ONE_EACH, RENAME, SHARED_SUFFIX, TimeSlicing
from agent.labels.syntax import DNS_NAME

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
