"""Configurations of the container runtimes of the host."""

import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import reduce
from pathlib import PurePosixPath
from posixpath import normpath
from types import MappingProxyType
from typing import Any

from agent.formats import toml
from agent.model.host import ContainerToolkit, RuntimeConfig
from agent.probes.host.processes import Limits, Process, limits_of_spec, limits_of_words
from agent.probes.sysfs.files import Files

# containerd's configuration, as far as GPUs depend on it.
#
# Sources: containerd docs/cri/config.md and docs/man/containerd-config.toml.5.md,
# cmd/containerd/server/config/config.go of 2.x and services/server/config/config.go of 1.x.

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


# CRI-O's configuration, as far as GPUs depend on it (CRI-O docs/crio.conf.5.md).

CRIO_NAME = "crio"


FILE = "etc/crio/crio.conf"


DROP_INS = "etc/crio/crio.conf.d"


_HOOKS = (
    "usr/share/containers/oci/hooks.d/oci-nvidia-hook.json",
    "etc/containers/oci/hooks.d/oci-nvidia-hook.json",
)
"""NVIDIA's hook, by which the default runtime does what NVIDIA's runtime does."""


def read_crio(files: Files, path: str = FILE, drop_ins: str = DROP_INS) -> RuntimeConfig | None:
    """Return what the file and all drop-ins say; ``None`` where there is none of them.

    CDI is always on: CRI-O 1.23 began with it, and has no switch.
    """
    documents = tuple(_crio_documents(files, path, drop_ins))
    if not documents:
        return None
    empty: Mapping[str, Any] = {}
    crio = reduce(merge, documents, empty).get("crio")
    runtime = crio.get("runtime") if isinstance(crio, dict) else None
    settings = runtime if isinstance(runtime, dict) else {}
    default, words = settings.get("default_runtime"), settings.get("default_ulimits")
    limits = limits_of_words(words if isinstance(words, list) else ())
    name = default if isinstance(default, str) and default else None
    return RuntimeConfig(
        name=CRIO_NAME,
        path=f"/{path}",
        cdi=True,
        default_runtime=name,
        nvidia_runtimes=tuple(sorted(_nvidia(files, settings, name))),
        memlock_bytes=limits.memlock_bytes,
        open_files=limits.open_files,
    )


def _crio_documents(files: Files, path: str, drop_ins: str) -> Iterator[Mapping[str, Any]]:
    names = [f"{drop_ins}/{name}" for name in files.names(drop_ins) or ()]
    for place in (path, *names[:_MAX_FILES]):
        document = load_toml(files, place)
        if document is not None:
            yield document


def _nvidia(files: Files, settings: Mapping[str, Any], default: str | None) -> Iterator[str]:
    if any(files.content(hook) is not None for hook in _HOOKS):
        yield default or "the default runtime"
    runtimes = settings.get("runtimes")
    for name, runtime in runtimes.items() if isinstance(runtimes, dict) else ():
        program = runtime.get("runtime_path") if isinstance(runtime, dict) else None
        # Without a path CRI-O looks for a program of the runtime's name.
        if PurePosixPath(str(program or name)).name.startswith(NVIDIA_PROGRAM):
            yield name


# NVIDIA's container toolkit on the host.
#
# Source: nvidia-container-toolkit v1.17.8, internal/config/config.go and
# cmd/nvidia-ctk-installer (the places of the GPU operator).

_OPERATOR = "usr/local/nvidia/toolkit"


_PACKAGES = ("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64")


CONFIGS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        f"{_OPERATOR}/.config/nvidia-container-runtime/config.toml": (_OPERATOR,),
        "etc/nvidia-container-runtime/config.toml": _PACKAGES,
    },
)
"""Of the GPU operator, whose programs read theirs and no other, and of packages; each with where
its library may be, which is not that of the other."""


_LIBRARY = "libnvidia-container.so.1"


_VERSION = re.compile(r"libnvidia-container\.so\.([0-9]+\.[0-9]+\.[0-9]+)")
"""The library is released with the toolkit, under the same number (CHANGELOG.md)."""


def read_toolkit(files: Files) -> ContainerToolkit | None:
    """Return its settings; ``None`` where it has no configuration file that can be read."""
    for path, libraries in CONFIGS.items():
        document = load_toml(files, path)
        if document is not None:
            return _toolkit(path, document, _version(files, libraries))
    return None


def _toolkit(path: str, document: Mapping[str, Any], version: str | None) -> ContainerToolkit:
    accept = "accept-nvidia-visible-devices"
    runtime = document.get("nvidia-container-runtime")
    mode = runtime.get("mode") if isinstance(runtime, dict) else None
    return ContainerToolkit(
        path=f"/{path}",
        env_when_unprivileged=_toolkit_flag(document, f"{accept}-envvar-when-unprivileged"),
        volume_mounts=_toolkit_flag(document, f"{accept}-as-volume-mounts"),
        mode=mode if isinstance(mode, str) else None,
        version=version,
    )


def _toolkit_flag(document: Mapping[str, Any], key: str) -> bool | None:
    value = document.get(key)
    return value if isinstance(value, bool) else None


def _version(files: Files, places: tuple[str, ...]) -> str | None:
    for place in places:
        match = _VERSION.fullmatch(files.link_name(f"{place}/{_LIBRARY}") or "")
        if match:
            return match[1]
    return None


_CONFIG_FLAGS = ("-c", "--config")


_OF_DOCKER = "docker"
"""In the path of the configuration of a containerd that Docker started for itself."""


def runtime_configs(
    files: Files, processes: Iterable[Process] | None
) -> tuple[RuntimeConfig, ...] | None:
    """Return the configurations, containerd's first; ``None`` where no file of any is there.

    Those that running programs name by their flags, and else the files at the usual places.
    """
    stated = tuple(_stated(processes or ()))
    paths = dict.fromkeys(stated or PATHS)
    found = [read_containerd(files, path) for path in paths]
    found.append(read_crio(files))
    return tuple(config for config in found if config is not None) or None


def _stated(processes: Iterable[Process]) -> Iterator[str]:
    for process in processes:
        if process.name != NAME:
            continue
        path = _flag(process.arguments) or f"/{PATHS[0]}"
        if path.startswith("/") and _OF_DOCKER not in path:
            yield below_root(path)


def _flag(words: tuple[str, ...]) -> str | None:
    for position, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in _CONFIG_FLAGS:
            return value if equals else "".join(words[position + 1 : position + 2])
    return None
