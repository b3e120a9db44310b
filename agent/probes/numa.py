"""NUMA nodes as the kernel numbers them (Documentation/ABI/stable/sysfs-devices-node)."""

import re
from pathlib import Path

from agent.model.numa import CpuSet, HugePages, NumaNode
from agent.model.snapshot import ProbeIssue
from agent.probes.files import Files

_NODES = "devices/system/node"
_NODE = re.compile(r"node([0-9]+)")
_SIZE = re.compile(r"hugepages-([0-9]+)kB")
_TOTAL = re.compile(r"MemTotal:\s*([0-9]+) kB")


def read_numa(sysfs: Path) -> tuple[tuple[NumaNode, ...] | None, tuple[ProbeIssue, ...]]:
    """Return the nodes by id; ``None`` where the kernel has no NUMA support to tell of.

    Ids may be sparse and a node may have no CPUs or no memory.
    """
    files = Files("numa", sysfs)
    names = files.names(_NODES)
    if names is None:
        files.report(_NODES, "the kernel lists no NUMA nodes")
        return None, files.issues
    ids = sorted(int(match[1]) for match in map(_NODE.fullmatch, names) if match)
    return tuple(_node(files, node) for node in ids), files.issues


def _node(files: Files, node: int) -> NumaNode:
    place = f"{_NODES}/node{node}"
    return NumaNode(
        id=node,
        cpus=files.cpus(f"{place}/cpulist") or CpuSet(),
        memory_mib=_memory_mib(files, f"{place}/meminfo"),
        distances=_distances(files, f"{place}/distance"),
        hugepages=_hugepages(files, f"{place}/hugepages"),
    )


def _memory_mib(files: Files, path: str) -> int | None:
    text = files.text(path)
    match = _TOTAL.search(text or "")
    if text is not None and match is None:
        files.report(path, "names no MemTotal")
    return int(match[1]) // 1024 if match else None


def _distances(files: Files, path: str) -> tuple[int, ...] | None:
    text = files.text(path)
    if text is None:
        return None
    try:
        return tuple(map(int, text.split()))
    except ValueError:
        files.report(path, f"not a list of numbers: {text[:40]!r}")
        return None


def _hugepages(files: Files, path: str) -> tuple[HugePages, ...]:
    sizes = (match for match in map(_SIZE.fullmatch, files.names(path) or ()) if match)
    pages = []
    for match in sorted(sizes, key=lambda match: int(match[1])):
        total = files.number(f"{path}/{match[0]}/nr_hugepages")
        free = files.number(f"{path}/{match[0]}/free_hugepages")
        if total is not None:
            pages.append(HugePages(size_kib=int(match[1]), total=total, free=free))
    return tuple(pages)
