"""The matrix of a node: every GPU, HCA and Data Direct function against every other."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from nodetopo.model.hca import DataDirect, Hca
from nodetopo.model.numa import CpuSet
from nodetopo.model.nvlink import Closeness
from nodetopo.model.pci import PciAddress
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.links import nvlinks_between
from nodetopo.topology.path import Placed, closeness

SELF = "X"
"""The cell of a device against itself, as nvidia-smi prints it."""


class DeviceKind(StrEnum):
    """The kind of a row; a Data Direct function counts as a NIC."""

    GPU = "gpu"
    NIC = "nic"


class Device(Struct, frozen=True, kw_only=True):
    """One row."""

    id: str  # nvidia-smi's row name: GPU<index>, NIC<position>, DD<position>
    kind: DeviceKind
    label: str  # the device name; for a Data Direct function the HCAs that it serves
    pci: PciAddress | None
    numa: int | None  # of the PCI function
    cpus: CpuSet | None
    # All nodes of the column "NUMA Affinity"; GPUs only.
    numa_affinity: tuple[int, ...] | None = None
    memory_numa: int | None = None  # column "GPU NUMA ID": the node of the GPU's memory; GPUs only


class Matrix(Struct, frozen=True, kw_only=True):
    """Rows and columns are *devices* in order; a cell is ``None`` if unknown."""

    devices: tuple[Device, ...]
    cells: tuple[tuple[str | None, ...], ...]


def matrix(snapshot: Snapshot) -> Matrix:
    """Return the matrix that ``nvidia-smi topo -m`` prints: GPUs, then HCAs, then Data Direct."""
    gpus = [
        Device(
            id=gpu.name,
            kind=DeviceKind.GPU,
            label=gpu.name,
            pci=gpu.pci,
            numa=gpu.numa_node,
            cpus=gpu.cpu_affinity,
            numa_affinity=gpu.numa_affinity,
            memory_numa=gpu.memory_numa_node,
        )
        for gpu in snapshot.gpus
    ]
    nics: list[tuple[str, str, Hca | DataDirect]] = [
        (f"NIC{position}", hca.name, hca) for position, hca in enumerate(snapshot.hcas or ())
    ]
    nics += [
        (f"DD{position}", ", ".join(direct.hcas) or f"DD{position}", direct)
        for position, direct in enumerate(snapshot.data_directs or ())
    ]
    devices = gpus + [
        Device(
            id=row,
            kind=DeviceKind.NIC,
            label=label,
            pci=nic.pci,
            numa=nic.numa_node,
            cpus=None,
        )
        for row, label, nic in nics
    ]
    distances = pci_closeness(snapshot)
    links = nvlinks_between(snapshot)
    index = {gpu.name: gpu.index for gpu in snapshot.gpus}

    def cell(row: str, column: str) -> str | None:
        if row == column:
            return SELF
        if row in index and column in index:
            low, high = sorted((index[row], index[column]))
            if count := links[low, high]:
                return f"NV{count}"
        distance = distances.get(frozenset((row, column)))
        return None if distance is None else word(distance)

    cells = tuple(tuple(cell(row.id, column.id) for column in devices) for row in devices)
    return Matrix(devices=tuple(devices), cells=cells)


def pci_closeness(
    snapshot: Snapshot, *, of_gpus: bool = False
) -> Mapping[frozenset[str], Closeness]:
    """Return the PCIe distance of every pair of row names for which it is known.

    A report by NVML or a text takes precedence over the PCI tree, which is invented in a virtual
    machine.

    Args:
        of_gpus: leave out pairs without a GPU, which are most of them where there are many HCAs.
    """
    rows: dict[str, Placed] = {gpu.name: gpu for gpu in snapshot.gpus}
    rows |= {f"NIC{position}": nic for position, nic in enumerate(snapshot.hcas or ())}
    rows |= {f"DD{position}": direct for position, direct in enumerate(snapshot.data_directs or ())}
    # A NUMA node of GPU memory alone (Grace) has no CPUs and holds no device.
    with_cpus = [node.id for node in snapshot.numa_nodes or () if len(node.cpus)]
    only_node = with_cpus[0] if len(with_cpus) == 1 else None

    distances: dict[frozenset[str], Closeness] = {}
    listed = list(rows.items())
    for at, (a, left) in enumerate(listed[: len(snapshot.gpus)] if of_gpus else listed):
        for b, right in listed[at + 1 :]:
            distance = closeness(left, right, only_node=only_node)
            if distance is not None:
                distances[frozenset((a, b))] = distance
    for pair in snapshot.pairs:
        if pair.closeness is not None:
            distances[frozenset((pair.a, pair.b))] = pair.closeness
    return distances


def word(distance: Closeness) -> str:
    """Return the word nvidia-smi prints; two GPUs of one board print as PIX."""
    return Closeness.PIX.name if distance is Closeness.INTERNAL else distance.name
