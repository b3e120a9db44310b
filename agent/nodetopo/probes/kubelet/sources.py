"""The location of the kubelet's configuration: from its process, or the usual paths."""

import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.probes.kubelet.file import UnusableError, below_root, exists, read_document, read_text
from nodetopo.probes.kubelet.merge import Flag, flags_of, last
from nodetopo.probes.kubelet.process import KubeletProcess, outermost, running_kubelets
from nodetopo.probes.sysfs.tree import Tree

ROOT = "/var/lib/kubelet"
"""The default of ``--root-dir`` (cmd/kubelet/app/options/options.go)."""

MICROK8S = Path("/var/snap/microk8s/current/args/kubelet")
"""One flag a line (canonical/microk8s docs, "Configuring MicroK8s services")."""

SECRET_DIRECTORIES = ("etc/rancher/", "etc/systemd/system/")
"""Directories below the host's root with files that can hold the cluster's token."""

RANCHER = Path("/etc/rancher")
"""On every node of k3s and RKE2, as each keeps ``node/password`` there (k3s pkg/agent/config).
Where it is not seen, it is not mounted: it holds the cluster's token."""

KUBEADM = Path("/var/lib/kubelet/config.yaml")


class UsualPlace(Struct, frozen=True):
    """A usual path of ``--config``, and the directory of drop-ins next to it."""

    config: str
    drop_ins: str = ""
    root_directory: str = ROOT
    embedded_in: str | None = None


USUAL_PLACES = (
    UsualPlace(str(KUBEADM), "/etc/kubernetes/kubelet.conf.d"),  # the directory is from the docs
    UsualPlace(  # EKS
        "/etc/kubernetes/kubelet/config.json", "/etc/kubernetes/kubelet/config.json.d"
    ),
    UsualPlace("/etc/kubernetes/kubelet/kubelet-config.json"),  # EKS on Amazon Linux 2
    UsualPlace("/etc/kubernetes/kubelet/config"),  # Bottlerocket
    UsualPlace("/home/kubernetes/kubelet-config.yaml"),  # GKE
    UsualPlace("/etc/default/kubeletconfig.json"),  # AKS
    UsualPlace("/etc/kubernetes/kubelet.yaml"),  # Talos
    UsualPlace("/var/lib/k0s/kubelet-config.yaml", "", "/var/lib/k0s/kubelet", "k0s"),
    UsualPlace("/etc/kubernetes/kubelet.conf", "/etc/openshift/kubelet.conf.d"),  # OpenShift
)
"""In the order in which they are tried when no kubelet process is seen. The last is a kubeconfig
elsewhere."""

_VARIABLES = {
    "SNAP": "/snap/microk8s/current",
    "SNAP_DATA": "/var/snap/microk8s/current",
    "SNAP_COMMON": "/var/snap/microk8s/common",
}
"""Environment variables set by snapd (https://snapcraft.io/docs/environment-variables)."""

_UNITS = ("etc/systemd/system/{}.service", "etc/systemd/system/{}-agent.service")
"""Where the installation script of k3s puts the command line that its process then hides."""


class Sources(Struct, frozen=True, kw_only=True):
    """The files of one kubelet's settings. Paths as the kubelet sees them."""

    config: Path | None = None
    drop_ins: str | None = None  # as given, since a slash at its end makes a difference
    flags: tuple[Flag, ...] = ()
    told_by: str = ""  # the source of the flags, for people
    root_directory: str = ROOT
    embedded_in: str | None = None
    version: str | None = None
    pid: int | None = None  # of the process that read them; None without one


def find_sources(host: Tree, procfs: Tree) -> Sources:
    """Return where the node's one kubelet has its configuration."""
    kubelets = running_kubelets(procfs)
    if len(kubelets) > 1:
        kubelets = outermost(procfs, kubelets)
    running = [_of_process(host, kubelet) for kubelet in kubelets]
    if len(running) > 1:  # several nodes on one machine: those that this host root can be
        running = [
            kubelet for kubelet in running if kubelet.config and exists(host, kubelet.config)
        ]
    if len(running) > 1:
        pids = ", ".join(str(sources.pid) for sources in running)
        raise UnusableError(str(procfs.root), f"several kubelets run here: pids {pids}")
    return running[0] if running else _at_usual_place(host)


def _of_process(host: Tree, kubelet: KubeletProcess) -> Sources:
    if kubelet.is_inside and kubelet.embedded_in == "microk8s":
        return replace(_microk8s(host, kubelet), pid=kubelet.pid)
    if kubelet.is_inside:
        sources = _rancher(host, kubelet.embedded_in or "")
        if sources.drop_ins is None or not exists(host, Path(sources.drop_ins)):
            reason = "k3s before 1.32 tells the settings of its kubelet to nobody but its log"
            raise UnusableError(sources.drop_ins or "k3s", reason)
        _check_arguments(host, sources)
        return replace(sources, pid=kubelet.pid)
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


def _at_usual_place(host: Tree) -> Sources:
    """Return the sources of a kubelet whose process is not seen."""
    for place in USUAL_PLACES:
        if exists(host, Path(place.config)):
            has_drop_ins = place.drop_ins and exists(host, Path(place.drop_ins))
            return Sources(
                config=Path(place.config),
                drop_ins=f"{place.drop_ins}/" if has_drop_ins else None,
                root_directory=place.root_directory,
                embedded_in=place.embedded_in,
            )
    for name in ("k3s", "rke2"):
        sources = _rancher(host, name)
        if sources.drop_ins and exists(host, Path(sources.drop_ins)):
            _check_arguments(host, sources)
            return sources
    if exists(host, MICROK8S):
        return _microk8s(host)
    raise UnusableError(str(KUBEADM), "no such file, and no kubelet process was seen")


def _absolute(path: str | None, directory: Path | None) -> Path | None:
    if not path or path.startswith("/"):
        return Path(path) if path else None
    if directory is None:
        raise UnusableError(path, "a relative path, and the kubelet's directory is not known")
    return directory / path


def _directory(path: str | None, directory: Path | None) -> str | None:
    absolute = _absolute(path, directory)
    return None if absolute is None else f"{absolute}{'/' * (path or '').endswith('/')}"


def _rancher(host: Tree, name: str) -> Sources:
    """Return the sources of a kubelet that *name*, ``k3s`` or ``rke2``, starts.

    Since 1.32 they have a directory of drop-ins. Flags and data directory are in
    ``/etc/rancher/<name>/config.yaml``, then the files of ``config.yaml.d``, in which the last
    file with a key wins unless the key is written ``key+``; then the unit of systemd
    (https://docs.k3s.io/installation/configuration).
    """
    words: list[tuple[str, Path]] = []
    data = f"/var/lib/rancher/{name}"
    config = Path(f"/etc/rancher/{name}/config.yaml")
    folder = Path(f"{config}.d")
    paths = [config] if exists(host, config) else []
    with suppress(OSError):  # without the directory, which is usual
        names = host.names(below_root(folder))
        paths += [folder / name for name in names if name.endswith((".yaml", ".yml"))]
    for path in paths:
        settings = read_document(host, path) or {}
        if not isinstance(settings, dict):
            raise UnusableError(str(path), "not an object")
        if "kubelet-arg" in settings:
            words = []
        for key in ("kubelet-arg", "kubelet-arg+"):
            value = settings.get(key)
            values = value if isinstance(value, list) else [] if value is None else [value]
            words += [(str(word), path) for word in values]
        data = str(settings.get("data-dir", data))
    for path in (Path("/", unit.format(name)) for unit in _UNITS):
        if exists(host, path):
            started = list(_unit_flags(host, path))
            words += [(value, path) for key, value in started if key == "--kubelet-arg"]
            data = next((value for key, value in started if key == "--data-dir"), data)
    flags = tuple(
        flag
        for word, path in words
        for flag in flags_of((f"--{word.removeprefix('--')}",), f"kubelet-arg of {path}")
        if flag.name not in ("config", "config-dir")  # which k3s turns into drop-ins
    )
    return Sources(
        drop_ins=f"{Path(data)}/agent/etc/kubelet.conf.d",
        flags=flags,
        told_by=f"kubelet-arg of {name}",
        root_directory=last(flags, "root-dir") or ROOT,
        embedded_in=name,
    )


def _check_arguments(host: Tree, sources: Sources) -> None:
    """Raise UnusableError where the drop-ins are seen and ``kubelet-arg``, which wins, is not."""
    if not exists(host, RANCHER):
        reason = "not seen here, and its kubelet-arg wins over the drop-ins; add component configz"
        raise UnusableError(f"{RANCHER}/{sources.embedded_in}/config.yaml", reason)


def _unit_flags(host: Tree, path: Path) -> Iterator[tuple[str, str]]:
    """Yield the long flags with a value of a unit's ``ExecStart``."""
    joined = read_text(host, path).replace("\\\n", " ")
    for line in joined.splitlines():
        if line.strip().startswith("ExecStart="):
            words = _split(line.partition("=")[2], path)
            for word, following in zip(words, [*words[1:], ""], strict=True):
                key, equals, value = word.partition("=")
                yield key, value if equals else following


def _microk8s(host: Tree, kubelet: KubeletProcess | None = None) -> Sources:
    """Return the sources of a kubelet that MicroK8s starts, with the flags in its file."""
    words = kubelet.words if kubelet else ()
    given = [word.partition("=")[2] for word in words if word.startswith("--kubelet-args-file=")]
    path = Path(given[-1]) if given else MICROK8S
    text = " ".join(line.split("#", 1)[0] for line in read_text(host, path).splitlines())
    for name, value in _VARIABLES.items():
        text = re.sub(rf"\$(?:{{{name}}}|{name}\b)", value, text)
    flags = flags_of(_split(text, path), str(path))
    return Sources(
        config=_absolute(last(flags, "config"), None),
        drop_ins=_directory(last(flags, "config-dir"), None),
        flags=flags,
        told_by=str(path),
        root_directory=last(flags, "root-dir") or ROOT,
        embedded_in="microk8s",
    )


def _split(words: str, path: Path) -> list[str]:
    try:
        return shlex.split(words)
    except ValueError as error:
        raise UnusableError(str(path), f"not a command line: {error}") from None
