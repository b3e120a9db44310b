"""The matrix as text: nvidia-smi's own layout, and read back without loss."""

from dataclasses import replace

import pytest

from agent.cli.render import Style
from agent.cli.topo_matrix import text
from agent.machines.bundled import machine
from agent.model.snapshot import Snapshot
from agent.probes.topo_m import parse_topo_m
from agent.topology.matrix import matrix
from tests.cli.outcome import MACHINES, topo_m


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


def test_a_gpu_of_unknown_place_prints_not_available() -> None:
    bare = machine("l40s-pcie-4")
    lost = replace(bare.gpus[0], numa_node=None, numa_affinity=None, cpu_affinity=None)
    lines = _rows(replace(bare, gpus=(lost, *bare.gpus[1:])))
    assert lines[1].endswith("\tN/A\tN/A\t\tN/A")


def test_the_header_is_underlined_on_a_terminal() -> None:
    snapshot = machine("l40s-pcie-4")
    header = text(matrix(snapshot), snapshot, Style(is_on=True)).splitlines()[0]
    assert header == (
        "\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m"
    )


def _rows(snapshot: Snapshot) -> list[str]:
    return text(matrix(snapshot), snapshot, Style(is_on=False)).splitlines()
