"""NUMA nodes as the kernel numbers them (Documentation/ABI/stable/sysfs-devices-node)."""

import re

from nodetopo.model.numa import CpuSet, HugePages, NumaNode
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.probes.sysfs.files import Files
from nodetopo.probes.sysfs.tree import Root

_NODES = "devices/system/node"
_NODE = re.compile(r"node([0-9]{1,9})")
_SIZE = re.compile(r"hugepages-([0-9]{1,15})kB")
_TOTAL = re.compile(r"MemTotal:\s*([0-9]{1,18}) kB")


def read_numa(sysfs: Root) -> tuple[tuple[NumaNode, ...] | None, tuple[ProbeIssue, ...]]:
    """Return the online nodes, by id; ``None`` if the kernel lists none.

    Ids can be sparse (POWER9: 0, 8, 250 … 255), and a node can lack CPUs or memory.
    """
    files = Files("numa", sysfs)
    ids = node_ids(files)
    if ids is None:
        files.report(_NODES, "the kernel lists no NUMA nodes")
        return None, files.issues
    return tuple(_read_node(files, node) for node in ids), files.issues


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


def _distances(text: str) -> tuple[int, ...]:
    try:
        return tuple(map(int, text.split()))
    except ValueError:
        raise ValueError(f"not a list of numbers: {text[:40]!r}") from None


def _read_node(files: Files, node: int) -> NumaNode:
    place = f"{_NODES}/node{node}"
    cpus = node_cpus(files, node)
    if cpus is None:
        files.report(f"{place}/cpulist", "its CPUs are not known and are taken for none")

    meminfo = files.text(f"{place}/meminfo")
    total = _TOTAL.search(meminfo or "")
    if meminfo is not None and total is None:
        files.report(f"{place}/meminfo", "names no MemTotal")

    distances = files.read(f"{place}/distance", _distances)
    sizes = [
        match for match in map(_SIZE.fullmatch, files.names(f"{place}/hugepages") or ()) if match
    ]
    hugepages = []
    for match in sorted(sizes, key=lambda match: int(match[1])):
        pages = files.number(f"{place}/hugepages/{match[0]}/nr_hugepages")
        free = files.number(f"{place}/hugepages/{match[0]}/free_hugepages")
        if pages is not None:
            hugepages.append(HugePages(size_kib=int(match[1]), total=pages, free=free))
    return NumaNode(
        id=node,
        cpus=cpus or CpuSet(),
        memory_mib=int(total[1]) // 1024 if total else None,
        distances=distances,
        hugepages=tuple(hugepages),
    )
