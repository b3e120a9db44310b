"""The kubelets that run on the machine, and the flags they were started with."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.probes.tree import Root, Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletProcess:
    """One running kubelet.

    Attributes:
        flags: name without dashes → value, of those that were asked for.
        directory: the working directory, against which it reads relative paths; ``None``
            where the system does not show it.
    """

    pid: int
    flags: Mapping[str, str]
    directory: Path | None


def running_kubelets(procfs: Root, wanted: Iterable[str]) -> tuple[KubeletProcess, ...]:
    """Return all kubelets that *procfs* shows, by pid, with those of their flags in *wanted*.

    Processes that end meanwhile or are hidden from us are left out. A kubelet inside
    another program (k3s, microk8s) is not found.
    """
    names, tree = frozenset(wanted), Tree.of(procfs)
    return tuple(
        KubeletProcess(
            pid=pid,
            flags=_flags(words[1:], names),
            directory=_directory(tree, pid),
        )
        for pid in _pids(tree)
        if is_kubelet(words := _command_line(tree, pid))
    )


def is_kubelet(arguments: list[str]) -> bool:
    """Tell whether a command line is that of a kubelet."""
    return Path(arguments[0]).name == "kubelet"


def _pids(tree: Tree) -> list[int]:
    try:
        return sorted(int(name) for name in tree.names(".") if name.isdecimal())
    except OSError:
        return []


def _command_line(tree: Tree, pid: int) -> list[str]:
    try:
        return arguments(tree.content(f"{pid}/cmdline"))
    except OSError:
        return [""]


def arguments(command_line: bytes) -> list[str]:
    """Split the bytes of ``/proc/<pid>/cmdline``; a kernel thread has one empty argument."""
    return command_line.decode("utf-8", "replace").rstrip("\0").split("\0")


def _directory(tree: Tree, pid: int) -> Path | None:
    try:
        return Path(tree.link(f"{pid}/cwd"))
    except OSError:
        return None


def _flags(arguments: list[str], wanted: frozenset[str]) -> dict[str, str]:
    """Read flags as pflag does: ``--a=b`` and ``--a b``, _ for -, and the last one wins."""
    found = {}
    for position, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        name = name.removeprefix("--").replace("_", "-")
        if argument.startswith("--") and name in wanted:
            following = arguments[position + 1 : position + 2]
            found[name] = value if equals else "".join(following)
    return found
