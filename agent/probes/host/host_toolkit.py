"""NVIDIA's container toolkit on the host.

Source: nvidia-container-toolkit v1.17.8, internal/config/config.go and
cmd/nvidia-ctk-installer (the places of the GPU operator).
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from agent.model.host import ContainerToolkit
from agent.probes.host.host_containerd import load_toml
from agent.probes.sysfs.files import Files

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
        env_when_unprivileged=_flag(document, f"{accept}-envvar-when-unprivileged"),
        volume_mounts=_flag(document, f"{accept}-as-volume-mounts"),
        mode=mode if isinstance(mode, str) else None,
        version=version,
    )


def _flag(document: Mapping[str, Any], key: str) -> bool | None:
    value = document.get(key)
    return value if isinstance(value, bool) else None


def _version(files: Files, places: tuple[str, ...]) -> str | None:
    for place in places:
        match = _VERSION.fullmatch(files.link_name(f"{place}/{_LIBRARY}") or "")
        if match:
            return match[1]
    return None
