"""The drawing: well-formed, complete, harmless, and nothing on top of anything else."""

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodetopo.allocation.facts import nvlink_rate
from nodetopo.drawing import canvas
from nodetopo.drawing.devices import row_name
from nodetopo.drawing.layout import model_names
from nodetopo.drawing.node import draw
from nodetopo.errors import DecodeError
from nodetopo.formats.columns import width
from nodetopo.machines.bundled import machine
from nodetopo.model.snapshot import Snapshot
from nodetopo.tools.importers.topo_m import parse_topo_m
from tests.cli.conftest import Cli
from tests.cli.outcome import MACHINES, topo_m
from tests.cli.shapes import collapsed, crowded, tray

SVG = "{http://www.w3.org/2000/svg}"
HARMLESS = {"svg", "title", "rect", "path", "text"}

SHAPES = {"tray": tray, "collapsed": collapsed, "crowded": crowded, "empty": Snapshot}


def _every() -> Iterator[tuple[str, Snapshot]]:
    for name in MACHINES:
        yield name, machine(name)
        yield f"{name}-topo-m", parse_topo_m(topo_m(machine(name)))
    yield from ((name, shape()) for name, shape in SHAPES.items())


every_snapshot = pytest.mark.parametrize(
    "snapshot",
    [snapshot for _, snapshot in _every()],
    ids=[name for name, _ in _every()],
)


@every_snapshot
def test_every_gpu_and_nic_is_drawn_once(snapshot: Snapshot) -> None:
    heads = [
        text.text for text in _root(snapshot).iter(f"{SVG}text") if text.get("font-size") == "13"
    ]
    parts = {hca.name for hca in snapshot.hcas or () if hca.parent is not None}
    wanted = [gpu.name for gpu in snapshot.gpus]
    wanted += [row_name(hca, snapshot) for hca in snapshot.hcas or () if hca.name not in parts]
    assert sorted(head for head in heads if head in wanted) == sorted(wanted)


@every_snapshot
def test_no_box_lies_on_another(snapshot: Snapshot) -> None:
    fills = {canvas.GPU_FILL, canvas.NIC_FILL, canvas.SWITCH_FILL, canvas.CPU_FILL}
    legend = "18"
    boxes = [
        box
        for box in _root(snapshot).iter(f"{SVG}rect")
        if box.get("fill") in fills and box.get("width") != legend
    ]
    assert not [pair for pair in combinations(map(_sides, boxes), 2) if _overlap(*pair)]


@every_snapshot
def test_everything_lies_on_the_paper(snapshot: Snapshot) -> None:
    root = _root(snapshot)
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    for box in root.iter(f"{SVG}rect"):
        left, top, right, bottom = _sides(box)
        assert (left >= 0, top >= 0, right <= width, bottom <= height) == (True,) * 4
    for text in root.iter(f"{SVG}text"):
        assert 0 <= float(text.get("x", -1)) <= width
        assert 0 <= float(text.get("y", -1)) <= height


@every_snapshot
def test_the_same_snapshot_gives_the_same_picture(snapshot: Snapshot) -> None:
    assert draw(snapshot) == draw(snapshot)


def test_every_square_capture_can_be_drawn(corpus: Path) -> None:
    drawn = 0
    for path in sorted((corpus / "topo-m").glob("*.txt")):
        try:
            snapshot = parse_topo_m(path.read_text(encoding="utf-8"))
        except DecodeError:
            continue
        _root(snapshot)
        drawn += 1
    assert drawn > 40


@pytest.mark.parametrize(
    "name",
    [
        "<script>alert(1)</script>",
        '"><svg onload="alert(1)',
        "]]>&amp;'",
        "a\x1b[31m\x00\ufffe\u202eb",
    ],
)
def test_foreign_words_stay_words(name: str) -> None:
    base = machine("dgx-1v")
    hcas = tuple(replace(hca, name=name, firmware=name) for hca in base.hcas or ())
    gpus = tuple(replace(gpu, product=name, uuid=f"{name}{gpu.index}") for gpu in base.gpus)
    snapshot = replace(base, node=name, product_name=name, hcas=hcas, gpus=gpus)
    _assert_harmless(draw(snapshot))


@given(st.text())
def test_no_word_breaks_the_document(word: str) -> None:
    base = machine("l40s-pcie-4")
    _assert_harmless(draw(replace(base, node=word, driver_version=word)))


def test_a_gpu_with_fewer_nvlinks_than_the_others_stands_out() -> None:
    base = machine("dgx-h100")
    links = [link for link in base.nvlinks or () if link.gpu != 5 or link.link < 12]
    root = _root(replace(base, nvlinks=tuple(links)))
    bad = [text.text for text in root.iter(f"{SVG}text") if text.get("fill") == canvas.BAD]
    assert bad == ["12 links"]


def test_curves_have_a_width_for_each_number_of_links() -> None:
    curves = [
        (path.findtext(f"{SVG}title") or "", path.get("stroke-width"))
        for path in _root(machine("dgx-1v")).iter(f"{SVG}path")
        if path.get("stroke") == canvas.NVLINK and path.find(f"{SVG}title") is not None
    ]
    assert len(curves) == 16
    assert {(title.split(": ")[1], width) for title, width in curves} == {
        ("1 NVLink", "2"),
        ("2 NVLinks", "6"),
    }


def test_nvlinks_to_the_cpu_are_drawn_past_the_switches() -> None:
    root = _root(machine("ac922"))
    lines = {
        title: path.get("d", "").split()
        for path in root.iter(f"{SVG}path")
        if (title := path.findtext(f"{SVG}title") or "").endswith("to its CPU")
    }
    assert [*lines] == [f"GPU{index}: 3 NVLinks to its CPU" for index in range(4)]
    chips = [_sides(box) for box in root.iter(f"{SVG}rect") if box.get("width") == "78"]
    for start, top_y, end in lines.values():
        x, top, bottom = float(start[1:]), float(top_y), float(end[1:])
        assert not [chip for chip in chips if _overlap(chip, (x, top, x, bottom))]
    assert _texts(root).count("NV3") == 4
    assert "NVLink (3 links from each GPU to its CPU)" in _texts(root)


@pytest.mark.parametrize(("name", "count"), [("dgx-h100", 18), ("hgx-b200", 18), ("dgx-2", 6)])
def test_the_switch_has_the_bandwidth_that_allocate_counts(name: str, count: int) -> None:
    snapshot = machine(name)
    expected = count * nvlink_rate(snapshot.gpus[0], snapshot) / 1000
    assert f"{expected:.0f} GB/s each way from each GPU" in _texts(_root(snapshot))


@pytest.mark.parametrize(
    ("products", "names"),
    [
        (["NVIDIA RTX PRO 6000 Blackwell Server Edition"], ["RTX PRO 6000"]),
        (["NVIDIA H100 80GB HBM3"], ["H100"]),
        (
            ["NVIDIA RTX A6000 Server Edition", "NVIDIA RTX A5000 Server Edition"],
            ["RTX A6000", "RTX A5000"],
        ),
        (["Wonderfullylongnameofaproduct"], ["Wonderfullylongnameofaproduct"]),
    ],
)
def test_a_name_loses_the_words_that_all_gpus_share(products: list[str], names: list[str]) -> None:
    assert [*model_names(products).values()] == names


def test_a_way_stands_out(cli: Cli) -> None:
    plain = cli("topo", "tree", "-o", "svg", "--machine", "dgx-1v").out
    marked = cli("topo", "path", "GPU1", "NIC3", "-o", "svg", "--machine", "dgx-1v").out
    assert canvas.WAY not in plain
    cards = [
        box.findtext(f"{SVG}title")
        for box in ET.fromstring(marked).iter(f"{SVG}rect")
        if box.get("stroke") == canvas.WAY and box.get("rx") == "6"
    ]
    assert [(title or "").split()[0] for title in cards] == ["GPU1", "NIC3"]


@pytest.mark.parametrize("what", [("matrix",), ("tree",)])
def test_matrix_and_tree_draw_the_same(cli: Cli, what: tuple[str, ...]) -> None:
    out = cli("topo", *what, "-o", "svg", "--machine", "dgx-1v").out
    assert out == draw(machine("dgx-1v"))


def test_other_readers_offer_no_drawing(cli: Cli) -> None:
    outcome = cli("labels", "-o", "svg", "--machine", "dgx-1v")
    assert (outcome.code, outcome.out) == (2, "")


def _root(snapshot: Snapshot) -> ET.Element:
    return ET.fromstring(draw(snapshot))


def _texts(root: ET.Element) -> list[str | None]:
    return [text.text for text in root.iter(f"{SVG}text")]


def _assert_harmless(text: str) -> None:
    root = ET.fromstring(text)
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= HARMLESS
    names = {name for element in root.iter() for name in element.attrib}
    assert not [name for name in names if name.startswith("on") or "href" in name]


_Sides = tuple[float, float, float, float]


def _sides(box: ET.Element) -> _Sides:
    x, y = float(box.get("x", 0)), float(box.get("y", 0))
    return x, y, x + float(box.get("width", 0)), y + float(box.get("height", 0))


def _overlap(a: _Sides, b: _Sides) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


@pytest.mark.parametrize("char", ["x", "é", "漢", "\u0301"])
def test_long_texts_are_measured_once_and_cut(char: str, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = 0

    def counted(text: str) -> int:
        nonlocal measured
        measured += len(text)
        return width(text)

    monkeypatch.setattr(canvas, "width", counted)
    draw(machine("dgx-h100"))
    usual, measured = measured, 0
    long = char * 10_000
    plain = machine("dgx-h100")
    gpus = tuple(replace(gpu, product=long, uuid=f"{long}{gpu.index}") for gpu in plain.gpus)
    hcas = tuple(replace(hca, name=f"{long}{at}") for at, hca in enumerate(plain.hcas or ()))
    document = draw(replace(plain, node=long, product_name=long, gpus=gpus, hcas=hcas))
    texts = 3 * (2 + len(gpus) + len(hcas))
    assert measured < usual + texts * canvas.LONGEST
    assert len(document) < 2 * texts * canvas.LONGEST
    assert ET.fromstring(document) is not None


@given(st.text(max_size=60), st.floats(0, 300))
def test_a_fitted_text_is_the_longest_start_that_fits(text: str, room: float) -> None:
    found = canvas.fitted(text, 10, room)
    cleaned = canvas.safe(text)
    if canvas.text_width(cleaned, 10) <= room:
        assert found == cleaned
        return
    starts = [cleaned[:end] for end in range(len(cleaned))]
    fitting = [start for start in starts if canvas.text_width(f"{start}…", 10) <= room]
    assert found == max(fitting, key=len, default="").rstrip(" ·,-") + "…"
