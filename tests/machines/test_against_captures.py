"""Composed machines beside what nvidia-smi printed on such hardware."""

from pathlib import Path

from nodetopo.tools.importers.topo_m import parse_topo_m
from nodetopo.topology.matrix import Matrix, matrix
from tests.compose import dgx_a100, gb200_nvl72


def captured(corpus: Path, name: str) -> Matrix:
    """Return the matrix of a text in the corpus."""
    return matrix(parse_topo_m((corpus / "topo-m" / name).read_text("utf-8")))


def test_a_dgx_a100_has_every_cell_that_nvidia_smi_printed(corpus: Path) -> None:
    ours = matrix(dgx_a100.machine().snapshot)
    theirs = captured(corpus, "dgxa100-12mlx5-nps4.txt")
    assert ours.cells == theirs.cells
    assert [row.cpus for row in ours.devices[:8]] == [row.cpus for row in theirs.devices[:8]]
    assert [row.numa for row in ours.devices[:8]] == [row.numa for row in theirs.devices[:8]]


def test_a_gb200_differs_only_between_root_complexes_of_one_cpu(corpus: Path) -> None:
    """By its own manual nvidia-smi would print NODE there; on this machine it prints SYS."""
    ours = matrix(gb200_nvl72.machine().snapshot)
    theirs = captured(corpus, "gb200-4gpu-8nic.txt")
    differing = {
        (mine, printed)
        for row, other in zip(ours.cells, theirs.cells, strict=True)
        for mine, printed in zip(row, other, strict=True)
        if mine != printed
    }
    assert differing == {("NODE", "SYS")}
    assert [row.cpus for row in ours.devices[:4]] == [row.cpus for row in theirs.devices[:4]]
