"""What a CDI specification must be, told in our words from SPEC.md 1.1.0 and its Go types.

Sources: the tables of SPEC.md ("CDI JSON Specification"), specs-go/config.go (names and types of
fields; a reader refuses unknown ones), pkg/parser/parser.go (names), pkg/cdi/container-edits.go
(what is refused), pkg/cdi/spec.go (no devices, one device twice, a device without edits) and
specs-go/version.go (which version knows what).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from jsonschema import Draft202012Validator

_TEXT = {"type": "string", "minLength": 1}
_TEXTS = {"type": "array", "items": _TEXT}
_PATH = {"type": "string", "pattern": "^/"}
_ENV = {"type": "array", "items": {"type": "string", "pattern": "^[^=]+="}}
_COUNT = {"type": "integer", "minimum": 0}


def _fields(required: tuple[str, ...], **known: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": known,
        "required": list(required),
        "additionalProperties": False,
    }


_NODE = _fields(
    ("path",),
    path=_PATH,
    hostPath=_PATH,
    type={"enum": ["b", "c", "u", "p"]},
    major={"type": "integer"},
    minor={"type": "integer"},
    fileMode=_COUNT,
    permissions={"type": "string", "pattern": "^[rwm]+$"},
    uid=_COUNT,
    gid=_COUNT,
)
_MOUNT = _fields(
    ("hostPath", "containerPath"),
    hostPath=_PATH,
    containerPath=_PATH,
    type=_TEXT,
    options=_TEXTS,
)
_HOOKS = ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"]
_HOOK = _fields(
    ("hookName", "path"),
    hookName={"enum": _HOOKS},
    path=_PATH,
    args=_TEXTS,
    env=_ENV,
    timeout={"type": "integer", "minimum": 1},
)
_EDITS = _fields(
    (),
    env=_ENV,
    deviceNodes={"type": "array", "items": _NODE},
    mounts={"type": "array", "items": _MOUNT},
    hooks={"type": "array", "items": _HOOK},
    additionalGids={"type": "array", "items": _COUNT},
)
"""Without ``intelRdt`` and ``netDevices``, which are nothing for a GPU."""

_WORD = "[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?"
SCHEMA = _fields(
    ("cdiVersion", "kind", "devices"),
    cdiVersion={"type": "string", "pattern": r"^\d+\.\d+\.\d+$"},
    kind={"type": "string", "pattern": f"^{_WORD}/{_WORD}$"},
    devices={
        "type": "array",
        "minItems": 1,
        "items": _fields(
            ("name", "containerEdits"),
            name={"type": "string", "pattern": "^[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?$"},
            containerEdits={**_EDITS, "minProperties": 1},
        ),
    },
    containerEdits=_EDITS,
)

_SINCE = ("0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0")


def problems(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what is wrong with *spec*; nothing for a good one."""
    found = [error.message for error in Draft202012Validator(SCHEMA).iter_errors(spec)]
    return (*found, *_beyond_a_schema(spec)) if not found else tuple(found)


def least_version(spec: Mapping[str, Any]) -> str:
    """Return the first version that knows all that *spec* uses."""
    return max(_needed(spec), key=_SINCE.index)


def _beyond_a_schema(spec: Mapping[str, Any]) -> Iterator[str]:
    names = [device["name"] for device in spec["devices"]]
    if len(names) != len(set(names)):
        yield "one device twice"
    if spec["cdiVersion"] != least_version(spec):
        yield f"version {spec['cdiVersion']} where {least_version(spec)} is the least"
    for edits in _every_edits(spec):
        for key, name in (("deviceNodes", "path"), ("mounts", "containerPath")):
            paths = [one[name] for one in edits.get(key, ())]
            if len(paths) != len(set(paths)):
                yield f"one of {key} twice"


def _needed(spec: Mapping[str, Any]) -> Iterator[str]:
    yield "0.3.0"
    every = list(_every_edits(spec))
    if any("type" in mount for edits in every for mount in edits.get("mounts", ())):
        yield "0.4.0"
    if any("hostPath" in node for edits in every for node in edits.get("deviceNodes", ())):
        yield "0.5.0"
    if any(device["name"][0].isdigit() for device in spec["devices"]):
        yield "0.5.0"
    if "." in spec["kind"].partition("/")[2]:
        yield "0.6.0"
    if any("additionalGids" in edits for edits in every):
        yield "0.7.0"


def _every_edits(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield spec.get("containerEdits", {})
    yield from (device["containerEdits"] for device in spec["devices"])
