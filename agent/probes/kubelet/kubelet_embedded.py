"""Flags of kubelets that are told by files of their distribution, not by a command line."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agent.probes.kubelet.file import UnusableError, document, is_there, text, under
from agent.probes.kubelet.kubelet_flags import Flag, flags_of
from agent.probes.sysfs.tree import Tree

MICROK8S = Path("/var/snap/microk8s/current/args/kubelet")
"""One flag a line (canonical/microk8s docs, "Configuring MicroK8s services")."""

_VARIABLES = {
    "SNAP": "/snap/microk8s/current",
    "SNAP_DATA": "/var/snap/microk8s/current",
    "SNAP_COMMON": "/var/snap/microk8s/common",
}
"""What snapd puts into the environment (https://snapcraft.io/docs/environment-variables)."""

_UNITS = ("etc/systemd/system/{}.service", "etc/systemd/system/{}-agent.service")
"""Where the installation script of k3s puts the command line that its process then hides."""

SECRETIVE = ("etc/rancher/", "etc/systemd/system/")
"""Where the files below are, below the host's root: they may hold the token of the cluster."""


def microk8s_flags(host: Tree, path: Path = MICROK8S) -> tuple[Flag, ...]:
    """Return the flags in MicroK8s' file of the kubelet's arguments.

    Raises:
        UnusableError: it cannot be read.
    """
    lines = (line.split("#", 1)[0] for line in text(host, path).splitlines())
    words = " ".join(lines)
    for name, value in _VARIABLES.items():
        words = re.sub(rf"\$(?:{{{name}}}|{name}\b)", value, words)
    return flags_of(_split(words, path), str(path))


def rancher_flags(host: Tree, name: str) -> tuple[tuple[Flag, ...], Path]:
    """Return the kubelet's flags, and the data directory, of *name*, ``k3s`` or ``rke2``.

    From ``/etc/rancher/<name>/config.yaml``, then the files of ``config.yaml.d``, in which the
    last word on a key wins unless it is written ``key+``; then the unit of systemd
    (https://docs.k3s.io/installation/configuration).

    Raises:
        UnusableError: one of these files is there and cannot be used.
    """
    words: list[tuple[str, str]] = []
    data = f"/var/lib/rancher/{name}"
    for path in _files(host, Path(f"/etc/rancher/{name}/config.yaml")):
        settings = document(host, path) or {}
        if not isinstance(settings, dict):
            raise UnusableError(str(path), "not an object")
        if "kubelet-arg" in settings:
            words = []
        for key in ("kubelet-arg", "kubelet-arg+"):
            words += [(word, str(path)) for word in _listed(settings.get(key))]
        data = str(settings.get("data-dir", data))
    for path in (Path("/", unit.format(name)) for unit in _UNITS):
        if is_there(host, path):
            started = list(_started(host, path))
            words += [(value, str(path)) for key, value in started if key == "--kubelet-arg"]
            data = next((value for key, value in started if key == "--data-dir"), data)
    return tuple(_flags(words)), Path(data)


def _flags(words: list[tuple[str, str]]) -> Iterator[Flag]:
    """Yield the flags of k3s' ``key=value``, without those that k3s turns into drop-ins."""
    for word, place in words:
        found = flags_of((f"--{word.removeprefix('--')}",), f"kubelet-arg of {place}")
        yield from (flag for flag in found if flag.name not in ("config", "config-dir"))


def _files(host: Tree, path: Path) -> Iterator[Path]:
    if is_there(host, path):
        yield path
    folder = Path(f"{path}.d")
    try:
        names = host.names(under(folder))
    except OSError:  # without one, which is usual
        return
    yield from (folder / name for name in names if name.endswith((".yaml", ".yml")))


def _listed(value: Any) -> list[str]:
    if value is None:
        return []
    return [str(item) for item in (value if isinstance(value, list) else [value])]


def _started(host: Tree, path: Path) -> Iterator[tuple[str, str]]:
    """Yield the long flags with a value of a unit's ``ExecStart``."""
    joined = text(host, path).replace("\\\n", " ")
    for line in joined.splitlines():
        if line.strip().startswith("ExecStart="):
            words = _split(line.partition("=")[2], path)
            for word, following in zip(words, [*words[1:], ""], strict=True):
                key, equals, value = word.partition("=")
                yield key, value if equals else following


def _split(words: str, path: Path) -> list[str]:
    try:
        return shlex.split(words)
    except ValueError as error:
        raise UnusableError(str(path), f"not a command line: {error}") from None
