"""Specifications of the Container Device Interface on the host (CNCF CDI SPEC.md 1.1.0)."""

import re
from collections.abc import Iterable, Iterator
from posixpath import normpath

from agent.formats import json, yaml
from agent.formats.fields import Object, mappings
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
    """Return the specifications by path; None where none of their directories can be seen.

    A host that shows ``/etc`` and ``/run``, and has no such directory, has no specifications.
    """
    run = next((place for place in _RUN if files.names(place) is not None), None)
    places = [place for place in (_FIXED, run) if place and files.names(place) is not None]
    if not places:
        has_etc = "os-release" in (files.names("etc") or ())
        return () if has_etc and files.names("run") is not None else None
    paths = [
        f"{place}/{name}"
        for place in places
        for name in files.names(place) or ()
        if name.endswith(_SUFFIXES)
    ]
    return tuple(_spec(files, path) for path in sorted(paths)[:_MAX_SPECS])


def _spec(files: Files, path: str) -> CdiSpec:
    """Return a specification; only its path where the file cannot be read, with an issue."""
    spec = CdiSpec(path=f"/{path}")
    content = files.text(path)
    if content is None:
        return spec
    load = json.load if path.endswith(".json") else yaml.load
    try:
        document = load(content)
    except ValueError as error:
        files.report(path, str(error))
        return spec
    if not isinstance(document, dict):
        files.report(path, "not a CDI specification: no mapping")
        return spec

    devices = mappings(document, "devices")
    edits = [it.get("containerEdits") for it in (document, *devices)]
    known = [edit for edit in edits if isinstance(edit, dict)]
    libraries = (path.rpartition("/")[2] for path in _host_paths(known, "mounts"))
    versions = (match[1] for match in map(_LIBRARY.fullmatch, libraries) if match)
    missing: tuple[str, ...] = ()
    if _exists(files, _CONTROL_NODE):  # or no device node of the host can be seen
        nodes = [it for it in _host_paths(known, "deviceNodes") if it.startswith("/dev/")]
        missing = tuple(it for it in nodes[:_MAX_NODES] if not _exists(files, it))
    kind = document.get("kind")
    return CdiSpec(
        path=f"/{path}",
        kind=kind if isinstance(kind, str) else None,
        devices=tuple(str(device["name"]) for device in devices if "name" in device),
        driver_version=next(versions, None),
        missing=missing,
    )


def _host_paths(edits: Iterable[Object], key: str) -> Iterator[str]:
    """Yield the host's paths of what *key* lists, each once."""
    entries = (entry for edit in edits for entry in mappings(edit, key))
    yield from dict.fromkeys(str(it.get("hostPath") or it.get("path") or "") for it in entries)


def _exists(files: Files, path: str) -> bool:
    place, _, name = normpath(path).rpartition("/")
    return name in (files.names(place.lstrip("/")) or ())
