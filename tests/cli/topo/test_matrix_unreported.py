"""A cell that nobody reports: printed as a question mark, and read back as unknown."""

from msgspec.structs import replace

from nodetopo.cli.output import Style
from nodetopo.cli.topo.rows import NOT_REPORTED, text
from nodetopo.machines.bundled import machine
from nodetopo.tools.importers.topo_m import parse_topo_m
from nodetopo.topology.matrix import matrix

L40S = machine("l40s-pcie-4")


def test_a_matrix_with_unreported_cells_is_read_back_as_it_was_printed() -> None:
    gpus = tuple(replace(gpu, numa_node=None) for gpu in L40S.gpus)
    snapshot = replace(L40S, gpus=gpus, pairs=())
    printed = text(matrix(snapshot), snapshot, Style(is_on=False))
    assert NOT_REPORTED in printed
    assert matrix(parse_topo_m(printed)).cells == matrix(snapshot).cells


def test_a_matrix_without_nic_rows_does_not_prove_that_there_are_no_hcas() -> None:
    printed = text(matrix(L40S), L40S, Style(is_on=False))
    assert parse_topo_m(printed).hcas is None
