"""``topo matrix --wide`` and ``--nccl``: our own columns, and NCCL's words for the distances."""

from collections.abc import Iterator, Mapping
from typing import Any

from agent.cli import render
from agent.cli.output import Answer
from agent.cli.topo.devices import Device, link_of, link_text
from agent.cli.topo.matrix import cell_text, legend, nic_legend, plain
from agent.cli.topo.svg import draw
from agent.model.snapshot import Snapshot
from agent.nccl.affinity import nccl_nearest_hcas
from agent.nccl.routes import nccl_paths
from agent.topology.affinity import nearest_hcas
from agent.topology.domains import islands
from agent.topology.matrix import SELF, Matrix
from agent.topology.matrix import Device as Row
from agent.topology.rails import Rail, rails

_COLUMNS = ("NUMA", "PCI", "PCIE LINK", "NEAREST NIC", "ISLAND", "RAIL")
_COLUMN_LEGEND = """
Columns:

  NEAREST NIC = by nvidia-smi's levels; several that are equally near
  ISLAND      = GPUs of one number reach each other over NVLink
  RAIL        = the GPU and the NIC that are nearest to each other, and nobody else's
                (tie: several are equally near; -: others are nearer)
"""
_NO_WAY = "-"
"""Where NCCL looks for no way: between two NICs, and at Data Direct functions."""

_NCCL_LEGEND = (
    ("X", "the device itself"),
    ("NVL", "NVLink, direct or through NVSwitches"),
    ("NVB", "NVLink through one other GPU"),
    ("C2C", "the link between a Grace CPU and its GPU"),
    ("PIX", "one PCIe switch"),
    ("PXB", "several PCIe switches, no CPU"),
    ("P2C", "NVLink-C2C to the CPU, then PCIe"),
    ("PXN", "NVLink to another GPU, then its way to the NIC (sending only)"),
    ("PHB", "PCIe through a CPU; nvidia-smi's NODE is this too"),
    ("SYS", "PCIe and the link between NUMA nodes"),
    ("NET", "only over the network"),
    ("DIS", "not connected"),
    (_NO_WAY, "NCCL uses no such way"),
    ("?", "not known"),
)


def answer(snapshot: Snapshot, found: Matrix, *, nccl: bool, wide: bool) -> Answer:
    """Return the matrix, aligned: with NCCL's words, with our own columns, or with both.

    NCCL's table is read from a row to a column, and need not be the same the other way.
    """
    cells = _nccl_cells(snapshot, found) if nccl else None
    nearest = nearest_nics(snapshot) if nccl else {}
    shown = _nccl_text(cells, found) if cells else [[*map(cell_text, row)] for row in found.cells]
    extra = _extra(snapshot) if wide else {}
    header = ["", *(device.id for device in found.devices), *(_COLUMNS if wide else ())]
    rows = [header]
    for device, row in zip(found.devices, shown, strict=True):
        rows.append([device.id, *row, *extra.get(device.id, ())])
    table = render.table(rows)
    as_json = plain(found)
    if cells:
        as_json |= {"cells": cells, "words": "nccl", "nearest": nearest}
    words = _nccl_legend(found, shown) + _nearest_text(nearest) if cells else legend(found)
    words += _COLUMN_LEGEND if wide else ""
    return Answer(plain=as_json, table=table + words, short=table, svg=lambda: draw(snapshot))


def _nccl_cells(snapshot: Snapshot, found: Matrix) -> list[list[str | None]]:
    paths = nccl_paths(snapshot)
    return [
        [_nccl_cell(row.id, column.id, paths) for column in found.devices] for row in found.devices
    ]


def _nccl_cell(row: str, column: str, paths: Mapping[tuple[str, str], Any]) -> str | None:
    if row == column:
        return SELF
    route = paths.get((row, column))
    return None if route is None else str(route.type.name)


def _nccl_text(cells: list[list[str | None]], found: Matrix) -> list[list[str]]:
    def shown(row: Row, column: Row, cell: str | None) -> str:
        has_gpu = "GPU" in (row.id[:3], column.id[:3])
        has_direct = "DD" in (row.id[:2], column.id[:2])
        is_none = cell is None and (not has_gpu or has_direct)
        return _NO_WAY if is_none else cell_text(cell)

    return [
        [shown(row, column, cell) for column, cell in zip(found.devices, line, strict=True)]
        for row, line in zip(found.devices, cells, strict=True)
    ]


def _nccl_legend(found: Matrix, shown: list[list[str]]) -> str:
    used = {cell.strip() for row in shown for cell in row}
    lines = [f"  {word:<4} = {meaning}\n" for word, meaning in _NCCL_LEGEND if word in used]
    return "\nNCCL's paths, from row to column:\n\n" + "".join(lines) + nic_legend(found)


def nearest_nics(snapshot: Snapshot) -> dict[str, list[str]]:
    """Return by GPU the NICs that NCCL would use for it, the one of its channel 0 first."""
    positions = {hca.name: f"NIC{at}" for at, hca in enumerate(snapshot.hcas or ())}
    return {
        f"GPU{index}": [positions[hca.name] for net in found.nets for hca in net.hcas]
        for index, found in nccl_nearest_hcas(snapshot).items()
    }


def _nearest_text(nearest: Mapping[str, list[str]]) -> str:
    lines = [f"  {gpu}: {' '.join(nics)}\n" for gpu, nics in nearest.items()]
    return (
        "\nNICs that NCCL uses for each GPU, if it has all GPUs:\n\n" + "".join(lines)
        if lines
        else ""
    )


def _extra(snapshot: Snapshot) -> Mapping[str, tuple[str, ...]]:
    """Return our own columns of each row."""
    near, island, found = nearest_hcas(snapshot), _islands(snapshot), rails(snapshot)
    rows: dict[str, tuple[str, ...]] = {}
    for gpu in snapshot.gpus:
        nearest = near[gpu.index].hcas if gpu.index in near else ()
        names = " ".join(hca.name for hca in nearest) or "?"
        rail = _rail(rail for rail in found if gpu.index in rail.gpus)
        rows[gpu.name] = (*_place(gpu), names, island.get(gpu.index, "?"), rail)
    for at, hca in enumerate(snapshot.hcas or ()):
        rail = _rail(rail for rail in found if hca in rail.hcas)
        rows[f"NIC{at}"] = (*_place(hca), "", "", rail)
    for at, direct in enumerate(snapshot.data_directs or ()):
        rows[f"DD{at}"] = _place(direct)
    return rows


def _place(device: Device) -> tuple[str, ...]:
    return (
        "?" if device.numa_node is None else str(device.numa_node),
        "?" if device.pci is None else str(device.pci),
        link_text(link_of(device)) or "?",
    )


def _islands(snapshot: Snapshot) -> Mapping[int, str]:
    groups = islands(snapshot)
    return {gpu: str(at) for at, group in enumerate(groups or ()) for gpu in group}


def _rail(found: Iterator[Rail]) -> str:
    """Return the number of the rail, ``tie`` for a group that may be one, or a dash."""
    rail = next(found, None)
    if rail is None:
        return "-"
    return "tie" if rail.number is None else str(rail.number)
