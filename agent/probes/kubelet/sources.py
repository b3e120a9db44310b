"""Where the configuration of the node's kubelet is: as its process says, or where it usually is."""

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agent.probes.kubelet.file import UnusableError, document, is_there, text, under
from agent.probes.kubelet.merge import Flag, flags_of, last
from agent.probes.kubelet.process import KubeletProcess, outermost, running_kubelets
from agent.probes.sysfs.tree import Tree

# Flags of kubelets that are told by files of their distribution, not by a command line.

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


ROOT = "/var/lib/kubelet"
"""The default of ``--root-dir`` (cmd/kubelet/app/options/options.go)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where the settings of one kubelet are. Paths as the kubelet names them.

    Attributes:
        drop_ins: as given, since a slash at its end makes a difference.
        told_by: what has the flags, as a person reads it.
        pid: of the process that read them; ``None`` where none is seen.
    """

    config: Path | None = None
    drop_ins: str | None = None
    flags: tuple[Flag, ...] = ()
    told_by: str = ""
    root_directory: str = ROOT
    embedded_in: str | None = None
    version: str | None = None
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """A file of ``--config`` at its usual place, and the directory of drop-ins beside it."""

    config: str
    drop_ins: str = ""
    root_directory: str = ROOT
    embedded_in: str | None = None


KUBEADM = Path("/var/lib/kubelet/config.yaml")


PLACES = (
    Place(str(KUBEADM), "/etc/kubernetes/kubelet.conf.d"),  # and the documentation's directory
    Place("/etc/kubernetes/kubelet/config.json", "/etc/kubernetes/kubelet/config.json.d"),  # EKS
    Place("/etc/kubernetes/kubelet/kubelet-config.json"),  # EKS on Amazon Linux 2
    Place("/etc/kubernetes/kubelet/config"),  # Bottlerocket
    Place("/home/kubernetes/kubelet-config.yaml"),  # GKE
    Place("/etc/default/kubeletconfig.json"),  # AKS
    Place("/etc/kubernetes/kubelet.yaml"),  # Talos
    Place("/var/lib/k0s/kubelet-config.yaml", "", "/var/lib/k0s/kubelet", "k0s"),
    Place("/etc/kubernetes/kubelet.conf", "/etc/openshift/kubelet.conf.d"),  # OpenShift
)
"""Looked at in this order when no kubelet process is seen. The last is a kubeconfig elsewhere."""


def find_sources(host: Tree, procfs: Tree) -> Sources:
    """Return where the node's one kubelet has its configuration.

    Raises:
        UnusableError: there is no kubelet, or several, or one whose files cannot be told.
    """
    kubelets = running_kubelets(procfs)
    if len(kubelets) > 1:
        kubelets = outermost(procfs, kubelets)
    running = [_of_process(host, kubelet) for kubelet in kubelets]
    if len(running) > 1:  # several nodes on one machine: those that this host root can be
        running = [it for it in running if it.config and is_there(host, it.config)]
    if len(running) == 1:
        return running[0]
    if running:
        pids = ", ".join(str(sources.pid) for sources in running)
        raise UnusableError(str(procfs.root), f"several kubelets run here: pids {pids}")
    return _unseen(host)


def _of_process(host: Tree, kubelet: KubeletProcess) -> Sources:
    if kubelet.is_inside:
        told = _EMBEDDED[kubelet.embedded_in or ""](host, kubelet)
        return replace(told, pid=kubelet.pid)
    flags = flags_of(kubelet.words)
    return Sources(
        config=_absolute(last(flags, "config"), kubelet.directory),
        drop_ins=_directory(last(flags, "config-dir"), kubelet.directory),
        flags=flags,
        told_by=f"flags of pid {kubelet.pid}",
        root_directory=last(flags, "root-dir") or ROOT,
        embedded_in=kubelet.embedded_in,
        version=kubelet.version,
        pid=kubelet.pid,
    )


def _absolute(path: str | None, directory: Path | None) -> Path | None:
    if not path or path.startswith("/"):
        return Path(path) if path else None
    if directory is None:
        raise UnusableError(path, "a relative path, and the kubelet's directory is not known")
    return directory / path


def _directory(path: str | None, directory: Path | None) -> str | None:
    absolute = _absolute(path, directory)
    return None if absolute is None else f"{absolute}{'/' * (path or '').endswith('/')}"


def _unseen(host: Tree) -> Sources:
    for place in PLACES:
        if is_there(host, Path(place.config)):
            has_drop_ins = place.drop_ins and is_there(host, Path(place.drop_ins))
            return Sources(
                config=Path(place.config),
                drop_ins=f"{place.drop_ins}/" if has_drop_ins else None,
                root_directory=place.root_directory,
                embedded_in=place.embedded_in,
            )
    for name in ("k3s", "rke2"):
        told = _rancher(host, name)
        if told.drop_ins and is_there(host, Path(told.drop_ins)):
            return told
    if is_there(host, MICROK8S):
        return _microk8s(host)
    raise UnusableError(str(KUBEADM), "no such file, and no kubelet process was seen")


def _rancher(host: Tree, name: str) -> Sources:
    """Return the sources of a kubelet that k3s or RKE2 starts, since 1.32 with a directory."""
    flags, data = rancher_flags(host, name)
    return Sources(
        drop_ins=f"{data}/agent/etc/kubelet.conf.d",
        flags=flags,
        told_by=f"kubelet-arg of {name}",
        root_directory=last(flags, "root-dir") or ROOT,
        embedded_in=name,
    )


def _k3s(host: Tree, kubelet: KubeletProcess) -> Sources:
    told = _rancher(host, kubelet.embedded_in or "")
    if told.drop_ins is None or not is_there(host, Path(told.drop_ins)):
        reason = "k3s before 1.32 tells the settings of its kubelet to nobody but its log"
        raise UnusableError(told.drop_ins or "k3s", reason)
    return told


def _microk8s(host: Tree, kubelet: KubeletProcess | None = None) -> Sources:
    words = kubelet.words if kubelet else ()
    given = [word.partition("=")[2] for word in words if word.startswith("--kubelet-args-file=")]
    path = Path(given[-1]) if given else MICROK8S
    flags = microk8s_flags(host, path)
    return Sources(
        config=_absolute(last(flags, "config"), None),
        drop_ins=_directory(last(flags, "config-dir"), None),
        flags=flags,
        told_by=str(path),
        root_directory=last(flags, "root-dir") or ROOT,
        embedded_in="microk8s",
    )


_EMBEDDED: dict[str, Callable[[Tree, KubeletProcess], Sources]] = {
    "k3s": _k3s,
    "microk8s": _microk8s,
}
