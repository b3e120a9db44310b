"""The text of `nvidia-smi topo -m`: every layout is read, no broken copy is guessed at."""

import re

import pytest

from nodetopo.model.gpu import Gpu
from nodetopo.model.hca import DataDirect, Hca, NetDevice
from nodetopo.model.numa import CpuSet
from nodetopo.model.nvlink import Closeness, ReportedPair
from nodetopo.model.pci import PciAddress
from nodetopo.model.snapshot import Snapshot
from nodetopo.tools.importers.topo_m import parse_topo_m
from tests.tools.importers.topo_m_text import BARE, PCI_LEGEND, ROWS, TEXT


def test_a_matrix_becomes_a_snapshot_of_what_it_says() -> None:
    assert parse_topo_m(TEXT) == Snapshot(
        gpus=(
            Gpu(index=0, numa_node=0, numa_affinity=(0,), cpu_affinity=CpuSet.parse("0-7")),
            Gpu(index=1, numa_node=1, numa_affinity=(1,), cpu_affinity=CpuSet.parse("8-15")),
        ),
        pairs=(
            ReportedPair(a="GPU0", b="GPU1", nvlinks=4),
            ReportedPair(a="GPU0", b="NIC0", closeness=Closeness.PXB),
            ReportedPair(a="GPU1", b="NIC0", closeness=Closeness.SYS),
        ),
        hcas=(Hca(name="mlx5_bond_0"),),
    )


def test_a_pair_of_gpus_with_another_word_has_no_nvlinks() -> None:
    pair = parse_topo_m(TEXT.replace("NV4", "PHB")).pairs[0]
    assert pair == ReportedPair(a="GPU0", b="GPU1", closeness=Closeness.PHB, nvlinks=0)


@pytest.mark.parametrize(
    "same",
    [
        TEXT.replace("\tGPU0\tGPU1", "\t\x1b[4mGPU0\tGPU1").replace("NUMA ID", "NUMA ID\x1b[0m"),
        TEXT.replace("\tGPU0\tGPU1", "\t[4mGPU0\tGPU1").replace("NUMA ID", "NUMA ID[0m"),
        TEXT.replace("\tGPU0\tGPU1", "\t^[[4mGPU0\tGPU1").replace("NUMA ID", "NUMA ID^[[0m"),
        TEXT.replace("\tGPU0\tGPU1", "\t\\u001b[4mGPU0\tGPU1").replace("ID", "ID\\u001b[0m"),
        TEXT.replace("NUMA ID", "NUMA ID\x1b(B\x1b[m"),
        TEXT.replace("\t", "   ").replace(" ", "\xa0"),
        f"GPU0 is near all by CPU Affinity and else\n{TEXT}",
        TEXT.lstrip("\t"),
        TEXT.replace("\t", "   "),
        re.sub(r"\t+$", "", TEXT, flags=re.MULTILINE),
        TEXT.replace("\n", "\r\n"),
        "    " + TEXT.replace("\n", "\n    "),
        f"$ nvidia-smi topo -m\n{TEXT}",
        TEXT.replace("SYS", "SOC"),
        TEXT.replace(" X ", "X"),
        "\ufeff" + TEXT,
        f"```text\n{TEXT}```\n",
        "> " + TEXT.replace("\n", "\n> "),
        "# " + TEXT.replace("\n", "\n# "),
        TEXT.replace("\n", "\n\n"),
    ],
    ids=[
        "underlined",
        "escape byte lost",
        "escape byte in caret form",
        "escape byte spelled out",
        "terminal's own reset",
        "no-break spaces",
        "a sentence like a header before it",
        "no leading tab",
        "blanks for tabs",
        "trailing tabs trimmed",
        "CR LF",
        "indented",
        "a line before it",
        "SOC",
        "bare X",
        "byte order mark",
        "code fence",
        "quoted",
        "commented out",
        "empty lines between",
    ],
)
def test_copies_that_lost_no_cell_read_the_same(same: str) -> None:
    assert parse_topo_m(same) == parse_topo_m(TEXT)


@pytest.mark.parametrize(
    ("tail", "cpus", "nodes", "node"),
    [
        ("0-71\t0,2-4\t\tN/A", "0-71", (0, 2, 3, 4), None),
        ("0,64\t0-3\t\tN/A", "0,64", (0, 1, 2, 3), None),
        ("\t8\t\tN/A", None, (8,), 8),
        ("0-7\tN/A\t\tN/A", "0-7", None, None),
        ("0-7\t\t\tN/A", "0-7", None, None),
        ("\t\t\tN/A", None, None, None),
        ("N/A\tN/A\t\tN/A", None, None, None),
    ],
)
def test_affinities_may_be_lists_or_missing(
    tail: str,
    cpus: str | None,
    nodes: tuple[int, ...] | None,
    node: int | None,
) -> None:
    gpu = parse_topo_m(TEXT.replace("0-7\t0\t\tN/A", tail)).gpus[0]
    assert gpu == Gpu(
        index=0,
        numa_node=node,
        numa_affinity=nodes,
        cpu_affinity=None if cpus is None else CpuSet.parse(cpus),
    )


@pytest.mark.parametrize(
    ("header", "tail", "expected"),
    [
        ("CPU Affinity", "0-7", Gpu(index=0, cpu_affinity=CpuSet.parse("0-7"))),
        ("CPU Affinity", "", Gpu(index=0)),
        (
            "CPU Affinity\tNUMA Affinity",
            "0-7\t\tN/A",
            Gpu(index=0, cpu_affinity=CpuSet.parse("0-7")),
        ),
        ("CPU Affinity\tNUMA Affinity", "\t3", Gpu(index=0, numa_node=3, numa_affinity=(3,))),
    ],
)
def test_older_headers_have_fewer_columns(header: str, tail: str, expected: Gpu) -> None:
    assert parse_topo_m(f"\tGPU0\t{header}\nGPU0\t X \t{tail}\n").gpus == (expected,)


def test_old_columns_named_by_device_keep_their_order() -> None:
    text = "\tGPU0\tmlx5_2\tmlx5_1\tCPU Affinity\nGPU0\t X \tPIX\tPHB\t0-7\n"
    text += "mlx5_2\tPIX\t X \tPHB\t\nmlx5_1\tPHB\tPHB\t X \t\n"
    snapshot = parse_topo_m(text)
    assert (snapshot.hcas, snapshot.pairs[1]) == (
        (Hca(name="mlx5_2"), Hca(name="mlx5_1")),
        ReportedPair(a="GPU0", b="NIC1", closeness=Closeness.PHB),
    )


@pytest.mark.parametrize("name", ["rocep9s0f1", "ibp12s0", "rdmap32s3", "mlx5_bond_1", "qedr0"])
def test_a_column_may_have_any_name_of_an_rdma_device(name: str) -> None:
    text = f"\tGPU0\t{name}\tCPU Affinity\nGPU0\t X \tPXB\t0-7\n{name}\tPXB\t X \n"
    snapshot = parse_topo_m(text)
    assert (snapshot.hcas, snapshot.issues) == ((Hca(name=name),), ())


def test_a_data_direct_function_names_the_hcas_it_serves() -> None:
    text = "\tGPU0\tNIC0\tDD0\tCPU Affinity\nGPU0\t X \tSYS\tPXB\t0-7\n"
    text += "NIC0\tSYS\t X \tSYS\nDD0\tPXB\tSYS\t X \n\nNIC Legend:\n\n  NIC0: mlx5_0\n"
    text += "  DD0: mlx5_1 data-direct function\n  DD0: mlx5_0 data-direct function\n"
    snapshot = parse_topo_m(text)
    assert (snapshot.hcas, snapshot.data_directs, snapshot.pairs[1]) == (
        (Hca(name="mlx5_0"),),
        (DataDirect(hcas=("mlx5_0", "mlx5_1")),),
        ReportedPair(a="GPU0", b="DD0", closeness=Closeness.PXB),
    )


@pytest.mark.parametrize(
    ("tail", "node"),
    [("0-71\t0,2-8\t\t1", 1), ("0-71\t\t\t10", 10), ("\t\t\t2", 2), ("0-7\t\tN/A\t\t3", 3)],
)
def test_a_gpus_memory_may_be_a_node(tail: str, node: int) -> None:
    assert parse_topo_m(TEXT.replace("0-7\t0\t\tN/A", tail)).gpus[0].memory_numa_node == node


@pytest.mark.parametrize(
    "text",
    [
        ROWS.replace("NV4", "SYS") + PCI_LEGEND,
        "$ nvidia-smi topo -mp\n" + ROWS.replace("NV4", "SYS"),
    ],
    ids=["by its legend", "by its command"],
)
def test_the_pcie_only_form_says_nothing_of_nvlinks(text: str) -> None:
    assert parse_topo_m(text).pairs[0] == ReportedPair(a="GPU0", b="GPU1", closeness=Closeness.SYS)


def test_a_form_without_affinities_reads_the_same_cells() -> None:
    snapshot = parse_topo_m(BARE)
    assert (snapshot.gpus, snapshot.pairs) == (
        (Gpu(index=0), Gpu(index=1)),
        parse_topo_m(TEXT).pairs,
    )


def test_drives_are_left_out() -> None:
    text = """\
        GPU0  NVMe0  NIC0  CPU Affinity  NUMA Affinity
GPU0    X     PIX    PXB   0-7           0
NVMe0   PIX   X      PHB
NIC0    PXB   PHB    X

NIC Legend:

  NIC0: mlx5_0

NVMe Legend:

  NVMe0: nvme0n1
"""
    snapshot = parse_topo_m(text)
    assert (snapshot.hcas, snapshot.pairs) == (
        (Hca(name="mlx5_0"),),
        (ReportedPair(a="GPU0", b="NIC0", closeness=Closeness.PXB),),
    )


def test_a_second_table_of_drives_is_not_read() -> None:
    text = f"{TEXT}\n\t\x1b[4mNVMe0\tNVMe1\t\x1b[0m\nGPU0\tPHB\tPHB\nGPU1\tSYS\tSYS\n"
    assert parse_topo_m(text) == parse_topo_m(TEXT)


@pytest.mark.parametrize(
    "line",
    [
        "NIC0: mlx5_0 ens1f0 0000:3b:00.0 5",
        "NIC0: mlx5_0 (ens1f0, 0000:3b:00.0, SLOT: 5)",
        "NIC0: ibdev=mlx5_0 netdev=ens1f0 pci=0000:3B:00.0 slot=N/A",
        "NIC0  mlx5_0  ens1f0  00000000:3B:00.0  N/A",
        "NIC0: mlx5_0, PCI: 3b:00.0, netdev: ens1f0",
    ],
)
def test_the_longer_legend_gives_address_and_interface(line: str) -> None:
    snapshot = parse_topo_m(TEXT.replace("NIC0: mlx5_bond_0", line))
    assert snapshot.hcas == (
        Hca(
            name="mlx5_0",
            pci=PciAddress(0, 0x3B, 0, 0),
            netdevs=(NetDevice(name="ens1f0"),),
        ),
    )


def test_a_remark_in_the_legend_is_no_interface() -> None:
    line = "NIC0: mlx5_0 (Mellanox ConnectX InfiniBand)"
    snapshot = parse_topo_m(TEXT.replace("NIC0: mlx5_bond_0", line))
    assert snapshot.hcas == (Hca(name="mlx5_0"),)
