"""The matrix as text: nvidia-smi's own layout, and read back without loss."""

import json
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from nodetopo.cli.output import Style
from nodetopo.cli.topo.rows import legend, text
from nodetopo.machines.bundled import machine
from nodetopo.model.numa import CpuSet
from nodetopo.model.snapshot import Snapshot
from nodetopo.tools.importers.topo_m import parse_topo_m
from nodetopo.topology.matrix import matrix
from tests.cli.conftest import Cli
from tests.cli.outcome import MACHINES, topo_m
from tests.cli.shapes import tray

CLEAN_CAPTURES = (
    "2gpu-node1-2mlx5-425w.txt",
    "3gpu-threadripper-numa0-1.txt",
    "8gpu-nv18-8nic-shuffled-drv570.txt",
    "a100pcie80-x4-nvbridge-pairs-drv610.txt",
    "h100x8-6nic-slurm-cgroup-cpu.txt",
    "h200-mig-x1-drv590.txt",
    "h200x8-10nic.txt",
    "h800-4of8-container-17nic-empty-affinity.txt",
    "rtx2080s-windows-na.txt",
    "rtxpro6000-x8-asus-esc8000-pix.txt",
    "v100x8-1nic-gpunumaid.txt",
)
"""Captures of drivers since R535 that lost no blank on their way."""


@pytest.mark.parametrize("name", MACHINES)
def test_the_text_reads_back_to_the_same_cells(name: str) -> None:
    found = matrix(parse_topo_m(topo_m(machine(name))))
    assert found.cells == matrix(machine(name)).cells


@pytest.mark.parametrize("name", MACHINES)
def test_the_text_reads_back_to_the_same_names(name: str) -> None:
    found = matrix(parse_topo_m(topo_m(machine(name))))
    assert [device.label for device in found.devices] == [
        device.label for device in matrix(machine(name)).devices
    ]


def test_rows_stand_as_nvidia_smi_prints_them() -> None:
    lines = _rows(machine("l40s-pcie-4"))
    assert lines[:2] == [
        "\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID",
        "GPU0\t X \tNODE\tSYS\tSYS\t0-31,64-95\t0\t\tN/A",
    ]


def test_a_nic_has_four_empty_columns_behind_its_cells() -> None:
    assert _rows(machine("dgx-1v"))[-1].endswith("\tPHB\t X \t\t\t\t")


def test_what_nobody_reported_is_a_question_mark() -> None:
    bare = machine("l40s-pcie-4")
    pathless = replace(bare.gpus[0], path=None)
    lines = _rows(replace(bare, gpus=(pathless, *bare.gpus[1:]), pairs=()))
    assert lines[1].startswith("GPU0\t X \t?\t?\t?\t")


@pytest.mark.parametrize(
    ("cpus", "node", "tail"),
    [
        (None, None, "\t\t\t\tN/A"),
        (CpuSet.of(range(8)), None, "\t0-7\t\tN/A\t\tN/A"),
        (None, 1, "\t\t1\t\tN/A"),
    ],
)
def test_affinities_that_are_unknown_stand_as_nvidia_smi_leaves_them(
    cpus: CpuSet | None,
    node: int | None,
    tail: str,
) -> None:
    bare = machine("l40s-pcie-4")
    gpu = replace(bare.gpus[0], numa_node=node, numa_affinity=None, cpu_affinity=cpus)
    printed = _rows(replace(bare, gpus=(gpu, *bare.gpus[1:])))
    assert printed[1].endswith(f"\tSYS{tail}")
    read = parse_topo_m("\n".join(printed)).gpus[0]
    assert (read.cpu_affinity, read.numa_node) == (cpus, node)


def test_gpu_memory_that_is_a_numa_node_is_named_in_the_last_column() -> None:
    assert _rows(tray())[1].endswith("\t0\t\t2")


@pytest.mark.parametrize("name", CLEAN_CAPTURES)
def test_a_capture_is_printed_as_it_was(corpus: Path, name: str) -> None:
    captured = (corpus / "topo-m" / name).read_text(encoding="utf-8")
    snapshot = parse_topo_m(captured)
    bare, _, _ = re.sub("\x1b\\[[0-9]*m", "", captured).partition("\nLegend")
    assert _rows(snapshot) == bare.rstrip("\n").lstrip(" ").splitlines()


def test_the_legend_says_whom_a_data_direct_function_serves(corpus: Path) -> None:
    path = corpus / "topo-m" / "gb300-station-2gpu-datadirect.txt"
    captured = path.read_text(encoding="utf-8")
    found = legend(matrix(parse_topo_m(captured)))
    assert found.partition("NIC Legend")[2].strip() == captured.partition("NIC Legend")[2].strip()


def test_the_wide_table_names_link_nic_island_and_rail(cli: Cli) -> None:
    lines = cli("topo", "matrix", "--wide", "--machine", "dgx-h100", "-o", "short").out.splitlines()
    wanted = ["0", "0000:43:00.0", "gen5", "x16", "mlx5_1", "0", "1"]
    assert lines[2].split()[-7:] == wanted


def test_nccl_names_the_nics_that_it_uses_for_each_gpu(cli: Cli) -> None:
    source = ("topo", "matrix", "--nccl", "--machine", "hgx-h200")
    nearest = json.loads(cli(*source, "-o", "json").out)["nearest"]
    # Of the three NICs on GPU3's switch, the one of full rate.
    numbers = (3, 5, 4, 2, 7, 9, 8, 6)
    assert nearest == {f"GPU{gpu}": [f"NIC{nic}"] for gpu, nic in enumerate(numbers)}
    assert "  GPU3: NIC2\n" in cli(*source).out


def test_nccl_cells_are_its_own_words_from_row_to_column(cli: Cli) -> None:
    out = cli("topo", "matrix", "--nccl", "--machine", "dgx-h100", "-o", "json").out
    found = json.loads(out)
    ids = [device["id"] for device in found["devices"]]
    cells = {
        (a, b): found["cells"][ids.index(a)][ids.index(b)]
        for a, b in (("GPU0", "GPU1"), ("GPU0", "NIC1"), ("NIC1", "GPU0"), ("NIC0", "NIC1"))
    }
    assert list(cells.values()) == ["NVL", "PXN", "PHB", None]


def test_the_header_is_underlined_on_a_terminal() -> None:
    snapshot = machine("l40s-pcie-4")
    header = text(matrix(snapshot), snapshot, Style(is_on=True)).splitlines()[0]
    assert header == (
        "\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m"
    )


def _rows(snapshot: Snapshot) -> list[str]:
    return text(matrix(snapshot), snapshot, Style(is_on=False)).splitlines()
