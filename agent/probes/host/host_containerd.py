"""containerd's configuration, as far as GPUs depend on it.

Sources: containerd docs/cri/config.md and docs/man/containerd-config.toml.5.md,
cmd/containerd/server/config/config.go of 2.x and services/server/config/config.go of 1.x.
"""

import json
from collections import deque
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from posixpath import normpath
from typing import Any

from agent.formats import toml
from agent.model.host import RuntimeConfig
from agent.probes.host.runtime_limits import Limits, limits_of_spec
from agent.probes.sysfs.files import Files

NAME = "containerd"
PATHS = (
    "etc/containerd/config.toml",
    "var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    "var/lib/rancher/rke2/agent/etc/containerd/config.toml",
    "var/snap/microk8s/current/args/containerd.toml",
    "run/k0s/containerd-cri.toml",
    "etc/cri/containerd.toml",
)
"""Its own, that of k3s, RKE2, MicroK8s, k0s and Talos."""

NVIDIA_PROGRAM = "nvidia-container-runtime"
"""Also the beginning of ``nvidia-container-runtime.cdi`` and ``….legacy``."""

_SECTIONS = ("io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri", "cri")
"""Of the CRI plugin in configurations of version 3, 2 and 1."""

_DEEP_SINCE = 3
"""Configuration version of containerd 2.0, which has CDI on, and merges imported files key by key;
before, a plugin's whole section was replaced."""

_MAX_FILES = 64
_MAX_SPEC = 1 << 20


def read_containerd(files: Files, path: str) -> RuntimeConfig | None:
    """Return what the file *path* says with all that it imports; ``None`` if it is not there.

    The part of it that cannot be read is an issue, and what it would have said unknown.
    """
    documents = tuple(_documents(files, path))
    if not documents:
        return None
    version = documents[0].get("version")
    is_deep = isinstance(version, int) and version >= _DEEP_SINCE
    section = _section(documents, is_deep=is_deep)
    containerd = _table(section, "containerd")
    default = containerd.get("default_runtime_name")
    runtimes = _table(containerd, "runtimes")
    stated = section.get("enable_cdi")
    limits = _limits(files, _table(runtimes, str(default or "runc")))
    return RuntimeConfig(
        name=NAME,
        path=f"/{path}",
        cdi=stated if isinstance(stated, bool) else (True if is_deep else None),
        default_runtime=default if isinstance(default, str) and default else "runc",
        nvidia_runtimes=tuple(sorted(name for name in runtimes if _is_nvidia(runtimes, name))),
        memlock_bytes=limits.memlock_bytes,
        open_files=limits.open_files,
    )


def _documents(files: Files, path: str) -> Iterator[Mapping[str, Any]]:
    """Yield the main file, then those that it imports, in the order in which they are merged."""
    pending, seen = deque([path]), set[str]()
    while pending and len(seen) < _MAX_FILES:
        at = pending.popleft()
        if at in seen:
            continue
        seen.add(at)
        document = load_toml(files, at)
        if document is not None:
            yield document
            pending.extend(_imports(files, at, document))


def load_toml(files: Files, path: str) -> Mapping[str, Any] | None:
    """Return the document in a file; ``None`` where it is not there, or not TOML."""
    text = files.text(path)
    if text is None:
        return None
    try:
        return toml.load(text)
    except ValueError as error:
        files.report(path, str(error))
        return None


def _imports(files: Files, parent: str, document: Mapping[str, Any]) -> Iterator[str]:
    imports = document.get("imports")
    for name in imports if isinstance(imports, list) else ():
        if not isinstance(name, str):
            continue
        path = below_root(name if name.startswith("/") else f"{parent}/../{name}")
        place, _, last = path.rpartition("/")
        if "*" not in last:
            yield path
            continue
        found = files.names(place or ".") or ()
        yield from (f"{place}/{each}" for each in found if fnmatchcase(each, last))


def below_root(path: str) -> str:
    """Return an absolute *path* without its slash; no ``..`` in it leads above the root."""
    return normpath(f"/{path}").lstrip("/")


def _section(documents: tuple[Mapping[str, Any], ...], *, is_deep: bool) -> Mapping[str, Any]:
    merged: dict[str, Any] = {}
    for document in documents:
        plugins = _table(document, "plugins")
        for name in reversed(_SECTIONS):
            section = plugins.get(name)
            if isinstance(section, dict):
                merged = merge(merged, section) if is_deep else dict(section)
    return merged


def merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return *under* with the values of *over*, table by table."""
    both = dict(under)
    for key, value in over.items():
        below = both.get(key)
        is_table = isinstance(below, dict) and isinstance(value, dict)
        both[key] = merge(both[key], value) if is_table else value
    return both


def _table(of: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = of.get(key)
    return value if isinstance(value, dict) else {}


def _is_nvidia(runtimes: Mapping[str, Any], name: str) -> bool:
    runtime = _table(runtimes, name)
    program = _table(runtime, "options").get("BinaryName") or runtime.get("runtime_path")
    return isinstance(program, str) and PurePosixPath(program).name.startswith(NVIDIA_PROGRAM)


def _limits(files: Files, runtime: Mapping[str, Any]) -> Limits:
    """Return those of the specification that the runtime's containers begin from."""
    path = runtime.get("base_runtime_spec")
    if not isinstance(path, str) or not path:
        return Limits()
    content = files.content(below_root(path))
    if content is None or len(content) > _MAX_SPEC:
        return Limits()
    try:
        return limits_of_spec(json.loads(content))
    except (ValueError, RecursionError) as error:
        files.report(str(path), f"not JSON: {error}")
        return Limits()
