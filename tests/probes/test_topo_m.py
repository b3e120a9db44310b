"""The text of `nvidia-smi topo -m`: every layout is read, no broken copy is guessed at."""

import re
from pathlib import Path

import pytest

from agent.errors import DecodeError
from agent.model.gpu import Gpu
from agent.model.hca import Hca
from agent.model.numa import CpuSet
from agent.model.nvlink import Closeness, ReportedPair
from agent.model.snapshot import Snapshot
from agent.probes.topo_m import parse_topo_m
from agent.topology.matrix import matrix

ROWS = """\
\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tNV4\tPXB\t0-7\t0\t\tN/A
GPU1\tNV4\t X \tSYS\t8-15\t1\t\tN/A
NIC0\tPXB\tSYS\t X \t\t\t\t
"""
TEXT = f"{ROWS}\nLegend:\n\n  X    = Self\n\nNIC Legend:\n\n  NIC0: mlx5_bond_0\n"

ANOMALIES = {
    "b200x8-16nic-fused-cells.txt",
    "dgxh100-talos-truncated-rows.txt",
    "gb10-truncated-gpu-row-only.txt",
}
"""Captures that their index calls broken."""


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
        TEXT.lstrip("\t"),
        TEXT.replace("\t", "   "),
        re.sub(r"\t+$", "", TEXT, flags=re.MULTILINE),
        TEXT.replace("\n", "\r\n"),
        "    " + TEXT.replace("\n", "\n    "),
        f"$ nvidia-smi topo -m\n{TEXT}",
        TEXT.replace("SYS", "SOC"),
        TEXT.replace(" X ", "X"),
    ],
    ids=[
        "underlined",
        "escape byte lost",
        "no leading tab",
        "blanks for tabs",
        "trailing tabs trimmed",
        "CR LF",
        "indented",
        "a line before it",
        "SOC",
        "bare X",
    ],
)
def test_copies_that_lost_no_cell_read_the_same(same: str) -> None:
    assert parse_topo_m(same) == parse_topo_m(TEXT)


@pytest.mark.parametrize(
    ("tail", "cpus", "nodes", "node"),
    [
        ("0-71\t0,2-4\t\t1", "0-71", (0, 2, 3, 4), None),
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


def test_a_data_direct_function_is_a_device_of_its_own() -> None:
    text = "\tGPU0\tNIC0\tDD0\tCPU Affinity\nGPU0\t X \tSYS\tPXB\t0-7\n"
    text += "NIC0\tSYS\t X \tSYS\nDD0\tPXB\tSYS\t X \n\nNIC Legend:\n\n  NIC0: mlx5_0\n"
    text += "  DD0: mlx5_0 data-direct function\n"
    assert parse_topo_m(text).hcas == (Hca(name="mlx5_0"), Hca(name="DD0"))


@pytest.mark.parametrize(
    ("broken", "place", "problem"),
    [
        ("", "", "no header with GPU columns and CPU Affinity: not a matrix"),
        ("\tCPU Affinity\n", "", "no header with GPU columns and CPU Affinity: not a matrix"),
        (TEXT.replace("\tPXB\t0-7", "PXB\t0-7"), "GPU0/GPU1", "not a cell here: 'NV4PXB'"),
        (TEXT.replace("\tPXB\t0-7", "\t0-7"), "GPU0/NIC0", "not a cell here: '0-7'"),
        (TEXT.replace("NIC0\tPXB\t", "NIC0\t"), "NIC0", "2 cells for 3 columns"),
        (TEXT.replace("\tSYS\t X ", "\tSYS\t X \tSYS"), "NIC0", "more cells than columns: 'SYS'"),
        (ROWS[: ROWS.index("NIC0\tPXB")], "NIC0", "its row is missing: 2 rows for 3 columns"),
        (TEXT.replace("GPU1\tNV4", "GPU1\tNV2"), "GPU1/GPU0", "NV2 one way, NV4 the other"),
        (TEXT.replace("GPU1\tNV4\t X ", "GPU1\tNV4\tSYS"), "GPU1/GPU1", "not a cell here: 'SYS'"),
        (TEXT.replace("NV4", " X "), "GPU0/GPU1", "not a cell here: 'X'"),
        (TEXT.replace("PXB", "NV4"), "GPU0/NIC0", "not a cell here: 'NV4'"),
        (TEXT.replace("NV4", "XGMI"), "GPU0/GPU1", "not a cell here: 'XGMI'"),
        (TEXT.replace("GPU1", "GPU0"), "header", "column 2 cannot be 'GPU0'"),
        (TEXT.replace("0-7\t0", "0-x\t0"), "GPU0/CPU Affinity", "not a list: '0-x'"),
        (
            TEXT.replace("0-7\t0\t\tN/A", "0-7\t0\t9\tN/A"),
            "GPU0",
            "affinity columns not understood: '0-7\\t0\\t9\\tN/A'",
        ),
        (
            TEXT.replace("0-7\t0\t\tN/A", "0-7\t\t9"),
            "GPU0",
            "affinity columns not understood: '0-7\\t\\t9'",
        ),
        (
            TEXT.replace("0-7\t0\t\tN/A", "0-7       N/A"),
            "GPU0/CPU Affinity",
            "not a list: '0-7       N/A'",
        ),
    ],
)
def test_a_broken_copy_is_refused_with_the_place(broken: str, place: str, problem: str) -> None:
    with pytest.raises(DecodeError) as caught:
        parse_topo_m(broken)
    assert (caught.value.path, caught.value.problem) == (place, problem)


def test_a_huge_text_is_refused_unread() -> None:
    with pytest.raises(DecodeError, match="larger than 1024 KiB"):
        parse_topo_m("x" * (1024 * 1024 + 1))


def _captures(corpus: Path) -> list[Path]:
    captures = sorted((corpus / "topo-m").glob("*.txt"))
    assert captures, "the corpus holds no captures"
    return captures


def test_exactly_the_broken_captures_of_the_corpus_are_refused(corpus: Path) -> None:
    refused = set()
    for capture in _captures(corpus):
        try:
            parse_topo_m(capture.read_text("utf-8"))
        except DecodeError:
            refused.add(capture.name)
    assert refused == ANOMALIES


def test_the_matrix_of_every_whole_capture_is_the_captured_one(corpus: Path) -> None:
    differing = []
    for capture in _captures(corpus):
        if capture.name not in ANOMALIES:
            text = capture.read_text("utf-8")
            cells = matrix(parse_topo_m(text)).cells
            if [list(row) for row in cells] != _cells(text, len(cells)):
                differing.append(capture.name)
    assert differing == []


def _cells(text: str, size: int) -> list[list[str]]:
    """Read the cells of a whole capture by a way of its own: row by row, words by position."""
    row = re.compile(r"\s*(?:GPU|NIC|DD|mlx[45]_)\d+\s+(?:X|NV\d+|PIX|PXB|PHB|NODE|SYS|SOC)\s.*")
    rows = [
        line.split() for line in text.splitlines() if line.strip() and row.fullmatch(line + " ")
    ]
    return [[word.replace("SOC", "SYS") for word in words[1 : size + 1]] for words in rows]
