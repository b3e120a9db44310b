"""Every capture of the corpus: its cells come back, and only cut ones have an issue."""

import re
from pathlib import Path
from random import Random

from nodetopo.errors import DecodeError
from nodetopo.tools.importers.topo_m import parse_topo_m
from nodetopo.topology.matrix import matrix
from tests.tools.importers.mutations import damage

FUSED = {"b200x8-16nic-fused-cells.txt"}
CUT = {"dgxh100-talos-truncated-rows.txt", "gb10-truncated-gpu-row-only.txt"}
"""Captures that their index calls broken: by lost tabs, and by missing rows."""


def _captures(corpus: Path) -> list[Path]:
    captures = sorted((corpus / "topo-m").glob("*.txt"))
    assert captures, "the corpus holds no captures"
    return captures


def test_fused_cells_of_a_capture_are_split(corpus: Path) -> None:
    for name in FUSED:
        text = (corpus / "topo-m" / name).read_text("utf-8")
        rows = [
            line.split() for line in text.splitlines() if re.match(r"GPU[0-9]+\s+(?:X|NV)", line)
        ]
        snapshot = parse_topo_m(text)
        assert snapshot.hcas is not None
        cells = matrix(snapshot).cells
        for row, found in zip(rows, cells[: len(snapshot.gpus)], strict=True):
            fused = "".join(row[1:])
            assert fused.startswith("".join(cell or "" for cell in found))


def test_exactly_the_cut_captures_of_the_corpus_have_an_issue(corpus: Path) -> None:
    issues = {
        capture.name: parse_topo_m(capture.read_text("utf-8")).issues
        for capture in _captures(corpus)
    }
    assert {name for name, found in issues.items() if found} == CUT


def test_the_matrix_of_every_capture_is_the_captured_one(corpus: Path) -> None:
    differing = []
    for capture in _captures(corpus):
        if capture.name not in FUSED:
            text = capture.read_text("utf-8")
            cells = matrix(parse_topo_m(text)).cells
            captured = _cells(text, len(cells))
            if [list(row) for row in cells[: len(captured)]] != captured or not captured:
                differing.append(capture.name)
    assert differing == []


def test_no_damage_to_a_capture_does_more_than_get_it_refused(corpus: Path) -> None:
    for capture in _captures(corpus):
        for seed in range(10):
            _read_or_refuse(damage(capture.read_text("utf-8"), Random(seed), times=3))


def _read_or_refuse(text: str) -> None:
    try:
        found = matrix(parse_topo_m(text))
    except DecodeError:
        return
    assert all(len(row) == len(found.devices) for row in found.cells)


def _cells(text: str, size: int) -> list[list[str]]:
    """Read the cells of a capture by a way of its own: row by row, words by position."""
    row = re.compile(r"\s*(?:GPU|NIC|DD|mlx[45]_)\d+\s+(?:X|NV\d+|PIX|PXB|PHB|NODE|SYS|SOC)\s.*")
    rows = [
        line.split() for line in text.splitlines() if line.strip() and row.fullmatch(line + " ")
    ]
    return [[word.replace("SOC", "SYS") for word in words[1 : size + 1]] for words in rows]
