"""The matrix of a node: every GPU and HCA against every other."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from agent.model.gpu import Gpu
from agent.model.hca import Hca
from agent.model.numa import CpuSet
from agent.model.nvlink import Closeness, ReportedPair
from agent.model.pci import PciAddress
from agent.model.snapshot import Snapshot
from agent.topology.links import Pair, nvlinks_between
from agent.topology.path import closeness

SELF = "X"
"""The cell of a device against itself, as nvidia-smi prints it."""


class DeviceKind(StrEnum):
    """What a row of the matrix is."""

    GPU = "gpu"
    NIC = "nic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One row. *id* is nvidia-smi's row name; *label* the name people know it by."""

    id: str
    kind: DeviceKind
    label: str
    pci: PciAddress | None
    numa: int | None
    cpus: CpuSet | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """Rows and columns are *devices* in order; a cell is ``None`` where nobody reports it."""

    devices: tuple[Device, ...]
    cells: tuple[tuple[str | None, ...], ...]


def matrix(snapshot: Snapshot) -> Matrix:
    """Return the matrix that ``nvidia-smi topo -m`` prints: GPUs first, then HCAs."""
    gpus, nics = snapshot.gpus, snapshot.hcas or ()
    devices = [_gpu_row(gpu) for gpu in gpus]
    devices += [_nic_row(position, nic) for position, nic in enumerate(nics)]
    distances = pci_closeness(snapshot)
    links = nvlinks_between(snapshot)
    index = {gpu.name: gpu.index for gpu in gpus}
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
    placed: dict[str, Gpu | Hca] = {gpu.name: gpu for gpu in snapshot.gpus}
    placed |= {f"NIC{position}": nic for position, nic in enumerate(snapshot.hcas or ())}
    names = list(placed)
    distances: dict[frozenset[str], Closeness] = {}
    for position, a in enumerate(names):
        for b in names[position + 1 :]:
            distance = closeness(placed[a], placed[b])
            if distance is not None:
                distances[frozenset((a, b))] = distance
    distances.update(_reported(snapshot.pairs))
    return distances


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
