"""The lines of the tree: what is said of NUMA nodes, bridges, devices and ports."""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from nodetopo.formats.harmless import clean
from nodetopo.model.hca import HcaPort
from nodetopo.model.numa import CpuSet, NumaNode
from nodetopo.model.snapshot import Snapshot

GROUPS = {
    "PIX": "at most one PCIe switch",
    "PXB": "PCIe switches below one root port",
    "PHB": "one host bridge",
}
"""What the closeness of devices says of the place they share, where no PCI tree is known."""


def title(branch: dict[str, Any]) -> str:
    """Return what the tree says of *branch*, an object of the JSON answer."""
    return clean(" · ".join(filter(None, _parts(branch))))


def _parts(branch: dict[str, Any]) -> Iterator[str | None]:
    """Yield what a line joins by dots; ``None`` and nothing for what is not known."""
    name = branch["name"]
    match branch["kind"]:
        case "numa":
            memory = branch["memory_mib"]
            yield f"NUMA {'?' if name is None else name}"
            yield f"CPUs {branch['cpus']}" if branch["cpus"] else None
            yield f"{memory / 1024:.0f} GiB" if memory is not None else None
        case "root":
            yield name
        case "switch" | "bridge":
            yield f"{'switch' if branch['kind'] == 'switch' else 'PCI bridge'} {name}"
            yield f"PCIe {branch['link']}" if branch["link"] else None
        case "group":
            yield f"{GROUPS[name]} ({name})"
        case "mig":
            ids = (("GI", branch["gpu_instance"]), ("CI", branch["compute_instance"]))
            memory = branch["memory_mib"]
            yield f"MIG {name or '?'}"
            yield " ".join(f"{what} {number}" for what, number in ids if number is not None)
            yield f"{memory / 1024:.1f} GiB" if memory is not None else None
        case _:
            label = branch["label"] if branch["label"] != name else None
            yield " ".join(filter(None, (name, label, branch["pci"], branch["product"])))
            yield _remark(branch)
            yield f"PCIe {branch['link']}" if branch["link"] else None
            yield from branch["ports"]


def _remark(branch: dict[str, Any]) -> str | None:
    """Return what is special about a device; ``None`` for most."""
    match branch:
        case {"lost": True}:
            return "lost"
        case {"kind": "nvlink-management"}:
            return "manages NVLink, not for jobs"
        case {"kind": "data-direct", "serves": serves}:
            return "Data Direct" + (f" of {', '.join(serves)}" if serves else "")
        case {"mig": True, "children": []}:
            return "MIG on, no instances"
        case {"part": ("virtual-function" | "subfunction" | "bond" | "software") as part}:
            return str(part).replace("-", " ")
    return None


def port_text(port: HcaPort) -> str:
    """Return e.g. ``InfiniBand 400 Gb/s``, with the state where it is not ACTIVE."""
    parts = (
        port.layer.value if port.layer else None,
        None if port.rate_gbps is None else f"{port.rate_gbps:g} Gb/s",
        None if port.state in (None, "ACTIVE") else port.state,
    )
    return " ".join(filter(None, parts))


class MemoryNodes(Struct, frozen=True, kw_only=True):
    """Neighbouring NUMA nodes without CPUs, on one line: a GB200 tray has 32 of them."""

    nodes: tuple[int, ...]  # ids, ascending
    gpu: str | None  # row name of the GPU whose memory they are; None where no GPU claims them
    memory_mib: int | None  # of all together; None if unknown of one

    def __str__(self) -> str:
        whose = "memory without CPUs" if self.gpu is None else f"{self.gpu}'s memory"
        size = f" · {self.memory_mib / 1024:.0f} GiB" if self.memory_mib else ""
        return f"NUMA {CpuSet.of(self.nodes)}: {whose}{size}"


def memory_nodes(snapshot: Snapshot) -> tuple[MemoryNodes, ...]:
    """Return the nodes that have neither CPUs nor devices, joined by the GPU they belong to.

    A GPU of a Grace machine names one node, the first of its own; seven more follow, for its
    MIG instances (a GH200 with one GPU shows nine nodes, one of them with CPUs). That the nodes
    up to the next GPU's are its own is inferred from this: no file says it.
    """
    with_devices = {gpu.numa_node for gpu in snapshot.gpus}
    with_devices |= {hca.numa_node for hca in snapshot.hcas or ()}
    owners = {gpu.memory_numa_node: gpu.name for gpu in snapshot.gpus}
    owners.pop(None, None)
    runs: list[list[NumaNode]] = []
    for node in snapshot.numa_nodes or ():
        if len(node.cpus) or node.id in with_devices:
            continue
        if runs and node.id not in owners and node.id == runs[-1][-1].id + 1:
            runs[-1].append(node)
        else:
            runs.append([node])
    groups = []
    for run in runs:
        sizes = [node.memory_mib for node in run]
        known = [size for size in sizes if size is not None]
        groups.append(
            MemoryNodes(
                nodes=tuple(node.id for node in run),
                gpu=owners.get(run[0].id),
                memory_mib=sum(known) if len(known) == len(sizes) else None,
            )
        )
    return tuple(groups)
