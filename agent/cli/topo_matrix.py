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
    snapshot = load(args)
    found = matrix(snapshot)
    style = render.style(no_color=args.no_color)
    rows = text(found, snapshot, style)
    emit(Answer(plain=plain(found), table=rows + legend(found), short=rows), args)
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
        "\t".join((device.id, *map(_cell, cells))) + _tail(device, gpus.get(device.id))
        for device, cells in zip(found.devices, found.cells, strict=True)
    ]
    # nvidia-smi underlines the header on a terminal.
    return "".join(f"{row}\n" for row in ("\t" + style.paint(header, "4"), *rows))


def _cell(cell: str | None) -> str:
    if cell is None:
        return NOT_REPORTED
    return f" {SELF} " if cell == SELF else cell


def _tail(device: Device, gpu: Gpu | None) -> str:
    if device.kind is DeviceKind.NIC or gpu is None:
        return _NIC_TAIL
    cpus = _NO_VALUE if gpu.cpu_affinity is None else str(gpu.cpu_affinity)
    nodes = gpu.numa_affinity or (() if gpu.numa_node is None else (gpu.numa_node,))
    numa = str(CpuSet.of(nodes)) if nodes else _NO_VALUE
    # The model keeps no node of GPU memory apart from the affinity list, so the last is N/A.
    return f"\t{cpus}\t{numa}\t\t{_NO_VALUE}"


def legend(found: Matrix) -> str:
    """Return what the words mean, and which NIC is which."""
    words = list(_LEGEND)
    if any(cell is None for row in found.cells for cell in row):
        words.append((NOT_REPORTED, "not reported"))
    lines = "".join(f"  {word:<4} = {meaning}\n" for word, meaning in words)
    nics = [device for device in found.devices if device.kind is DeviceKind.NIC]
    names = "".join(f"  {nic.id}: {clean(nic.label)}\n" for nic in nics)
    return f"\nLegend:\n\n{lines}" + (f"\nNIC Legend:\n\n{names}" if nics else "")
