"""The matrix of a node: every GPU, HCA and Data Direct function against every other."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations

from agent.model.gpu import Gpu
from agent.model.hca import DataDirect, Hca
from agent.model.numa import CpuSet
from agent.model.nvlink import Closeness, ReportedPair
from agent.model.pci import PciAddress
from agent.model.snapshot import Snapshot
from agent.topology.links import Pair, nvlinks_between
from agent.topology.path import Placed, closeness

SELF = "X"
"""The cell of a device against itself, as nvidia-smi prints it."""


class DeviceKind(StrEnum):
    """What a row of the matrix is; a Data Direct function counts as a NIC."""

    GPU = "gpu"
    NIC = "nic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One row.

    Attributes:
        id: nvidia-smi's row name: ``GPU<index>``, ``NIC<position>``, ``DD<position>``.
        label: the name people know it by; of a Data Direct function the HCAs it serves.
        numa: the NUMA node of the PCI function.
        numa_affinity: all nodes of the column "NUMA Affinity"; GPUs only.
        memory_numa: the column "GPU NUMA ID": the node that the GPU's memory is; GPUs only.
    """

    id: str
    kind: DeviceKind
    label: str
    pci: PciAddress | None
    numa: int | None
    cpus: CpuSet | None
    numa_affinity: tuple[int, ...] | None = None
    memory_numa: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """Rows and columns are *devices* in order; a cell is ``None`` where nobody reports it."""

    devices: tuple[Device, ...]
    cells: tuple[tuple[str | None, ...], ...]


def matrix(snapshot: Snapshot) -> Matrix:
    """Return the matrix that ``nvidia-smi topo -m`` prints: GPUs, then HCAs, then Data Direct."""
    devices = [_gpu_row(gpu) for gpu in snapshot.gpus]
    devices += [_nic_row(position, nic) for position, nic in enumerate(snapshot.hcas or ())]
    devices += [_dd_row(at, direct) for at, direct in enumerate(snapshot.data_directs or ())]
    distances = pci_closeness(snapshot)
    links = nvlinks_between(snapshot)
    index = {gpu.name: gpu.index for gpu in snapshot.gpus}
    cells = tuple(
        tuple(_cell(row.id, column.id, index, links, distances) for column in devices)
        for row in devices
    )
    return Matrix(devices=tuple(devices), cells=cells)


def pci_closeness(snapshot: Snapshot) -> Mapping[frozenset[str], Closeness]:
    """Return the PCIe distance of every pair of row names for which it is known.

    What NVML or a text reports of a pair wins over what the PCI tree suggests: in a
    virtual machine the tree is invented.
    """
    only_node = _only_node(snapshot)
    distances: dict[frozenset[str], Closeness] = {}
    for (a, left), (b, right) in combinations(_rows(snapshot).items(), 2):
        distance = closeness(left, right, only_node=only_node)
        if distance is not None:
            distances[frozenset((a, b))] = distance
    distances.update(_reported(snapshot.pairs))
    return distances


def _rows(snapshot: Snapshot) -> dict[str, Placed]:
    rows: dict[str, Placed] = {gpu.name: gpu for gpu in snapshot.gpus}
    rows |= {f"NIC{position}": nic for position, nic in enumerate(snapshot.hcas or ())}
    rows |= {f"DD{position}": direct for position, direct in enumerate(snapshot.data_directs or ())}
    return rows


def _only_node(snapshot: Snapshot) -> int | None:
    """Return the one NUMA node that has CPUs; GPU memory (Grace) is no place for a device."""
    with_cpus = [node.id for node in snapshot.numa_nodes or () if len(node.cpus)]
    return with_cpus[0] if len(with_cpus) == 1 else None


def _reported(pairs: tuple[ReportedPair, ...]) -> dict[frozenset[str], Closeness]:
    return {
        frozenset((pair.a, pair.b)): pair.closeness for pair in pairs if pair.closeness is not None
    }


def _cell(
    row: str,
    column: str,
    index: Mapping[str, int],
    links: Mapping[Pair, int | None],
    distances: Mapping[frozenset[str], Closeness],
) -> str | None:
    if row == column:
        return SELF
    if row in index and column in index:
        a, b = sorted((index[row], index[column]))
        if count := links[a, b]:
            return f"NV{count}"
    distance = distances.get(frozenset((row, column)))
    return None if distance is None else word(distance)


def word(distance: Closeness) -> str:
    """Return the word nvidia-smi prints; two GPUs of one board print as PIX."""
    return Closeness.PIX.name if distance is Closeness.INTERNAL else distance.name


def _gpu_row(gpu: Gpu) -> Device:
    return Device(
        id=gpu.name,
        kind=DeviceKind.GPU,
        label=gpu.name,
        pci=gpu.pci,
        numa=gpu.numa_node,
        cpus=gpu.cpu_affinity,
        numa_affinity=gpu.numa_affinity,
        memory_numa=gpu.memory_numa_node,
    )


def _nic_row(position: int, nic: Hca) -> Device:
    return Device(
        id=f"NIC{position}",
        kind=DeviceKind.NIC,
        label=nic.name,
        pci=nic.pci,
        numa=nic.numa_node,
        cpus=None,
    )


def _dd_row(position: int, direct: DataDirect) -> Device:
    row = f"DD{position}"
    return Device(
        id=row,
        kind=DeviceKind.NIC,
        label=", ".join(direct.hcas) or row,
        pci=direct.pci,
        numa=direct.numa_node,
        cpus=None,
    )
