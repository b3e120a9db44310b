"""``nodetopo topo matrix``: the table of ``nvidia-smi topo -m``, column by column."""

from argparse import Namespace
from typing import Any

from agent.cli import render
from agent.cli.output import Answer, emit
from agent.cli.render import Style, clean
from agent.cli.source import load
from agent.model.gpu import Gpu
from agent.model.numa import CpuSet
from agent.model.snapshot import Snapshot
from agent.topology.matrix import SELF, Device, DeviceKind, Matrix, matrix

SCHEMA = "nodetopo/topo-matrix/v1"
"""Names the JSON shape, described by ``docs/schema/topo-matrix.json``."""

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


def run(args: Namespace) -> int:
    """Print the matrix; 0."""
    from agent.cli.topo.svg import draw  # noqa: PLC0415 - the picture is rarely asked for

    snapshot = load(args)
    found = matrix(snapshot)
    if args.nccl or args.wide:
        from agent.cli.topo import topo_wide  # noqa: PLC0415 - NCCL's rules are rarely asked for

        answer = topo_wide.answer(snapshot, found, nccl=args.nccl, wide=args.wide)
    else:
        rows = text(found, snapshot, render.style(no_color=args.no_color))
        answer = Answer(
            plain=plain(found),
            table=rows + legend(found),
            short=rows,
            svg=lambda: draw(snapshot),
        )
    emit(answer, args)
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


def text(found: Matrix, snapshot: Snapshot, style: Style) -> str:
    """Return the rows, separated by tabs as nvidia-smi does, so that its readers read ours."""
    header = "\t".join((*(device.id for device in found.devices), *_COLUMNS))
    gpus = {gpu.name: gpu for gpu in snapshot.gpus}
    rows = [
        "\t".join((device.id, *map(cell_text, cells))) + _tail(gpus.get(device.id))
        for device, cells in zip(found.devices, found.cells, strict=True)
    ]
    # nvidia-smi underlines the header on a terminal.
    return "".join(f"{row}\n" for row in ("\t" + style.paint(header, "4"), *rows))


def cell_text(cell: str | None) -> str:
    """Return *cell* as it is printed."""
    if cell is None:
        return NOT_REPORTED
    return f" {SELF} " if cell == SELF else cell


def _tail(gpu: Gpu | None) -> str:
    """Return a row's columns behind its cells.

    A NUMA affinity of N/A stands one tab late; without both affinities nvidia-smi leaves the
    columns empty (captures of R470 to R595).
    """
    if gpu is None:
        return _NIC_TAIL
    cpus = "" if gpu.cpu_affinity is None else str(gpu.cpu_affinity)
    nodes = gpu.numa_affinity or (() if gpu.numa_node is None else (gpu.numa_node,))
    numa = str(CpuSet.of(nodes)) if nodes else f"\t{_NO_VALUE}" if cpus else ""
    memory = _NO_VALUE if gpu.memory_numa_node is None else str(gpu.memory_numa_node)
    return f"\t{cpus}\t{numa}\t\t{memory}"


def legend(found: Matrix) -> str:
    """Return what the words mean, and which NIC is which."""
    words = list(_LEGEND)
    if any(cell is None for row in found.cells for cell in row):
        words.append((NOT_REPORTED, "not reported"))
    lines = "".join(f"  {word:<4} = {meaning}\n" for word, meaning in words)
    return f"\nLegend:\n\n{lines}" + nic_legend(found)


def nic_legend(found: Matrix) -> str:
    """Return the names of NICs, and which of them each Data Direct function serves."""
    names = [line for device in found.devices for line in _names(device)]
    return "\nNIC Legend:\n\n" + "".join(f"  {clean(name)}\n" for name in names) if names else ""


def _names(device: Device) -> list[str]:
    if device.kind is DeviceKind.GPU:
        return []
    if not device.id.startswith("DD"):
        return [f"{device.id}: {device.label}"]
    served = [name for name in device.label.split(", ") if name != device.id]
    return [f"{device.id}: {name} data-direct function" for name in served]
