"""One line of the tree."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from agent.cli.output import clean
from agent.model.hca import HcaPort
from agent.model.numa import CpuSet, NumaNode
from agent.model.snapshot import Snapshot

# NUMA nodes without CPUs, said in few words: a GB200 tray has 32 of them.


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryNodes:
    """Neighbouring NUMA nodes without CPUs.

    Attributes:
        nodes: their ids, ascending.
        gpu: row name of the GPU whose memory they are; ``None`` where no GPU claims them.
        memory_mib: together; ``None`` where one of them does not tell.
    """

    nodes: tuple[int, ...]
    gpu: str | None
    memory_mib: int | None

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
    taken = {gpu.numa_node for gpu in snapshot.gpus}
    taken |= {hca.numa_node for hca in snapshot.hcas or ()}
    bare = [
        node for node in snapshot.numa_nodes or () if not len(node.cpus) and node.id not in taken
    ]
    return tuple(_runs(bare, snapshot))


def _runs(bare: list[NumaNode], snapshot: Snapshot) -> Iterator[MemoryNodes]:
    owners = {gpu.memory_numa_node: gpu.name for gpu in snapshot.gpus}
    owners.pop(None, None)
    run: list[NumaNode] = []
    for node in bare:
        if run and (node.id in owners or node.id != run[-1].id + 1):
            yield _joined(run, owners)
            run = []
        run.append(node)
    if run:
        yield _joined(run, owners)


def _joined(run: list[NumaNode], owners: dict[int | None, str]) -> MemoryNodes:
    sizes = [node.memory_mib for node in run]
    known = [size for size in sizes if size is not None]
    return MemoryNodes(
        nodes=tuple(node.id for node in run),
        gpu=owners.get(run[0].id),
        memory_mib=sum(known) if len(known) == len(sizes) else None,
    )


# A port of an HCA in words.


def port_text(port: HcaPort) -> str:
    """Return e.g. ``InfiniBand 400 Gb/s``, with the state where it is not ACTIVE."""
    return " ".join(
        filter(
            None,
            (
                port.layer.value if port.layer else None,
                None if port.rate_gbps is None else f"{port.rate_gbps:g} Gb/s",
                None if port.state in (None, "ACTIVE") else port.state,
            ),
        ),
    )


GROUPS = {
    "PIX": "at most one PCIe switch",
    "PXB": "PCIe switches below one root port",
    "PHB": "one host bridge",
}
"""What the closeness of devices says of the place they share, where no PCI tree is known."""


def title(branch: dict[str, Any]) -> str:
    """Return what the tree says of *branch*, an object of the JSON answer."""
    describe = _DESCRIBE.get(branch["kind"], _device)
    return clean(" · ".join(filter(None, describe(branch))))


def _numa(branch: dict[str, Any]) -> Iterator[str | None]:
    memory = branch["memory_mib"]
    yield f"NUMA {'?' if branch['name'] is None else branch['name']}"
    yield f"CPUs {branch['cpus']}" if branch["cpus"] else None
    yield f"{memory / 1024:.0f} GiB" if memory is not None else None


def _root(branch: dict[str, Any]) -> Iterator[str | None]:
    yield branch["name"]


def _bridge(branch: dict[str, Any]) -> Iterator[str | None]:
    yield f"{'switch' if branch['kind'] == 'switch' else 'PCI bridge'} {branch['name']}"
    yield f"PCIe {branch['link']}" if branch["link"] else None


def _group(branch: dict[str, Any]) -> Iterator[str | None]:
    yield f"{GROUPS[branch['name']]} ({branch['name']})"


def _mig(branch: dict[str, Any]) -> Iterator[str | None]:
    ids = (("GI", branch["gpu_instance"]), ("CI", branch["compute_instance"]))
    memory = branch["memory_mib"]
    yield f"MIG {branch['name'] or '?'}"
    yield " ".join(f"{what} {number}" for what, number in ids if number is not None)
    yield f"{memory / 1024:.1f} GiB" if memory is not None else None


def _device(branch: dict[str, Any]) -> Iterator[str | None]:
    label = branch["label"] if branch["label"] != branch["name"] else None
    yield " ".join(filter(None, (branch["name"], label, branch["pci"], branch["product"])))
    yield _mark(branch)
    yield f"PCIe {branch['link']}" if branch["link"] else None
    yield from branch["ports"]


def _mark(branch: dict[str, Any]) -> str | None:
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


_DESCRIBE: dict[str, Callable[[dict[str, Any]], Iterator[str | None]]] = {
    "numa": _numa,
    "root": _root,
    "switch": _bridge,
    "bridge": _bridge,
    "group": _group,
    "mig": _mig,
}
