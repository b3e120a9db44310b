"""The processes on the machine that are a kubelet, or run one inside."""

import re
from pathlib import Path

from msgspec import Struct

from nodetopo.model.digits import is_digits
from nodetopo.probes.sysfs.files import Files
from nodetopo.probes.sysfs.tree import Root

EMBEDDING = {
    ("k3s", "agent"): "k3s",
    ("k3s", "server"): "k3s",
    ("k3s-agent", ""): "k3s",
    ("k3s-server", ""): "k3s",
    ("kubelite", ""): "microk8s",
}
"""Program and first word → distribution that runs the kubelet inside another program. k3s hides
its words behind a title of the process (k3s pkg/cli/agent, proctitle.SetProcTitle)."""

OWNERS = (("/rancher/rke2/", "rke2"), ("/var/lib/k0s/", "k0s"), ("/snap/microk8s/", "microk8s"))
"""Part of a kubelet's path → the distribution that starts and configures it."""

_RELEASE = re.compile(r"/(v1\.[0-9]{1,3}\.[0-9]{1,3})[-+/]")
"""RKE2 keeps its programs in ``/var/lib/rancher/rke2/data/v1.34.1-rke2r1-<hash>/bin``."""


class KubeletProcess(Struct, frozen=True, kw_only=True):
    """One running kubelet."""

    pid: int
    words: tuple[str, ...]  # its arguments, without the program
    # The working directory, against which it reads relative paths; None if not visible.
    directory: Path | None = None
    # The distribution that it is a part of; None for a standalone kubelet.
    embedded_in: str | None = None
    is_inside: bool = False  # whether the process is another program, which has a kubelet in it
    version: str | None = None  # ``v1.34.1`` if the program's path has it


def running_kubelets(procfs: Root) -> tuple[KubeletProcess, ...]:
    """Return all kubelets that *procfs* shows, by pid.

    Processes that end meanwhile or are hidden from us are left out.
    """
    files = Files("kubelet", procfs)
    pids = sorted(int(name) for name in files.names(".") or () if is_digits(name))
    kubelets = (_kubelet(files, pid) for pid in pids)
    return tuple(kubelet for kubelet in kubelets if kubelet is not None)


def outermost(procfs: Root, kubelets: tuple[KubeletProcess, ...]) -> tuple[KubeletProcess, ...]:
    """Return the *kubelets* outside of containers, or all if unknown.

    A cluster inside a pod has kubelets too, and any container can name a program so. Each has a
    separate pid namespace (``NSpid``, proc_pid_status(5)).
    """
    files = Files("kubelet", procfs)

    def is_contained(pid: int) -> bool:
        status = files.content(f"{pid}/status") or b""
        ids = [line.split()[1:] for line in status.splitlines() if line.startswith(b"NSpid:")]
        return bool(ids) and len(ids[0]) > 1

    return tuple(kubelet for kubelet in kubelets if not is_contained(kubelet.pid)) or kubelets


def is_kubelet(arguments: list[str]) -> bool:
    """Return whether a command line belongs to a standalone kubelet."""
    return Path(arguments[0]).name == "kubelet"


def arguments(command_line: bytes) -> list[str]:
    """Split the bytes of ``/proc/<pid>/cmdline``; a kernel thread has one empty argument."""
    return command_line.decode("utf-8", "replace").rstrip("\0").split("\0")


def _kubelet(files: Files, pid: int) -> KubeletProcess | None:
    words = arguments(files.content(f"{pid}/cmdline") or b"")
    if is_kubelet(words):
        directory = files.link(f"{pid}/cwd")
        return KubeletProcess(
            pid=pid,
            words=tuple(words[1:]),
            directory=None if directory is None else Path(directory),
            embedded_in=next((name for part, name in OWNERS if part in words[0]), None),
            version=next(iter(_RELEASE.findall(words[0])), None),
        )
    titled = words[0].split(" ")  # a title has its words in the first argument
    program, first = Path(titled[0]).name, next(iter((*titled[1:], *words[1:])), "")
    embedding = EMBEDDING.get((program, first)) or EMBEDDING.get((program, ""))
    if embedding is None:
        return None
    return KubeletProcess(pid=pid, words=tuple(words[1:]), embedded_in=embedding, is_inside=True)
