"""What `topo matrix` prints of boards with 8 GPUs on NVLink, whole, divided, spoilt and in VMs."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from nodetopo.cli.output import style
from nodetopo.cli.topo.rows import text
from nodetopo.tools.importers.nccl_xml import parse_nccl_xml
from nodetopo.tools.importers.topo_m import parse_topo_m
from nodetopo.topology.matrix import Matrix, matrix
from tests.compose import a100_sfvf, h100_broken, h100_mig, h100_vm, hgx_h200, v100_vm_phb
from tests.compose.machine import Machine

HEADER_TAIL = "CPU Affinity NUMA Affinity GPU NUMA ID"
RAILS_OF_DGX_H100 = (0, 3, 4, 5, 6, 9, 10, 11)
"""Of the 12 NICs of a DGX H100 those that belong to a GPU."""

MACHINES = (
    hgx_h200.machine,
    h100_mig.machine,
    h100_broken.machine,
    h100_vm.machine,
    v100_vm_phb.machine,
    a100_sfvf.machine,
)
MATRICES = Path(__file__).parent / "matrices"
"""For each shape the table as such a machine prints it; what it stems from is on its first line."""


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine().shape)
def test_the_printed_matrix_is_that_of_such_a_machine(machine: Callable[[], Machine]) -> None:
    snapshot = machine().snapshot
    lines = text(matrix(snapshot), snapshot, style(no_color=True)).splitlines()
    _, names, *rows = (MATRICES / f"{machine().shape}.txt").read_text("utf-8").splitlines()
    expected = [f"{names} {HEADER_TAIL}", *rows]
    assert [line.split() for line in lines] == [line.split() for line in expected]


def test_an_h200_board_has_every_cell_that_nvidia_smi_printed(corpus: Path) -> None:
    ours, theirs = _ours(hgx_h200.machine), _captured(corpus, "h200x8-10nic.txt")
    assert ours.cells == theirs.cells
    assert _columns(ours) == _columns(theirs)


def test_a_vm_without_numa_nodes_has_every_cell_that_nvidia_smi_printed(corpus: Path) -> None:
    ours, theirs = _ours(v100_vm_phb.machine), _captured(corpus, "v100x8-vm-phb-numa0-1.txt")
    assert ours.cells == theirs.cells
    assert _columns(ours) == _columns(theirs) == [("0-63", (0, 1))] * 8


@pytest.mark.parametrize("machine", [h100_mig.machine, h100_broken.machine])
def test_gpus_are_as_far_from_nics_as_nvidia_smi_printed_of_a_dgx_h100(
    machine: Callable[[], Machine], corpus: Path
) -> None:
    ours, theirs = _ours(machine), _captured(corpus, "dgxh100-12nic.txt")
    rails = [8 + nic for nic in RAILS_OF_DGX_H100]
    for gpu in range(8):
        printed = [theirs.cells[gpu][rail] for rail in rails]
        known = [cell or word for cell, word in zip(ours.cells[gpu][8:], printed, strict=True)]
        assert known == printed


def test_gpus_are_as_far_from_nics_as_nvidia_smi_printed_of_an_a800_board(corpus: Path) -> None:
    """That board has two NICs on each PCIe switch, this one ConnectX-6 of its own."""
    ours, theirs = _ours(a100_sfvf.machine), _captured(corpus, "a800x8-8bond-drv580.txt")
    labels = [row.label for row in ours.devices]
    physical = [labels.index(f"mlx5_{number}") for number in range(4)]
    for gpu in range(8):
        mine = [ours.cells[gpu][nic] for nic in physical]
        assert mine == [theirs.cells[gpu][8 + 2 * at] for at in range(4)]


def test_a_cloud_vm_has_the_addresses_and_nodes_of_its_providers_topology_file(
    corpus: Path,
) -> None:
    theirs = parse_nccl_xml((corpus / "nccl-xml" / "azure-ndv5.xml").read_text("utf-8"))
    ours = h100_vm.machine().snapshot
    places = {gpu.pci: gpu.numa_node for gpu in theirs.gpus}
    assert {gpu.pci: gpu.numa_node for gpu in ours.gpus} == places
    assert len(places) == 8
    known = {node.id: node.cpus for node in theirs.numa_nodes or ()}
    assert {node.id: node.cpus for node in ours.numa_nodes or ()} == known


def _ours(machine: Callable[[], Machine]) -> Matrix:
    return matrix(machine().snapshot)


def _captured(corpus: Path, name: str) -> Matrix:
    return matrix(parse_topo_m((corpus / "topo-m" / name).read_text("utf-8")))


def _square(found: Matrix, order: Sequence[int]) -> list[list[str | None]]:
    return [[found.cells[row][column] for column in order] for row in order]


def _columns(found: Matrix) -> list[tuple[str, tuple[int, ...] | None]]:
    return [
        (str(row.cpus), row.numa_affinity or (None if row.numa is None else (row.numa,)))
        for row in found.devices[:8]
    ]
