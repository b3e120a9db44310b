"""Specifications of the Container Device Interface on the host (CNCF CDI SPEC.md 1.1.0)."""

import re
from collections.abc import Iterator
from posixpath import normpath
from typing import Any

from agent.formats import json, yaml
from agent.model.host import CdiSpec
from agent.probes.sysfs.files import Files

_FIXED = "etc/cdi"
_RUN = ("run/cdi", "var/run/cdi")
"""One directory by two names on most systems; the link between them need not lead anywhere in a
container that has the host's files below a directory of its own."""

_SUFFIXES = (".json", ".yaml")
"""Of the files that runtimes read (container-device-interface pkg/cdi/spec-dirs.go)."""

_MAX_SPECS = 256
_MAX_NODES = 4096
_LIBRARY = re.compile(r"lib(?:cuda|nvidia-ml)\.so\.([0-9]{3,4}(?:\.[0-9]{1,4}){1,2})")
"""The driver's two libraries that every specification with GPUs mounts; their file names end in
the driver's version."""

_CONTROL_NODE = "/dev/nvidiactl"


def cdi_specs(files: Files) -> tuple[CdiSpec, ...] | None:
    """Return the specifications by path; ``None`` where no directory of theirs can be seen.

    A host whose files are all in sight, and which has no such directory, has none.
    """
    run = next((place for place in _RUN if files.names(place) is not None), None)
    places = [place for place in (_FIXED, run) if place and files.names(place) is not None]
    if not places:
        return () if _is_all_in_sight(files) else None
    paths = [
        f"{place}/{name}"
        for place in places
        for name in files.names(place) or ()
        if name.endswith(_SUFFIXES)
    ]
    return tuple(_spec(files, path) for path in sorted(paths)[:_MAX_SPECS])


def _is_all_in_sight(files: Files) -> bool:
    return "os-release" in (files.names("etc") or ()) and files.names("run") is not None


def _spec(files: Files, path: str) -> CdiSpec:
    document = _document(files, path)
    if document is None:
        return CdiSpec(path=f"/{path}")
    edits = [document.get("containerEdits")]
    devices = [device for device in _list(document.get("devices")) if isinstance(device, dict)]
    edits += [device.get("containerEdits") for device in devices]
    known = [edit for edit in edits if isinstance(edit, dict)]
    kind = document.get("kind")
    return CdiSpec(
        path=f"/{path}",
        kind=kind if isinstance(kind, str) else None,
        devices=tuple(str(device["name"]) for device in devices if "name" in device),
        driver_version=_driver_version(known),
        missing=_missing(files, known),
    )


def _document(files: Files, path: str) -> dict[str, Any] | None:
    text = files.text(path)
    if text is None:
        return None
    load = json.load if path.endswith(".json") else yaml.load
    try:
        document = load(text)
    except ValueError as error:
        files.report(path, str(error))
        return None
    if not isinstance(document, dict):
        files.report(path, "not a CDI specification: no mapping")
        return None
    return document


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _host_paths(edits: list[dict[str, Any]], key: str) -> Iterator[str]:
    """Yield where the host has what *key* lists, each once."""
    entries = (one for edit in edits for one in _list(edit.get(key)) if isinstance(one, dict))
    yield from dict.fromkeys(str(one.get("hostPath") or one.get("path") or "") for one in entries)


def _driver_version(edits: list[dict[str, Any]]) -> str | None:
    for path in _host_paths(edits, "mounts"):
        match = _LIBRARY.fullmatch(path.rpartition("/")[2])
        if match:
            return match[1]
    return None


def _missing(files: Files, edits: list[dict[str, Any]]) -> tuple[str, ...]:
    """Return the device nodes that are not there, where the driver's own can be seen."""
    if not _is_there(files, _CONTROL_NODE):
        return ()
    nodes = [path for path in _host_paths(edits, "deviceNodes") if path.startswith("/dev/")]
    return tuple(path for path in nodes[:_MAX_NODES] if not _is_there(files, path))


def _is_there(files: Files, path: str) -> bool:
    place, _, name = normpath(path).rpartition("/")
    return name in (files.names(place.lstrip("/")) or ())
