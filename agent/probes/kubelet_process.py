"""The kubelets that run on the machine, and the flags they were started with."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path


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


def running_kubelets(procfs: Path, wanted: Iterable[str]) -> tuple[KubeletProcess, ...]:
    """Return all kubelets that *procfs* shows, by pid, with those of their flags in *wanted*.

    Processes that end meanwhile or are hidden from us are left out. A kubelet inside
    another program (k3s, microk8s) is not found.
    """
    names = frozenset(wanted)
    return tuple(
        KubeletProcess(
            pid=pid,
            flags=_flags(arguments[1:], names),
            directory=_directory(procfs / str(pid)),
        )
        for pid in _pids(procfs)
        if Path((arguments := _command_line(procfs / str(pid)))[0]).name == "kubelet"
    )


def _pids(procfs: Path) -> list[int]:
    try:
        return sorted(int(entry.name) for entry in procfs.iterdir() if entry.name.isdecimal())
    except OSError:
        return []


def _command_line(process: Path) -> list[str]:
    try:
        raw = (process / "cmdline").read_bytes()
    except OSError:
        return [""]
    return raw.decode("utf-8", "replace").rstrip("\0").split("\0")


def _directory(process: Path) -> Path | None:
    try:
        return (process / "cwd").readlink()
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
