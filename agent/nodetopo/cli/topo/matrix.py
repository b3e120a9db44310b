"""``nodetopo topo matrix``: the table of ``nvidia-smi topo -m``, column by column."""

from argparse import Namespace
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from nodetopo.cli import output
from nodetopo.cli.output import Answer, emit
from nodetopo.cli.source import load
from nodetopo.cli.topo.picture import picture
from nodetopo.cli.topo.rows import cell_text, folding_cells, legend, nic_legend, text
from nodetopo.drawing.devices import Device as TreeDevice
from nodetopo.drawing.devices import link_of, link_text
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.affinity import Rail, nearest_hcas, rails
from nodetopo.topology.domains import islands
from nodetopo.topology.matrix import Device, Matrix, matrix

SCHEMA = "nodetopo/topo-matrix/v1"
"""Names the JSON shape, described by ``docs/reference/schema/topo-matrix.json``."""

_WIDE_COLUMNS = ("NUMA", "PCI", "PCIE LINK", "NEAREST NIC", "ISLAND", "RAIL")

_COLUMN_LEGEND = """
Columns:

  NEAREST NIC = by nvidia-smi's levels; several that are equally near
  ISLAND      = GPUs of one number reach each other over NVLink
  RAIL        = the GPU and the NIC that are nearest to each other, and nobody else's
                (tie: several are equally near; -: others are nearer)
"""

_NO_WAY = "-"
"""Where NCCL looks for no path."""

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


def run(args: Namespace) -> int:
    """Print the matrix; 0."""
    snapshot = load(args)
    cells = matrix(snapshot)

    columns = output.terminal_columns()
    if args.nccl or args.wide:
        answer = wide_answer(snapshot, cells, nccl=args.nccl, wide=args.wide, columns=columns)
    else:
        rows = text(cells, snapshot, output.style(no_color=args.no_color))
        if columns is not None and _is_wider(rows, columns):
            rows = output.folded(folding_cells(cells, snapshot), columns)
        answer = Answer(plain=plain(cells), table=rows + legend(cells), short=rows)
    emit(replace(answer, svg=picture(snapshot)), args)
    return 0


def plain(found: Matrix) -> dict[str, Any]:
    """Return the matrix in JSON's own types; ``null`` is: not reported."""
    devices = [
        {
            "id": device.id,
            "kind": device.kind.value,
            "name": device.label,
            "pci": None if device.pci is None else str(device.pci),
            "numa": device.numa,
            "cpus": None if device.cpus is None else str(device.cpus),
        }
        for device in found.devices
    ]
    return {"schema": SCHEMA, "devices": devices, "cells": [list(row) for row in found.cells]}


def _is_wider(rows: str, columns: int) -> bool:
    return any(len(line.expandtabs()) > columns for line in rows.splitlines())


def wide_answer(
    snapshot: Snapshot, found: Matrix, *, nccl: bool, wide: bool, columns: int | None = None
) -> Answer:
    """Return the matrix, aligned: with NCCL's words, with our columns, or with both.

    *columns* of a terminal fold it.

    NCCL's table reads from a row to a column, and need not be symmetric.
    """
    as_json = plain(found)
    shown = [[*map(cell_text, row)] for row in found.cells]
    words = legend(found)
    if nccl and found.devices:
        from nodetopo.cli.topo import nccl_cells  # noqa: PLC0415 - only for `--nccl`

        cells = nccl_cells.cells(snapshot, found)
        nearest = nccl_cells.nearest_nics(snapshot)
        as_json |= {"cells": cells, "words": "nccl", "nearest": nearest}
        shown = [
            [
                _NO_WAY if cell is None and _is_beyond_nccl(row, column) else cell_text(cell)
                for column, cell in zip(found.devices, line, strict=True)
            ]
            for row, line in zip(found.devices, cells, strict=True)
        ]
        words = _nccl_legend(found, shown, nearest)
    extra = _wide_columns(snapshot) if wide else {}
    header = ["", *(device.id for device in found.devices), *(_WIDE_COLUMNS if wide else ())]
    rows = [
        [device.id, *row, *extra.get(device.id, ())]
        for device, row in zip(found.devices, shown, strict=True)
    ]
    full = [[*row, *[""] * (len(header) - len(row))] for row in [header, *rows]]
    table = output.table(full) if columns is None else output.folded(full, columns)
    words += _COLUMN_LEGEND if wide else ""
    return Answer(plain=as_json, table=table + words, short=table)


def _is_beyond_nccl(row: Device, column: Device) -> bool:
    """Return whether NCCL seeks no path: between two NICs, and at Data Direct functions."""
    ends = (row.id, column.id)
    return any(end.startswith("DD") for end in ends) or not any(
        end.startswith("GPU") for end in ends
    )


def _nccl_legend(found: Matrix, shown: list[list[str]], nearest: Mapping[str, list[str]]) -> str:
    used = {cell.strip() for row in shown for cell in row}
    lines = [f"  {word:<4} = {meaning}\n" for word, meaning in _NCCL_LEGEND if word in used]
    text = "\nNCCL's paths, from row to column:\n\n" + "".join(lines) + nic_legend(found)
    if nearest:
        text += "\nNICs that NCCL uses for each GPU, if it has all GPUs:\n\n"
        text += "".join(f"  {gpu}: {' '.join(nics)}\n" for gpu, nics in nearest.items())
    return text


def _wide_columns(snapshot: Snapshot) -> Mapping[str, tuple[str, ...]]:
    """Return our columns of each row."""
    near, all_rails = nearest_hcas(snapshot), rails(snapshot)
    island = {
        gpu: str(number) for number, group in enumerate(islands(snapshot) or ()) for gpu in group
    }
    rows: dict[str, tuple[str, ...]] = {}
    for gpu in snapshot.gpus:
        nearest = near[gpu.index].hcas if gpu.index in near else ()
        names = " ".join(hca.name for hca in nearest) or "?"
        rail = _rail(rail for rail in all_rails if gpu.index in rail.gpus)
        rows[gpu.name] = (*_place(gpu), names, island.get(gpu.index, "?"), rail)
    for at, hca in enumerate(snapshot.hcas or ()):
        rail = _rail(rail for rail in all_rails if hca in rail.hcas)
        rows[f"NIC{at}"] = (*_place(hca), "", "", rail)
    for at, direct in enumerate(snapshot.data_directs or ()):
        rows[f"DD{at}"] = _place(direct)
    return rows


def _place(device: TreeDevice) -> tuple[str, ...]:
    return (
        "?" if device.numa_node is None else str(device.numa_node),
        "?" if device.pci is None else str(device.pci),
        link_text(link_of(device)) or "?",
    )


def _rail(found: Iterator[Rail]) -> str:
    """Return the number of the rail, ``tie`` for a group that could be one, or a dash."""
    rail = next(found, None)
    if rail is None:
        return "-"
    return "tie" if rail.number is None else str(rail.number)
