"""The rows of ``nvidia-smi topo -m``, and what its words mean."""

from nodetopo.cli.output import Style, clean
from nodetopo.model.gpu import Gpu
from nodetopo.model.numa import CpuSet
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.matrix import SELF, DeviceKind, Matrix

NOT_REPORTED = "?"

_NO_VALUE = "N/A"
"""nvidia-smi's word in the columns behind the cells."""

_COLUMNS = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")

_NIC_TAIL = "\t" * 4
"""nvidia-smi leaves the columns of a NIC empty, the tab before the GPU NUMA ID included."""

_LEGEND = (
    ("X", "the device itself"),
    ("SYS", "PCIe and the link between NUMA nodes (UPI, xGMI)"),
    ("NODE", "PCIe and the link between host bridges of one NUMA node"),
    ("PHB", "PCIe and a host bridge, usually the CPU"),
    ("PXB", "several PCIe bridges, no host bridge"),
    ("PIX", "at most one PCIe bridge"),
    ("NV#", "# NVLinks together"),
)


def text(found: Matrix, snapshot: Snapshot, style: Style) -> str:
    """Return the rows, separated by tabs as by nvidia-smi, so that its parsers work."""
    header = "\t".join((*(device.id for device in found.devices), *_COLUMNS))
    gpus = {gpu.name: gpu for gpu in snapshot.gpus}
    rows = [
        "\t".join((device.id, *map(cell_text, cells))) + _tail(gpus.get(device.id))
        for device, cells in zip(found.devices, found.cells, strict=True)
    ]
    # nvidia-smi underlines the header on a terminal.
    return "".join(f"{row}\n" for row in ("\t" + style.paint(header, "4"), *rows))


def folding_cells(found: Matrix, snapshot: Snapshot) -> list[list[str]]:
    """Return the rows of :func:`text` as cells, for a terminal too narrow for nvidia-smi's form."""
    gpus = {gpu.name: gpu for gpu in snapshot.gpus}
    rows = [["", *(device.id for device in found.devices), *_COLUMNS]]
    for device, cells in zip(found.devices, found.cells, strict=True):
        gpu = gpus.get(device.id)
        tail = ("", "", "") if gpu is None else _affinities(gpu)
        rows.append([device.id, *map(cell_text, cells), *tail])
    return rows


def cell_text(cell: str | None) -> str:
    """Return the printed form of *cell*."""
    if cell is None:
        return NOT_REPORTED
    return f" {SELF} " if cell == SELF else cell


def _tail(gpu: Gpu | None) -> str:
    """Return a row's columns behind its cells.

    A NUMA affinity of N/A is one tab late; without both affinities nvidia-smi leaves the columns
    empty (captures of R470 to R595).
    """
    if gpu is None:
        return _NIC_TAIL
    cpus, numa, memory = _affinities(gpu)
    late = "\t" if numa == _NO_VALUE else ""
    return f"\t{cpus}\t{late}{numa}\t\t{memory}"


def _affinities(gpu: Gpu) -> tuple[str, str, str]:
    """Return the CPU affinity, the NUMA affinity and the NUMA node of the memory of *gpu*."""
    cpus = "" if gpu.cpu_affinity is None else str(gpu.cpu_affinity)
    nodes = gpu.numa_affinity or (() if gpu.numa_node is None else (gpu.numa_node,))
    numa = str(CpuSet.of(nodes)) if nodes else _NO_VALUE if cpus else ""
    memory = _NO_VALUE if gpu.memory_numa_node is None else str(gpu.memory_numa_node)
    return cpus, numa, memory


def legend(found: Matrix) -> str:
    """Return the meaning of the words, and the NICs' names."""
    words = list(_LEGEND)
    if any(cell is None for row in found.cells for cell in row):
        words.append((NOT_REPORTED, "not reported"))
    lines = "".join(f"  {word:<4} = {meaning}\n" for word, meaning in words)
    return f"\nLegend:\n\n{lines}" + nic_legend(found)


def nic_legend(found: Matrix) -> str:
    """Return the names of NICs, and which of them each Data Direct function serves."""
    names = []
    for device in found.devices:
        if device.kind is DeviceKind.GPU:
            continue
        if not device.id.startswith("DD"):
            names.append(f"{device.id}: {device.label}")
            continue
        served = [name for name in device.label.split(", ") if name != device.id]
        names += [f"{device.id}: {name} data-direct function" for name in served]
    return "\nNIC Legend:\n\n" + "".join(f"  {clean(name)}\n" for name in names) if names else ""
