"""CDI specifications, read as strictly as by CDI's own library, and what a host makes of them.

CDI ignores a file with any error: an unknown field, a name that is none, a field that the stated
version lacks. Source: container-device-interface v1.1.0, ``pkg/cdi`` (spec.go, device.go,
container-edits.go, container-edits_unix.go), ``pkg/parser`` and ``specs-go``.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from msgspec import Struct

from nodetopo.model.cdi import CdiFault, HostNode

Shape: TypeAlias = type | range | list[Any] | Mapping[str, Any]
"""The type of a value: a scalar's type, the range of an integer, a list of one shape, an object
with these fields, or with ``"*"`` any field of one shape.
"""

KIND = re.compile(
    r"(?P<vendor>[A-Za-z](?:[\w.-]*[A-Za-z0-9])?)/(?P<class>[A-Za-z](?:[\w.-]*[A-Za-z0-9])?)",
    re.ASCII,
)
DEVICE = re.compile(r"[A-Za-z0-9](?:[\w.:-]*[A-Za-z0-9])?", re.ASCII)
"""Names of kinds and devices (pkg/parser/parser.go)."""

VERSIONS = (*((0, minor, 0) for minor in range(1, 9)), (1, 0, 0), (1, 1, 0))
"""Released versions of specifications (specs-go/version.go)."""

_VERSION = re.compile(r"v?([0-9]{1,4})\.([0-9]{1,4})\.([0-9]{1,4})")
_INT64 = range(-(1 << 63), 1 << 63)
_UINT32 = range(1 << 32)
_EDITS: Mapping[str, Shape] = {
    "env": [str],
    "deviceNodes": [
        {
            **dict.fromkeys(("path", "hostPath", "type", "permissions"), str),
            **dict.fromkeys(("major", "minor"), _INT64),
            **dict.fromkeys(("fileMode", "uid", "gid"), _UINT32),
        }
    ],
    "netDevices": [{"hostInterfaceName": str, "name": str}],
    "hooks": [{"hookName": str, "path": str, "args": [str], "env": [str], "timeout": _INT64}],
    "mounts": [{"hostPath": str, "containerPath": str, "options": [str], "type": str}],
    "intelRdt": {
        **dict.fromkeys(("closID", "l3CacheSchema", "memBwSchema"), str),
        "schemata": [str],
        "enableMonitoring": bool,
    },
    "additionalGids": [_UINT32],
}
_ANNOTATIONS: Shape = {"*": str}
_SPEC: Shape = {
    "cdiVersion": str,
    "kind": str,
    "annotations": _ANNOTATIONS,
    "devices": [{"name": str, "annotations": _ANNOTATIONS, "containerEdits": _EDITS}],
    "containerEdits": _EDITS,
}
_HOOKS = frozenset(
    ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")
)
_FIFO = "p"
_NODE_TYPES = ("", "b", "c", "u", _FIFO)
_LONGEST_CLOS_ID = 4096
_DRIVERS: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...] = (
    (re.compile(r"nvidia-uvm(?:-tools)?"), ("nvidia-uvm",)),
    (re.compile(r"nvidia(?:[0-9]{1,3}|ctl|-modeset)"), ("nvidia", "nvidia-frontend")),
    (re.compile(r"nvidia-caps/nvidia-cap[0-9]{1,6}"), ("nvidia-caps",)),
    (
        re.compile(r"nvidia-caps-imex-channels/channel[0-9]{1,6}"),
        ("nvidia-caps-imex-channels",),
    ),
)
"""Names of the driver's device nodes below ``/dev``, and of their driver in ``/proc/devices``."""

_LIBRARY = re.compile(r".*/lib(?:cuda|nvidia-ml)\.so\.([0-9]{3,4}(?:\.[0-9]{1,4}){1,2})")
"""The driver's two libraries that every specification with GPUs mounts; their file names end in
the driver's version."""

_MOST_FAULTS = 64
_MOST_UNSEEN = 8


class Host(Protocol):
    """The host on which edits are applied."""

    def exists(self, path: str) -> bool | None:
        """Return whether *path* exists, following links; ``None`` where it cannot be seen."""

    def node(self, path: str) -> HostNode:
        """Return what is at *path*."""

    def major(self, drivers: Iterable[str]) -> int | None:
        """Return the major number of the first of *drivers* that has one."""


class Document(Struct, frozen=True, kw_only=True):
    """A valid specification."""

    kind: str  # vendor and class
    edits: Mapping[str, Any]  # for a container with any of its devices
    devices: Mapping[str, Mapping[str, Any]]  # edits of each device by name

    @property
    def driver_version(self) -> str | None:
        """The version of the driver whose libraries it mounts; ``None`` without any."""
        every = (self.edits, *self.devices.values())
        paths = (mount["hostPath"] for edits in every for mount in edits["mounts"])
        return next((match[1] for match in map(_LIBRARY.fullmatch, paths) if match), None)


def read(value: Any) -> Document:
    """Return the specification in *value*, a document's content.

    Raises:
        ValueError: CDI ignores it; the message is the reason.
    """
    if value is None:
        raise ValueError("no content")
    spec = _shaped(value, _SPEC, "")
    version = _checked_version(spec)
    if not KIND.fullmatch(spec["kind"]):
        raise ValueError(f"not a kind: {spec['kind'][:80]!r}")
    _check_edits(spec["containerEdits"], "containerEdits")
    devices: dict[str, Mapping[str, Any]] = {}
    for device in spec["devices"]:
        name, edits = device["name"], device["containerEdits"]
        if not DEVICE.fullmatch(name):
            raise ValueError(f"not a device name: {name[:80]!r}")
        if not any(edits.values()) and edits["intelRdt"] is None:
            raise ValueError(f"device {name} without edits")
        _check_edits(edits, f"device {name}")
        if name in devices:
            raise ValueError(f"device {name} twice")
        devices[name] = edits
    if not devices:
        raise ValueError("no devices")
    if version is not None and (least := _least_version(spec)) > version:
        raise ValueError(f"cdiVersion must be at least {'.'.join(map(str, least))}")
    return Document(kind=spec["kind"], edits=spec["containerEdits"], devices=devices)


def faults(document: Document, host: Host) -> tuple[tuple[CdiFault, ...], tuple[str, ...]]:
    """Return faults that keep containers on *host* from *document*'s devices, and unseen paths.

    A runtime fails on a missing device node without explicit numbers, on a mount or a hook whose
    path does not exist; with a number that is not the driver's a container starts, and opens
    another device or none. Unseen paths are as in :attr:`CdiSpec.unseen`.
    """
    of_all, unseen = _edit_faults(document.edits, host)
    by_reason: dict[str, list[str]] = {}
    for name, edits in document.devices.items():
        reasons, also_unseen = _edit_faults(edits, host)
        unseen |= also_unseen
        for reason in reasons:
            by_reason.setdefault(reason, []).append(name)
    found = [CdiFault(reason=reason) for reason in of_all]
    found += [
        CdiFault(reason=reason, devices=tuple(names))
        for reason, names in by_reason.items()
        if reason not in of_all
    ]
    return tuple(found[:_MOST_FAULTS]), tuple(unseen)[:_MOST_UNSEEN]


def _edit_faults(edits: Mapping[str, Any], host: Host) -> tuple[dict[str, None], dict[str, None]]:
    """Return the reasons and the unseen paths of *edits*, each once and in their order."""
    reasons: dict[str, None] = {}
    unseen: dict[str, None] = {}
    for node in edits["deviceNodes"]:
        path = node["hostPath"] or node["path"]
        found = host.node(path)
        if found.exists is None:
            unseen[path] = None
        if fault := _node_fault(node, path, found, host):
            reasons[fault] = None
    for verb, entries, key in (
        ("mounts", edits["mounts"], "hostPath"),
        ("calls", edits["hooks"], "path"),
    ):
        for entry in entries:
            path = entry[key]
            if entry.get("type") not in (None, "", "bind"):
                continue  # of a file system that is no part of the host's, such as tmpfs
            exists = host.exists(path)
            if exists is False:
                reasons[f"{verb} {path}, which does not exist"] = None
            elif exists is None and (key == "path" or _LIBRARY.fullmatch(path)):
                unseen[path] = None
    return reasons, unseen


def _node_fault(node: Mapping[str, Any], path: str, found: HostNode, host: Host) -> str | None:
    """Return what is wrong with a device node, as container-edits_unix.go fills what it lacks."""
    stated = node["type"] if node["type"] != "u" else "c"
    is_whole = bool(node["type"]) and (bool(node["major"]) or node["type"] == _FIFO)
    if not is_whole:
        if found.exists is False:
            return f"names {path}, which does not exist"
        if found.type == "":
            return f"names {path}, which is no device node"
        if found.type is not None and node["type"] not in ("", found.type):
            return f"names {path} as {node['type']}, which is {found.type}"
    if (stated or found.type) not in (None, "b", "c"):
        return None
    numbers = (node["major"], node["minor"]) if node["major"] else found.numbers
    if numbers is None:
        return None
    shown = f"{numbers[0]}:{numbers[1]}"
    name = path.partition("/dev/")[2]
    for pattern, drivers in _DRIVERS:
        if pattern.fullmatch(name):
            major = host.major(drivers)
            if major is not None and major != numbers[0]:
                return f"gives {path} as {shown}, and the driver's major number is {major}"
    if found.numbers is not None and found.numbers != numbers:
        return f"gives {path} as {shown}, which is {found.numbers[0]}:{found.numbers[1]} here"
    return None


def _shaped(value: Any, shape: Shape, at: str) -> Any:
    """Return *value* with all fields of *shape*, those that it lacks empty, as Go fills a struct.

    Scalars for a text become one, as sigs.k8s.io/yaml makes them; names of fields can be in any
    case, as encoding/json has it.
    """
    match shape:
        case Mapping():
            return _object(value, shape, at)
        case list():
            if value is None:
                return []
            _require(isinstance(value, list), f"{at} is no list")
            return [_shaped(item, shape[0], f"{at}[{n}]") for n, item in enumerate(value)]
        case range():
            if isinstance(value, float) and value.is_integer():
                value = int(value)
            is_whole = type(value) is int and value in shape
            _require(value is None or is_whole, f"{at} is no number, or out of range")
            return value or 0
    if shape is bool:
        _require(value is None or isinstance(value, bool), f"{at} is neither true nor false")
        return bool(value)
    _require(not isinstance(value, list | dict), f"{at} is no text")
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def _require(condition: bool, problem: str) -> None:
    if not condition:
        raise ValueError(problem)


def _object(value: Any, shape: Mapping[str, Shape], at: str) -> Any:
    _require(value is None or isinstance(value, dict), f"{at or 'the document'} is no object")
    if "*" in shape:
        return {
            str(key): _shaped(item, shape["*"], f"{at}.{key}")
            for key, item in (value or {}).items()
        }
    if value is None and at.endswith("intelRdt"):
        return None
    names = {name.lower(): name for name in shape}
    given: dict[str, Any] = {}
    for key, item in (value or {}).items():
        name = names.get(str(key).lower())
        if name is None:
            raise ValueError(f"unknown field {at}{'.' if at else ''}{str(key)[:80]}")
        given[name] = item
    return {
        name: _shaped(given.get(name), inner, f"{at}.{name}" if at else name)
        for name, inner in shape.items()
    }


def _checked_version(spec: Mapping[str, Any]) -> tuple[int, int, int] | None:
    """Return the version of *spec*; ``None`` for one after the last that is known here.

    A runtime with a newer library than the one described here can know it.
    """
    match = _VERSION.fullmatch(spec["cdiVersion"])
    version = (int(match[1]), int(match[2]), int(match[3])) if match else None
    if version is not None and version > VERSIONS[-1]:
        return None
    if version not in VERSIONS:
        raise ValueError(f"not a cdiVersion: {spec['cdiVersion'][:80]!r}")
    return version


def _least_version(spec: Mapping[str, Any]) -> tuple[int, int, int]:
    """Return the first version with everything that *spec* uses (specs-go/version.go)."""
    devices: Sequence[Mapping[str, Any]] = spec["devices"]
    every = [spec["containerEdits"], *(device["containerEdits"] for device in devices)]
    rdts = [edits["intelRdt"] for edits in every if edits["intelRdt"] is not None]

    def uses(key: str, inner: str) -> bool:
        return any(item[inner] for edits in every for item in edits[key])

    needs: tuple[tuple[tuple[int, int, int], Callable[[], bool]], ...] = (
        ((1, 1, 0), lambda: any(it["schemata"] or it["enableMonitoring"] for it in rdts)),
        ((1, 1, 0), lambda: any(edits["netDevices"] for edits in every)),
        ((0, 7, 0), lambda: bool(rdts) or any(edits["additionalGids"] for edits in every)),
        ((0, 6, 0), lambda: any(it["annotations"] for it in (spec, *devices))),
        ((0, 6, 0), lambda: "." in spec["kind"].partition("/")[2]),
        ((0, 5, 0), lambda: any("0" <= it["name"][:1] <= "9" for it in devices)),
        ((0, 5, 0), lambda: uses("deviceNodes", "hostPath")),
        ((0, 4, 0), lambda: uses("mounts", "type")),
    )
    return next((version for version, is_used in needs if is_used()), (0, 3, 0))


def _check_edits(edits: Mapping[str, Any], at: str) -> None:
    """Raise for edits that CDI refuses whatever the host has."""
    for problem in _edit_problems(edits):
        raise ValueError(f"{at}: {problem}")


def _edit_problems(edits: Mapping[str, Any]) -> Iterator[str]:
    yield from _env_problems(edits["env"])
    for node in edits["deviceNodes"]:
        if not node["path"]:
            yield "a device node without a path"
        if node["type"] not in _NODE_TYPES:
            yield f"{node['path']}: not a type of device node: {node['type'][:20]!r}"
        if set(node["permissions"]) - set("rwm"):
            yield f"{node['path']}: not permissions: {node['permissions'][:20]!r}"
    for hook in edits["hooks"]:
        if hook["hookName"] not in _HOOKS:
            yield f"not the name of a hook: {hook['hookName'][:40]!r}"
        if not hook["path"]:
            yield "a hook without a path"
        yield from _env_problems(hook["env"])
    for mount in edits["mounts"]:
        if not mount["hostPath"] or not mount["containerPath"]:
            yield "a mount without a path on the host, or in the container"
    rdt = edits["intelRdt"]
    if rdt is not None and not _is_clos_id(rdt["closID"]):
        yield "not a closID"
    for key in ("hostInterfaceName", "name"):
        names = [device[key] for device in edits["netDevices"]]
        if not all(names) or len({*names}) < len(names):
            yield f"network devices without a {key}, or with the same"


def _env_problems(env: Iterable[str]) -> Iterator[str]:
    for variable in env:
        if variable.find("=") <= 0:
            yield f"not an environment variable: {variable[:40]!r}"


def _is_clos_id(text: str) -> bool:
    if text == "/":
        return True
    is_short = len(text.encode()) < _LONGEST_CLOS_ID
    return is_short and text not in (".", "..") and not set(text) & set("/\n")
