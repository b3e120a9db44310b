"""What `topo matrix` prints of composed machines, beside what nvidia-smi printed of such ones."""

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import Struct, field

from nodetopo.cli.output import style
from nodetopo.cli.topo.rows import text
from nodetopo.model.numa import CpuSet
from nodetopo.tools.importers.topo_m import parse_topo_m
from nodetopo.topology.matrix import Device, Matrix, matrix
from tests.compose import (
    a100_pcie_4,
    a100x4_snc2,
    a100x6_cross_socket,
    ac922,
    dgx_station_gb300,
    h200_nvl_4,
    l4_edge,
    l4x10_one_root,
    rtxpro6000_pcie_8,
)
from tests.compose.machine import Machine


class Printed(Struct, frozen=True, kw_only=True):
    """A machine, and its matrix as it is printed, blanks aside.

    Attributes:
        capture: file of the corpus's `topo-m` with the same shape, if there is one.
        differs: cells, by our word and nvidia-smi's, where both have their reasons.
        is_cpu_list_cut: whether the capture lists fewer CPUs than such a machine has.
    """

    machine: Callable[[], Machine]
    rows: str
    capture: str | None = None
    differs: frozenset[tuple[str, str]] = field(default_factory=frozenset)
    is_cpu_list_cut: bool = False


HEADER_TAIL = "CPU Affinity NUMA Affinity GPU NUMA ID"

MACHINES = {
    "a100x4-pcie-bridged-2numa": Printed(
        machine=a100_pcie_4.machine,
        rows="""
             GPU0 GPU1 GPU2 GPU3
        GPU0 X    NV12 SYS  SYS  0-51,104-155   0 N/A
        GPU1 NV12 X    SYS  SYS  0-51,104-155   0 N/A
        GPU2 SYS  SYS  X    NV12 52-103,156-207 1 N/A
        GPU3 SYS  SYS  NV12 X    52-103,156-207 1 N/A
        """,
        capture="a100pcie80-x4-nvbridge-pairs-drv610.txt",
    ),
    "a100x6-pcie-bridged-crosssocket": Printed(
        machine=a100x6_cross_socket.machine,
        rows="""
             GPU0 GPU1 GPU2 GPU3 GPU4 GPU5 NIC0
        GPU0 X    NODE NODE NV12 SYS  SYS  NODE 0-27,56-83   0 N/A
        GPU1 NODE X    NV12 SYS  SYS  SYS  NODE 0-27,56-83   0 N/A
        GPU2 NODE NV12 X    SYS  SYS  SYS  NODE 0-27,56-83   0 N/A
        GPU3 NV12 SYS  SYS  X    NODE NODE SYS  28-55,84-111 1 N/A
        GPU4 SYS  SYS  SYS  NODE X    NV12 SYS  28-55,84-111 1 N/A
        GPU5 SYS  SYS  SYS  NODE NV12 X    SYS  28-55,84-111 1 N/A
        NIC0 NODE NODE NODE SYS  SYS  SYS  X
        """,
        capture="a100pcie-x6-nvbridge-cross-socket.txt",
    ),
    "rtxpro6000x8-pcie-4switch-2numa": Printed(
        machine=rtxpro6000_pcie_8.machine,
        rows="""
             GPU0 GPU1 GPU2 GPU3 GPU4 GPU5 GPU6 GPU7
        GPU0 X    PIX  NODE NODE SYS  SYS  SYS  SYS  0-63,128-191   0 N/A
        GPU1 PIX  X    NODE NODE SYS  SYS  SYS  SYS  0-63,128-191   0 N/A
        GPU2 NODE NODE X    PIX  SYS  SYS  SYS  SYS  0-63,128-191   0 N/A
        GPU3 NODE NODE PIX  X    SYS  SYS  SYS  SYS  0-63,128-191   0 N/A
        GPU4 SYS  SYS  SYS  SYS  X    PIX  NODE NODE 64-127,192-255 1 N/A
        GPU5 SYS  SYS  SYS  SYS  PIX  X    NODE NODE 64-127,192-255 1 N/A
        GPU6 SYS  SYS  SYS  SYS  NODE NODE X    PIX  64-127,192-255 1 N/A
        GPU7 SYS  SYS  SYS  SYS  NODE NODE PIX  X    64-127,192-255 1 N/A
        """,
        capture="rtxpro6000-x8-asus-esc8000-pix.txt",
        is_cpu_list_cut=True,
    ),
    "l4x10-pcie-1root-2switch": Printed(
        machine=l4x10_one_root.machine,
        rows="""
             GPU0 GPU1 GPU2 GPU3 GPU4 GPU5 GPU6 GPU7 GPU8 GPU9 NIC0 NIC1
        GPU0 X    PIX  PIX  PIX  PIX  PXB  PXB  PXB  PXB  PXB  PIX  SYS 0-23,48-71 0 N/A
        GPU1 PIX  X    PIX  PIX  PIX  PXB  PXB  PXB  PXB  PXB  PIX  SYS 0-23,48-71 0 N/A
        GPU2 PIX  PIX  X    PIX  PIX  PXB  PXB  PXB  PXB  PXB  PIX  SYS 0-23,48-71 0 N/A
        GPU3 PIX  PIX  PIX  X    PIX  PXB  PXB  PXB  PXB  PXB  PIX  SYS 0-23,48-71 0 N/A
        GPU4 PIX  PIX  PIX  PIX  X    PXB  PXB  PXB  PXB  PXB  PIX  SYS 0-23,48-71 0 N/A
        GPU5 PXB  PXB  PXB  PXB  PXB  X    PIX  PIX  PIX  PIX  PXB  SYS 0-23,48-71 0 N/A
        GPU6 PXB  PXB  PXB  PXB  PXB  PIX  X    PIX  PIX  PIX  PXB  SYS 0-23,48-71 0 N/A
        GPU7 PXB  PXB  PXB  PXB  PXB  PIX  PIX  X    PIX  PIX  PXB  SYS 0-23,48-71 0 N/A
        GPU8 PXB  PXB  PXB  PXB  PXB  PIX  PIX  PIX  X    PIX  PXB  SYS 0-23,48-71 0 N/A
        GPU9 PXB  PXB  PXB  PXB  PXB  PIX  PIX  PIX  PIX  X    PXB  SYS 0-23,48-71 0 N/A
        NIC0 PIX  PIX  PIX  PIX  PIX  PXB  PXB  PXB  PXB  PXB  X    SYS
        NIC1 SYS  SYS  SYS  SYS  SYS  SYS  SYS  SYS  SYS  SYS  SYS  X
        """,  # the rules of the nvidia-smi manual, section "topo": no capture of ten GPUs is known
    ),
    "h200x4-nvbridge-8numa": Printed(
        machine=h200_nvl_4.machine,
        rows="""
             GPU0 GPU1 GPU2 GPU3
        GPU0 X    NV6  NV6  NV6  16-31,144-159   1 N/A
        GPU1 NV6  X    NV6  NV6  32-47,160-175   2 N/A
        GPU2 NV6  NV6  X    NV6  96-111,224-239  6 N/A
        GPU3 NV6  NV6  NV6  X    112-127,240-255 7 N/A
        """,
        capture="h200x4-nv6-turin-nps4.txt",
    ),
    "v100x4-power9-sparse-6mlx5": Printed(
        machine=ac922.machine,
        rows="""
             GPU0 GPU1 GPU2 GPU3 NIC0 NIC1 NIC2 NIC3 NIC4 NIC5
        GPU0 X    NV3  SYS  SYS  NODE NODE SYS  SYS  SYS  SYS  0-63   0 255
        GPU1 NV3  X    SYS  SYS  NODE NODE SYS  SYS  SYS  SYS  0-63   0 254
        GPU2 SYS  SYS  X    NV3  SYS  SYS  NODE NODE NODE NODE 64-127 8 253
        GPU3 SYS  SYS  NV3  X    SYS  SYS  NODE NODE NODE NODE 64-127 8 252
        NIC0 NODE NODE SYS  SYS  X    PIX  SYS  SYS  SYS  SYS
        NIC1 NODE NODE SYS  SYS  PIX  X    SYS  SYS  SYS  SYS
        NIC2 SYS  SYS  NODE NODE SYS  SYS  X    PIX  NODE NODE
        NIC3 SYS  SYS  NODE NODE SYS  SYS  PIX  X    NODE NODE
        NIC4 SYS  SYS  NODE NODE SYS  SYS  NODE NODE X    PIX
        NIC5 SYS  SYS  NODE NODE SYS  SYS  NODE NODE PIX  X
        """,
        capture="ac922-v100x4-6mlx5-numa8.txt",
    ),
    "gb300x2-station-1grace-datadirect": Printed(
        machine=dgx_station_gb300.machine,
        rows="""
             GPU0 GPU1 NIC0 NIC1 DD0
        GPU0 X    SYS  NODE NODE NODE 0-71 0,2-8 N/A
        GPU1 SYS  X    NODE NODE PXB  0-71 0,2-8 1
        NIC0 NODE NODE X    PIX  NODE
        NIC1 NODE NODE PIX  X    NODE
        DD0  NODE PXB  NODE NODE X
        """,
        capture="gb300-station-2gpu-datadirect.txt",
        # Between root complexes of one Grace, where the manual's words say NODE.
        differs=frozenset({("NODE", "SYS")}),
    ),
    "l4x1-1numa": Printed(
        machine=l4_edge.machine,
        rows="""
             GPU0
        GPU0 X    0-31 0 N/A
        """,  # the layout of l40s-x1-drv595.txt, on fewer CPUs
    ),
    "a100x4-snc2-4numa": Printed(
        machine=a100x4_snc2.machine,
        rows="""
             GPU0 GPU1 GPU2 GPU3
        GPU0 X    SYS  SYS  SYS  0-15,64-79   0 N/A
        GPU1 SYS  X    SYS  SYS  16-31,80-95  1 N/A
        GPU2 SYS  SYS  X    SYS  32-47,96-111 2 N/A
        GPU3 SYS  SYS  SYS  X    48-63,112-127 3 N/A
        """,  # the rules of the nvidia-smi manual: NODE is for one NUMA node, a half socket here
    ),
}

each = pytest.mark.parametrize("printed", MACHINES.values(), ids=MACHINES.keys())
each_captured = pytest.mark.parametrize(
    "printed",
    [printed for printed in MACHINES.values() if printed.capture is not None],
    ids=[shape for shape, printed in MACHINES.items() if printed.capture is not None],
)


@each
def test_the_printed_matrix_is_that_of_such_a_machine(printed: Printed) -> None:
    snapshot = printed.machine().snapshot
    lines = text(matrix(snapshot), snapshot, style(no_color=True)).splitlines()
    names, *rows = printed.rows.strip().splitlines()
    expected = [f"{names} {HEADER_TAIL}", *rows]
    assert [line.split() for line in lines] == [line.split() for line in expected]


@each_captured
def test_the_cells_are_those_that_nvidia_smi_printed(printed: Printed, corpus: Path) -> None:
    ours, theirs = matrix(printed.machine().snapshot), _captured(printed, corpus)
    differing = {
        (mine, word)
        for row, other in zip(ours.cells, theirs.cells, strict=True)
        for mine, word in zip(row, other, strict=True)
        if mine != word
    }
    assert differing == printed.differs


@each_captured
def test_the_columns_behind_the_cells_are_those_that_nvidia_smi_printed(
    printed: Printed, corpus: Path
) -> None:
    ours, theirs = matrix(printed.machine().snapshot), _captured(printed, corpus)
    for mine, other in zip(ours.devices, theirs.devices, strict=True):
        assert _nodes(mine) == _nodes(other)
        assert other.memory_numa in (None, mine.memory_numa)  # old layouts lack the column
        mine_cpus, printed_cpus = mine.cpus or CpuSet(), other.cpus or CpuSet()
        if printed.is_cpu_list_cut:
            assert printed_cpus <= mine_cpus
        else:
            assert printed_cpus == mine_cpus


def _captured(printed: Printed, corpus: Path) -> Matrix:
    assert printed.capture is not None
    return matrix(parse_topo_m((corpus / "topo-m" / printed.capture).read_text("utf-8")))


def _nodes(row: Device) -> tuple[int, ...] | None:
    return row.numa_affinity or (None if row.numa is None or row.cpus is None else (row.numa,))
