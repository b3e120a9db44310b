"""Drawings in pieces: complete, narrow, and nothing on top of anything else."""

from itertools import combinations
from xml.etree import ElementTree as ET

import pytest

from nodetopo.drawing import canvas
from nodetopo.drawing.devices import row_name
from nodetopo.drawing.pieces import links, pieces
from nodetopo.machines.bundled import machine
from nodetopo.model.snapshot import Snapshot
from tests.cli.outcome import MACHINES

PHONE = 390
"""CSS pixels across a phone."""


def _roots(snapshot: Snapshot) -> list[ET.Element]:
    return [ET.fromstring(piece) for piece in pieces(snapshot, {})]


@pytest.mark.parametrize("name", MACHINES)
def test_every_gpu_and_nic_is_in_one_piece(name: str) -> None:
    snapshot = machine(name)
    heads = [
        text.text
        for root in _roots(snapshot)
        for text in root.iter("text")
        if text.get("font-size") == "13"
    ]
    parts = {hca.name for hca in snapshot.hcas or () if hca.parent is not None}
    wanted = [gpu.name for gpu in snapshot.gpus]
    wanted += [row_name(hca, snapshot) for hca in snapshot.hcas or () if hca.name not in parts]
    assert sorted(head for head in heads if head in wanted) == sorted(wanted)


@pytest.mark.parametrize("name", MACHINES)
def test_a_phone_shows_a_piece_without_shrinking_it_much(name: str) -> None:
    for root in _roots(machine(name)):
        assert float(root.get("width", 0)) * 0.8 <= PHONE


@pytest.mark.parametrize("name", MACHINES)
def test_no_box_of_a_piece_lies_on_another(name: str) -> None:
    fills = {canvas.GPU_FILL, canvas.NIC_FILL, canvas.SWITCH_FILL, canvas.CPU_FILL}
    for root in _roots(machine(name)):
        boxes = []
        for box in root.iter("rect"):
            x, y, w, h = (float(box.get(key, 0)) for key in ("x", "y", "width", "height"))
            assert x >= 0
            assert x + w <= float(root.get("width", 0))
            assert y + h <= float(root.get("height", 0))
            if box.get("fill") in fills:
                boxes.append((x, y, x + w, y + h))
        assert not [
            (a, b)
            for a, b in combinations(boxes, 2)
            if a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
        ]


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        (
            "dgx-h100",
            [
                "4 x NVSwitch: 18 links from each GPU, 450 GB/s each way from each GPU",
                "CPU interconnect: UPI",
            ],
        ),
        (
            "ac922",
            [
                "NVLinks of GPU0: 3 to GPU1, 3 to the CPU",
                "NVLinks of GPU1: 3 to GPU0, 3 to the CPU",
                "NVLinks of GPU2: 3 to GPU3, 3 to the CPU",
                "NVLinks of GPU3: 3 to GPU2, 3 to the CPU",
            ],
        ),
        ("rtxpro6000-pcie-8", ["no NVLink", "CPU interconnect: xGMI"]),
    ],
)
def test_what_joins_the_pieces_is_said(name: str, lines: list[str]) -> None:
    assert [*links(machine(name))] == lines
