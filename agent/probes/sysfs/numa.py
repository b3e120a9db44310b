"""NUMA nodes as the kernel numbers them (Documentation/ABI/stable/sysfs-devices-node)."""

import re

from agent.model.numa import CpuSet, HugePages, NumaNode
from agent.model.snapshot import ProbeIssue
from agent.probes.sysfs.files import Files
from agent.probes.sysfs.tree import Root

_NODES = "devices/system/node"
_NODE = re.compile(r"node([0-9]{1,9})")
_SIZE = re.compile(r"hugepages-([0-9]{1,15})kB")
_TOTAL = re.compile(r"MemTotal:\s*([0-9]{1,18}) kB")


def read_numa(sysfs: Root) -> tuple[tuple[NumaNode, ...] | None, tuple[ProbeIssue, ...]]:
    """Return the nodes that are online, by id; ``None`` where the kernel has no NUMA to tell of.

    Ids may be sparse (POWER9: 0, 8, 250 … 255), and a node may have no CPUs or no memory.
    """
    files = Files("numa", sysfs)
    ids = node_ids(files)
    if ids is None:
        files.report(_NODES, "the kernel lists no NUMA nodes")
        return None, files.issues
    return tuple(_node(files, node) for node in ids), files.issues


def node_ids(files: Files) -> tuple[int, ...] | None:
    """Return the ids of the online nodes, ascending; ``None`` if the kernel lists none."""
    names = files.names(_NODES)
    if names is None:
        return None
    ids = sorted(int(match[1]) for match in map(_NODE.fullmatch, names) if match)
    online = files.cpus(f"{_NODES}/online")  # the same list format
    return tuple(node for node in ids if online is None or node in online)


def node_cpus(files: Files, node: int) -> CpuSet | None:
    """Return the online CPUs of a node; ``None`` if they could not be read."""
    cpus = files.cpus(f"{_NODES}/node{node}/cpulist")
    return cpus if cpus is not None else files.cpu_mask(f"{_NODES}/node{node}/cpumap")


def _node(files: Files, node: int) -> NumaNode:
    place = f"{_NODES}/node{node}"
    cpus = node_cpus(files, node)
    if cpus is None:
        files.report(f"{place}/cpulist", "its CPUs are not known and are taken for none")
    return NumaNode(
        id=node,
        cpus=cpus or CpuSet(),
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
