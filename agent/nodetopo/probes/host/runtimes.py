"""Configurations of the host's container runtimes and of NVIDIA's container toolkit."""

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

from nodetopo.formats import safe
from nodetopo.formats.fields import dig, text
from nodetopo.model.host import ContainerToolkit, RuntimeConfig
from nodetopo.probes.host.processes import Limits, Process, limits_of_spec, limits_of_words
from nodetopo.probes.sysfs.files import Files

NAME = "containerd"

PATHS = (
    "etc/containerd/config.toml",
    "var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    "var/lib/rancher/rke2/agent/etc/containerd/config.toml",
    "var/snap/microk8s/current/args/containerd.toml",
    "run/k0s/containerd-cri.toml",
    "etc/cri/containerd.toml",
)
"""Paths of containerd, and of its copies in k3s, RKE2, MicroK8s, k0s and Talos."""

CRIO_NAME = "crio"

FILE = "etc/crio/crio.conf"

DROP_INS = "etc/crio/crio.conf.d"

NVIDIA_PROGRAM = "nvidia-container-runtime"
"""Also the beginning of ``nvidia-container-runtime.cdi`` and ``….legacy``."""

_CONFIG_FLAGS = ("-c", "--config")

_OF_DOCKER = "docker"
"""In the path of the configuration of a containerd that Docker started for itself."""

_SECTIONS = ("io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri", "cri")
"""Of the CRI plugin in configurations of version 3, 2 and 1."""

_DEEP_SINCE = 3
"""Configuration version of containerd 2.0, which has CDI on, and merges imported files key by key;
before, a plugin's whole section was replaced."""

_MAX_FILES = 64

_MAX_SPEC = 1 << 20

_SYSTEMD = "SystemdCgroup"
"""Option of a runtime that runs runc: systemd makes the control groups (containerd
docs/cri/config.md)."""

_HOOKS = (
    "usr/share/containers/oci/hooks.d/oci-nvidia-hook.json",
    "etc/containers/oci/hooks.d/oci-nvidia-hook.json",
)
"""NVIDIA's hook, which gives the default runtime the function of NVIDIA's runtime."""

_OPERATOR = "usr/local/nvidia/toolkit"

_PACKAGES = ("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64")

CONFIGS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        f"{_OPERATOR}/.config/nvidia-container-runtime/config.toml": (_OPERATOR,),
        "etc/nvidia-container-runtime/config.toml": _PACKAGES,
    },
)
"""The toolkit's configurations: the GPU operator's, read only by its own programs, and the
packages'; each with the possible places of its library.
"""

_LIBRARY = "libnvidia-container.so.1"

_VERSION = re.compile(r"libnvidia-container\.so\.([0-9]+\.[0-9]+\.[0-9]+)")
"""The library is released with the toolkit, under the same number (CHANGELOG.md)."""


def runtime_configs(
    files: Files, processes: Iterable[Process] | None
) -> tuple[RuntimeConfig, ...] | None:
    """Return the configurations, containerd's first; None where no file of any exists.

    Those that running programs name by their flags, or else the files at the usual places.
    """
    stated: list[str] = []
    for process in processes or ():
        if process.name == NAME:
            path = _config_flag(process.arguments) or f"/{PATHS[0]}"
            if path.startswith("/") and _OF_DOCKER not in path:
                stated.append(below_root(path))
    configs = [read_containerd(files, path) for path in dict.fromkeys(stated or PATHS)]
    configs.append(read_crio(files))
    return tuple(config for config in configs if config is not None) or None


def _config_flag(words: tuple[str, ...]) -> str | None:
    for position, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in _CONFIG_FLAGS:
            return value if equals else "".join(words[position + 1 : position + 2])
    return None


def read_containerd(files: Files, path: str) -> RuntimeConfig | None:
    """Return containerd's configuration at *path* with its imports; None if it does not exist.

    A part that cannot be read is an issue, and its settings are unknown. Sources: containerd
    docs/cri/config.md and docs/man/containerd-config.toml.5.md, cmd/containerd/server/config/
    config.go of 2.x and services/server/config/config.go of 1.x.
    """
    documents = tuple(_with_imports(files, path))
    if not documents:
        return None
    version = documents[0].get("version")
    is_deep = isinstance(version, int) and version >= _DEEP_SINCE
    section: dict[str, Any] = {}
    for document in documents:
        plugins = _table(document, "plugins")
        for name in reversed(_SECTIONS):
            part = plugins.get(name)
            if isinstance(part, dict):
                section = merge(section, part) if is_deep else dict(part)

    containerd = _table(section, "containerd")
    default = containerd.get("default_runtime_name")
    runtimes = _table(containerd, "runtimes")
    nvidia_runtimes = []
    for name in sorted(runtimes):
        runtime = _table(runtimes, name)
        program = dig(runtime, "options", "BinaryName") or runtime.get("runtime_path")
        if isinstance(program, str) and _is_nvidia(program):
            nvidia_runtimes.append(name)
    limits = _spec_limits(files, _table(runtimes, str(default or "runc")))
    stated = section.get("enable_cdi")
    options = (
        dig(runtimes, name, "options", _SYSTEMD) for name in (*nvidia_runtimes, default or "runc")
    )
    return RuntimeConfig(
        name=NAME,
        path=f"/{path}",
        cdi=stated if isinstance(stated, bool) else (True if is_deep else None),
        default_runtime=default if isinstance(default, str) and default else "runc",
        nvidia_runtimes=tuple(nvidia_runtimes),
        memlock_bytes=limits.memlock_bytes,
        open_files=limits.open_files,
        cdi_dirs=_texts(section.get("cdi_spec_dirs")),
        systemd_cgroup=next((option for option in options if isinstance(option, bool)), None),
    )


def _with_imports(files: Files, path: str) -> Iterator[Mapping[str, Any]]:
    """Yield the main file, then the files that it imports, in merge order."""
    pending, seen = deque([path]), set[str]()
    while pending and len(seen) < _MAX_FILES:
        parent = pending.popleft()
        if parent in seen:
            continue
        seen.add(parent)
        document = load_toml(files, parent)
        if document is None:
            continue
        yield document
        imports = document.get("imports")
        for name in imports if isinstance(imports, list) else ():
            if not isinstance(name, str):
                continue
            target = below_root(name if name.startswith("/") else f"{parent}/../{name}")
            place, _, last = target.rpartition("/")
            if "*" in last:
                names = files.names(place or ".") or ()
                pending.extend(f"{place}/{name}" for name in names if fnmatchcase(name, last))
            else:
                pending.append(target)


def _spec_limits(files: Files, runtime: Mapping[str, Any]) -> Limits:
    """Return the limits of the specification that the runtime's containers begin from."""
    path = text(runtime, "base_runtime_spec")
    content = None if path is None else files.content(below_root(path))
    if path is None or content is None or len(content) > _MAX_SPEC:
        return Limits()
    try:
        return limits_of_spec(json.loads(content))
    except (ValueError, RecursionError) as error:
        files.report(path, f"not JSON: {error}")
        return Limits()


def read_crio(files: Files, path: str = FILE, drop_ins: str = DROP_INS) -> RuntimeConfig | None:
    """Return CRI-O's configuration with all drop-ins; None if neither exists.

    CDI is always on: CRI-O supports it since 1.23, without a switch. systemd manages cgroups unless
    ``cgroup_manager`` is set. Source: CRI-O docs/crio.conf.5.md.
    """
    names = [f"{drop_ins}/{name}" for name in files.names(drop_ins) or ()]
    loaded = (load_toml(files, place) for place in (path, *names[:_MAX_FILES]))
    documents = [document for document in loaded if document is not None]
    if not documents:
        return None
    empty: Mapping[str, Any] = {}
    settings = _table(_table(reduce(merge, documents, empty), "crio"), "runtime")
    words = settings.get("default_ulimits")
    limits = limits_of_words(words if isinstance(words, list) else ())
    default = text(settings, "default_runtime")
    nvidia_runtimes = []
    if any(files.content(hook) is not None for hook in _HOOKS):
        nvidia_runtimes.append(default or "the default runtime")
    for name, runtime in _table(settings, "runtimes").items():
        # Without a path CRI-O looks for a program of the runtime's name.
        if _is_nvidia(str(dig(runtime, "runtime_path") or name)):
            nvidia_runtimes.append(name)
    return RuntimeConfig(
        name=CRIO_NAME,
        path=f"/{path}",
        cdi=True,
        default_runtime=default,
        nvidia_runtimes=tuple(sorted(nvidia_runtimes)),
        memlock_bytes=limits.memlock_bytes,
        open_files=limits.open_files,
        cdi_dirs=_texts(settings.get("cdi_spec_dirs")),
        systemd_cgroup=settings.get("cgroup_manager", "systemd") == "systemd",
    )


def read_toolkit(files: Files) -> ContainerToolkit | None:
    """Return the toolkit's settings; None where it has no configuration that can be read.

    Source: nvidia-container-toolkit v1.17.8, internal/config/config.go and cmd/nvidia-ctk-installer
    (the places of the GPU operator).
    """
    for path, libraries in CONFIGS.items():
        document = load_toml(files, path)
        if document is None:
            continue
        accept = "accept-nvidia-visible-devices"
        as_variable = document.get(f"{accept}-envvar-when-unprivileged")
        as_mounts = document.get(f"{accept}-as-volume-mounts")
        mode = dig(document, "nvidia-container-runtime", "mode")
        links = (files.link_name(f"{place}/{_LIBRARY}") or "" for place in libraries)
        versions = (match[1] for match in map(_VERSION.fullmatch, links) if match)
        return ContainerToolkit(
            path=f"/{path}",
            env_when_unprivileged=as_variable if isinstance(as_variable, bool) else None,
            volume_mounts=as_mounts if isinstance(as_mounts, bool) else None,
            mode=mode if isinstance(mode, str) else None,
            version=next(versions, None),
            cdi_kind=text(document, "nvidia-container-runtime", "modes", "cdi", "default-kind"),
            cdi_dirs=_texts(dig(document, "nvidia-container-runtime", "modes", "cdi", "spec-dirs")),
        )
    return None


def load_toml(files: Files, path: str) -> Mapping[str, Any] | None:
    """Return the document in a file; None where it does not exist, or is not TOML."""
    return files.read(path, safe.load_toml)


def below_root(path: str) -> str:
    """Return an absolute *path* without its slash; no ``..`` in it leads above the root."""
    return normpath(f"/{path}").lstrip("/")


def merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return *under* with the values of *over*, table by table."""
    merged = dict(under)
    for key, value in over.items():
        below = merged.get(key)
        is_table = isinstance(below, dict) and isinstance(value, dict)
        merged[key] = merge(merged[key], value) if is_table else value
    return merged


def _texts(value: Any) -> tuple[str, ...] | None:
    """Return a list's texts; None where *value* is no list."""
    return (
        tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else None
    )


def _table(parent: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return a table; empty where *key* is none."""
    value = parent.get(key)
    return value if isinstance(value, dict) else {}


def _is_nvidia(program: str) -> bool:
    return PurePosixPath(program).name.startswith(NVIDIA_PROGRAM)
