"""Damaged copies of `nvidia-smi topo -m`: cut ones are read as far as they go, none is mended."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodetopo.errors import DecodeError
from nodetopo.model.gpu import Gpu
from nodetopo.model.hca import Hca
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.tools.importers.topo_m import parse_topo_m
from nodetopo.topology.matrix import matrix
from tests.tools.importers.mutations import mutated
from tests.tools.importers.topo_m_text import NIC_LEGEND, PCI_LEGEND, ROWS, TEXT


@pytest.mark.parametrize(
    "cut",
    [
        ROWS[: ROWS.index("NIC0\tPXB")],
        ROWS[: ROWS.index("NIC0\tPXB")] + PCI_LEGEND.replace("PIX", "NV#"),
        ROWS[: ROWS.index("NIC0\tPXB")] + "NIC0\tPX",
        ROWS[: ROWS.index("NIC0\tPXB")] + "NI",
    ],
    ids=["after a row", "rows filtered out", "in a row", "in a name"],
)
def test_a_cut_paste_is_read_as_far_as_it_goes(cut: str) -> None:
    snapshot = parse_topo_m(cut)
    assert (snapshot.pairs, snapshot.hcas, snapshot.issues) == (
        parse_topo_m(TEXT).pairs,
        (Hca(name="NIC0"),),
        (
            ProbeIssue(
                probe="topo-m", subject="rows", reason="1 of 3 rows are missing, from NIC0 on"
            ),
        ),
    )


def test_facts_of_missing_rows_are_unknown() -> None:
    snapshot = parse_topo_m(ROWS[: ROWS.index("GPU1\tNV4")])
    assert snapshot.gpus[1] == Gpu(index=1)
    assert matrix(snapshot).cells == (("X", "NV4", "PXB"), ("NV4", "X", None), ("PXB", None, "X"))


@pytest.mark.parametrize(
    "end",
    ["8-15\t1\t\tN/A", "8-15\t1", "8-1", "8"],
    ids=["perhaps whole", "no GPU NUMA ID", "half a list", "a first digit"],
)
def test_affinities_at_the_end_of_a_cut_text_are_dropped(end: str) -> None:
    row = "GPU1\tNV4\t X \tSYS\t8-15"
    snapshot = parse_topo_m(ROWS[: ROWS.index(row)] + row.removesuffix("8-15") + end)
    assert snapshot.gpus[1] == Gpu(index=1)
    assert snapshot.pairs == parse_topo_m(TEXT).pairs
    assert [(issue.subject, issue.reason) for issue in snapshot.issues] == [
        ("rows", "1 of 3 rows are missing, from NIC0 on"),
        ("affinities", "cut, or not to be told apart without tabs: GPU1"),
    ]


def test_an_nvlink_cell_at_the_end_of_a_cut_text_is_dropped() -> None:
    text = "\tGPU0\tGPU1\tGPU2\tCPU Affinity\nGPU0\t X \tNV8\tNV8\t0\nGPU1\tNV8\t X \tNV1"
    cells = matrix(parse_topo_m(text)).cells
    assert cells == (("X", "NV8", "NV8"), ("NV8", "X", None), ("NV8", None, "X"))
    # An editor and a fence end a paste with a line end.
    assert matrix(parse_topo_m(f"{text}\n")).cells == cells
    assert matrix(parse_topo_m(f"```\n{text}\n```\n")).cells == cells


def test_a_list_of_cpus_before_missing_rows_may_be_cut() -> None:
    head = "\tGPU0\tGPU1\tGPU2\tCPU Affinity\nGPU0\t X \tNV8\tNV8\t0-23\n"
    snapshot = parse_topo_m(f"{head}GPU1\tNV8\t X \tNV8\t0-2\n")
    assert [gpu.cpu_affinity is None for gpu in snapshot.gpus] == [False, True, True]
    snapshot = parse_topo_m(f"{head}GPU1\tNV8\t X \tNV8\t0-23\n")
    assert [gpu.cpu_affinity is None for gpu in snapshot.gpus] == [False, False, True]


@pytest.mark.parametrize(
    "prefix",
    ["node-a: ", "[pod/trainer-0/main] ", "2025-03-11T08:22:31.123456789Z ", "> ", "\x1b[0m"],
)
def test_a_prefix_before_every_line_is_left_out(prefix: str) -> None:
    assert parse_topo_m("".join(prefix + line for line in TEXT.splitlines(True))) == parse_topo_m(
        TEXT
    )


def test_fused_cells_are_split_as_there_is_one_way() -> None:
    for fused in ("GPU0\t X NV4PXB", "GPU0\tXNV4\tPXB", "GPU0\tXNV4PXB"):
        assert parse_topo_m(TEXT.replace("GPU0\t X \tNV4\tPXB", fused)) == parse_topo_m(TEXT)


def test_a_matrix_of_pcie_says_that_it_hides_nvlinks() -> None:
    text = ROWS.replace("NV4", "SYS")
    assert parse_topo_m(text).issues == ()
    (issue,) = parse_topo_m(f"$ nvidia-smi topo -mp\n{text}").issues
    assert (issue.subject, "hides NVLinks" in issue.reason) == ("nvlinks", True)


def test_a_markdown_table_is_read() -> None:
    rows = [line.split("\t") for line in ROWS.splitlines() if line]
    table = ["| " + " | ".join(row) + " |" for row in rows]
    table.insert(1, "|" + "---|" * len(rows[0]))
    assert parse_topo_m("\n".join(table)).pairs == parse_topo_m(ROWS).pairs
    assert parse_topo_m("\n".join(table)).gpus == parse_topo_m(ROWS).gpus


def test_rows_of_two_hosts_that_are_mixed_are_two_matrices() -> None:
    both = zip(ROWS.splitlines(), OTHER.splitlines(), strict=False)
    mixed = "\n".join(f"node-{at}: {line}" for pair in both for at, line in enumerate(pair))
    snapshot = parse_topo_m(mixed)
    assert snapshot.pairs == parse_topo_m(ROWS).pairs
    assert "a second matrix" in snapshot.issues[-1].reason


def test_a_text_that_ends_in_the_last_cell_of_a_row_is_cut() -> None:
    text = ROWS.replace("NIC0\tPXB\tSYS\t X \t\t\t\t\n", "").replace("\tNIC0", "\tNIC0\tNIC1")
    text = text.replace("PXB", "PXB\tPIX").replace("SYS", "SYS\tSYS") + "NIC0\tPXB\tSYS\tX\tPH"
    (issue,) = parse_topo_m(text).issues
    assert issue.reason == "2 of 4 rows are missing, from NIC0 on"


@pytest.mark.parametrize(
    "tail", ["0-7                  N/A", "    0-7", "\t0-7       N/A", "\t0-7\t\t9"]
)
def test_affinities_without_tabs_are_unknown(tail: str) -> None:
    snapshot = parse_topo_m(
        TEXT.replace("\t0-7\t0\t\tN/A", tail if tail[0] == "\t" else f" {tail}")
    )
    assert snapshot.gpus[0] == Gpu(index=0)
    assert (snapshot.gpus[1], snapshot.pairs) == (
        parse_topo_m(TEXT).gpus[1],
        parse_topo_m(TEXT).pairs,
    )
    (issue,) = snapshot.issues
    assert issue.reason == "cut, or not to be told apart without tabs: GPU0"


@pytest.mark.parametrize(
    "fused", ["NV4PXB0-7", "NV4\tPXB0-7", "NV4 PXB0-7", "NV4\t PXB0-3,4-7", "NV4 PXB\t0-7"]
)
def test_a_cell_fused_with_the_affinity_is_split(fused: str) -> None:
    assert parse_topo_m(TEXT.replace("NV4\tPXB\t0-7", fused)) == parse_topo_m(TEXT)


@pytest.mark.parametrize(
    ("cell", "affinity"),
    [("NV18", "0-31"), ("NV4", "0-7"), ("NV18", "N/A"), ("SYS", "0,2,4"), ("SYS", "N/A")],
)
def test_an_nvlink_cell_is_split_where_one_way_leaves_an_affinity(cell: str, affinity: str) -> None:
    rows = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \t{0}{2}{1}\nGPU1\t{0}\t X{2}{1}\n"
    split, fused = (parse_topo_m(rows.format(cell, affinity, gap)) for gap in ("\t", ""))
    assert fused == split
    assert len(split.pairs or ()) == 1


@pytest.mark.parametrize("tail", ["                  N/A", "       N/A       N/A"])
def test_blanks_before_nothing_known_are_no_issue(tail: str) -> None:
    snapshot = parse_topo_m(TEXT.replace("\t0-7\t0\t\tN/A", tail))
    assert (snapshot.gpus[0], snapshot.issues) == (Gpu(index=0), ())


@pytest.mark.parametrize(
    ("broken", "place", "problem"),
    [
        ("", "", "no header with GPU columns: not a matrix"),
        ("\tCPU Affinity\n", "", "no header with GPU columns: not a matrix"),
        ("\tGPU0\tGPU1\n", "", "no header with GPU columns: not a matrix"),
        (
            TEXT.replace("NV4\tPXB\t0-7", "NV180-95"),
            "GPU0/GPU1",
            "not a cell here: 'NV180-95'",
        ),
        (TEXT.replace("PXB\t0-7", "PXB7-0"), "GPU0/NIC0", "not a cell here: 'PXB7-0'"),
        (TEXT.replace("\tPXB\t0-7", "\t0-7"), "GPU0/NIC0", "not a cell here: '0-7'"),
        (TEXT.replace("NIC0\tPXB\t", "NIC0\t"), "NIC0", "2 cells for 3 columns"),
        (TEXT.replace("\tSYS\t X ", "\tSYS\t X \tSYS"), "NIC0", "more cells than columns: 'SYS'"),
        (
            ROWS.replace("GPU1\tNV4", "GPU2\tNV4"),
            "GPU1",
            "its row is missing: 1 rows for 3 columns",
        ),
        (ROWS[: ROWS.index("GPU0\t X")], "GPU0", "its row is missing: 0 rows for 3 columns"),
        (TEXT.replace("GPU1\tNV4", "GPU1\tNV2"), "GPU1/GPU0", "NV2 one way, NV4 the other"),
        (TEXT.replace("GPU1\tNV4\t X ", "GPU1\tNV4\tSYS"), "GPU1/GPU1", "not a cell here: 'SYS'"),
        (TEXT.replace("NV4", " X "), "GPU0/GPU1", "not a cell here: 'X'"),
        (TEXT.replace("PXB", "NV4"), "GPU0/NIC0", "not a cell here: 'NV4'"),
        (TEXT.replace("NV4", "FAR"), "GPU0/GPU1", "not a cell here: 'FAR'"),
        (
            TEXT.replace("NUMA ID", "NUMA ID\tX"),
            "header",
            "columns not understood after CPU Affinity: 'NUMA Affinity\\tGPU NUMA ID\\tX'",
        ),
        (TEXT.replace("\tNIC0\tC", "\tFOO\tC"), "header", "column 3 cannot be 'FOO'"),
        (TEXT.replace("GPU1", "GPU0"), "header", "column 2 cannot be 'GPU0'"),
        (TEXT.replace("0-7\t0", "0-x\t0"), "GPU0/CPU Affinity", "not a list: '0-x'"),
        (
            TEXT.replace("0-7\t0\t\tN/A", "0-7\t0\t\tx"),
            "GPU0/GPU NUMA ID",
            "not a number: 'x'",
        ),
        (
            TEXT.replace("0-7\t0\t\tN/A", "0-7\t0\t9\tN/A"),
            "GPU0",
            "more words than columns: '0-7\\t0\\t9\\tN/A'",
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


@given(st.text(max_size=300))
def test_no_text_does_more_than_be_refused(text: str) -> None:
    _read_or_refuse(text)


@given(mutated(TEXT))
def test_no_damage_to_a_matrix_does_more_than_get_it_refused(text: str) -> None:
    _read_or_refuse(text)


def _read_or_refuse(text: str) -> None:
    try:
        found = matrix(parse_topo_m(text))
    except DecodeError:
        return
    assert all(len(row) == len(found.devices) for row in found.cells)


OTHER = ROWS.replace("NV4", "SYS") + NIC_LEGEND.replace("mlx5_bond_0", "mlx5_7")
"""The matrix of another machine in the same paste."""


@pytest.mark.parametrize(
    ("behind", "count", "first"),
    [
        (OTHER, "6 lines are", "GPU0 GPU1 NIC0 CPU Affinity NUMA Affinit"),
        ("NIC0\tSYS\tSYS\t X\n", "1 line is", "NIC0 SYS SYS X"),
        ("NIC0\tNODE\tSYS\t X\nGPU1\tNV4\t X\tSYS\n", "2 lines are", "NIC0 NODE SYS X"),
        ("root@node:~# exit\n", "1 line is", "root@node:~# exit"),
    ],
    ids=["a second matrix", "a row again", "two rows again", "something else"],
)
@pytest.mark.parametrize("has_legend", [True, False])
def test_text_behind_the_matrix_is_an_issue_and_names_nothing(
    behind: str, count: str, first: str, *, has_legend: bool
) -> None:
    snapshot = parse_topo_m((TEXT if has_legend else ROWS) + behind)
    assert snapshot.hcas == (Hca(name="mlx5_bond_0" if has_legend else "NIC0"),)
    assert snapshot.pairs == parse_topo_m(TEXT).pairs
    reason = f"{count} not read after the matrix and its legend, from {first!r} on"
    reason += ": a second matrix, perhaps of another node" if behind == OTHER else ""
    assert snapshot.issues == (ProbeIssue(probe="topo-m", subject="text", reason=reason),)


def test_a_row_with_two_names_has_none() -> None:
    snapshot = parse_topo_m(TEXT + "  NIC0: mlx5_3\n")
    assert snapshot.hcas == (Hca(name="NIC0"),)
    (issue,) = snapshot.issues
    assert issue.reason == "NIC0 has several names: mlx5_3, mlx5_bond_0"


TWO_GPUS = (
    "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \tSYS\t0-31\t0\t\tN/A\n"
)


@pytest.mark.parametrize("end", ["", "\t0", "\t0-3", "\t0-31", "\t0-31\t1"])
@pytest.mark.parametrize("newline", ["", "\n"])
def test_a_cut_last_row_is_an_issue_without_any_nic(end: str, newline: str) -> None:
    snapshot = parse_topo_m(f"{TWO_GPUS}GPU1\tSYS\t X{end}{newline}")
    assert snapshot.gpus[1] == Gpu(index=1)
    (issue,) = snapshot.issues
    assert issue.reason == "cut, or not to be told apart without tabs: GPU1"


def test_a_whole_last_row_is_no_issue() -> None:
    snapshot = parse_topo_m(f"{TWO_GPUS}GPU1\tSYS\t X \t32-63\t1\t\tN/A\n")
    assert (snapshot.gpus[1].numa_node, snapshot.issues) == (1, ())


def test_a_matrix_without_any_affinity_is_no_issue() -> None:
    text = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tSYS\nGPU1\tSYS\t X \n"
    assert parse_topo_m(text).issues == ()


@pytest.mark.parametrize("name", ["m", "mlx", "mlx5", "mlx5_", "mlx5_bond", "mlx5_0"])
@pytest.mark.parametrize("newline", ["", "\n"])
def test_a_cut_legend_names_no_nic(name: str, newline: str) -> None:
    text = "\tGPU0\tNIC0\tNIC1\nGPU0\tX\tPIX\tSYS\nNIC0\tPIX\tX\tSYS\nNIC1\tSYS\tSYS\tX\n"
    text += f"\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: {name}{newline}"
    snapshot = parse_topo_m(text)
    assert snapshot.hcas == (Hca(name="mlx5_0"), Hca(name="NIC1"))
    (issue,) = snapshot.issues
    assert issue.reason == "cut: 1 of 2 rows have no name in it, from NIC1 on"


@pytest.mark.parametrize("name", ["mlx5_1", "mlx5_10", "mlx5_bond_0", "rocep1s0f1"])
def test_the_last_name_of_a_legend_may_differ_from_the_others(name: str) -> None:
    text = "\tGPU0\tNIC0\tNIC1\nGPU0\tX\tPIX\tSYS\nNIC0\tPIX\tX\tSYS\nNIC1\tSYS\tSYS\tX\n"
    text += f"\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: {name}"
    snapshot = parse_topo_m(text)
    assert snapshot.hcas == (Hca(name="mlx5_0"), Hca(name=name))
    assert snapshot.issues == ()


def test_a_legend_cut_at_its_heading_is_an_issue() -> None:
    (issue,) = parse_topo_m(f"{ROWS}\nNIC Legend:\n").issues
    assert issue.reason == "cut: 1 of 1 rows have no name in it, from NIC0 on"
