"""Cgroup file systems as the kubelet and container runtimes lay them out, to be read by probes."""

from collections.abc import Mapping
from pathlib import Path

UID = "11111111-2222-3333-4444-555555555555"
APP, SIDE, SANDBOX, MONITOR = "a" * 64, "b" * 64, "c" * 64, "d" * 64
UNIT = UID.replace("-", "_")

Files = Mapping[str, str]
"""File of one cgroup → its content."""


def unified(sysfs: Path, groups: Mapping[str, Files]) -> Path:
    """Write a hierarchy of version 2 below *sysfs*; path of a cgroup → its files."""
    root = sysfs / "fs/cgroup"
    root.mkdir(parents=True)
    (root / "cgroup.controllers").write_text("cpuset cpu memory\n")
    for path, files in groups.items():
        _write(root / path, files)
    return sysfs


def split(sysfs: Path, groups: Mapping[str, Files], times: str = "cpu,cpuacct") -> Path:
    """Write the hierarchies of version 1 that have CPU sets and, in *times*, CPU time."""
    for path, files in groups.items():
        sets = {name: text for name, text in files.items() if name.startswith("cpuset")}
        _write(sysfs / "fs/cgroup/cpuset" / path, sets)
        others = {name: text for name, text in files.items() if name not in sets}
        _write(sysfs / f"fs/cgroup/{times}" / path, others)
    return sysfs


def group(cpus: str, mems: str = "0-1", *, throttled: int = 0, weight: int = 39) -> Files:
    """Return the files of a cgroup of version 2."""
    return {
        "cpuset.cpus.effective": f"{cpus}\n",
        "cpuset.mems.effective": f"{mems}\n",
        "cpu.stat": f"usage_usec 12\nnr_periods 9\nnr_throttled {throttled}\nthrottled_usec 1\n",
        "cpu.weight": f"{weight}\n",
    }


def old_group(cpus: str, mems: str = "0-1", *, throttled: int = 0, shares: int = 1024) -> Files:
    """Return the files of a cgroup of version 1."""
    return {
        "cpuset.cpus": f"{cpus}\n",
        "cpuset.mems": f"{mems}\n",
        "cpu.stat": f"nr_periods 9\nnr_throttled {throttled}\nthrottled_time 1\n",
        "cpu.shares": f"{shares}\n",
    }


def _write(place: Path, files: Files) -> None:
    place.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (place / name).write_text(text)
