"""Title above the picture, legend below it."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from msgspec import Struct

from nodetopo.drawing import canvas as look
from nodetopo.drawing.blocks import FRAME_HEAD, Block, BlockPlan
from nodetopo.drawing.canvas import Canvas, fitted, number, text_width, wrapped
from nodetopo.drawing.containment import BranchKind
from nodetopo.drawing.highlight import Highlight
from nodetopo.drawing.hops import crossing, socket_bus
from nodetopo.drawing.layout import is_vague
from nodetopo.drawing.nvlink import span_text
from nodetopo.drawing.text import memory_nodes
from nodetopo.model.digits import is_digits
from nodetopo.model.snapshot import Origin, Snapshot
from nodetopo.topology.domains import has_switch
from nodetopo.topology.links import cpu_links, nvlinks_between

# The links between NUMA nodes and between sockets.


def paint(canvas: Canvas, plan: BlockPlan, snapshot: Snapshot, way: Highlight) -> None:
    """Join each CPU with its neighbour; which others it joins is not known from sysfs."""
    y = plan.top + look.PAD + plan.cpu_height / 2
    for left, right in pairwise(block for block in plan.blocks if block.branch.name is not None):
        found = _crossing(snapshot, left, right)
        is_inside = left.socket is not None and left.socket == right.socket
        if plan.has_frames and not is_inside and None not in (left.socket, right.socket):
            continue
        _link(canvas, (left.right - look.PAD, right.left + look.PAD), y, found, way)
    frames = sorted(plan.frames.values())
    for (_, start), (end, _) in pairwise(frames):
        bus = socket_bus(snapshot) or ""
        height = plan.top - FRAME_HEAD / 2
        _link(canvas, (start, end), height, (bus, "link between sockets", frozenset()), way)


_Found = tuple[str, str, frozenset[str]]


def _crossing(snapshot: Snapshot, left: Block, right: Block) -> _Found:
    names = frozenset((left.branch.name or "", right.branch.name or ""))
    if not all(is_digits(name) for name in names):
        return "", "link between NUMA nodes", names
    found = crossing(snapshot, int(left.branch.name or 0), int(right.branch.name or 0))
    tip = found.what if found.distance is None else f"{found.what}, distance {found.distance}"
    return found.bus or "", tip, names


def _link(
    canvas: Canvas,
    ends: tuple[float, float],
    y: float,
    found: _Found,
    way: Highlight,
) -> None:
    text, tip, names = found
    is_way = bool(way.crossing) and (way.crossing == names or not names)
    color = look.WAY if is_way else look.BETWEEN
    (x1, x2) = ends
    canvas.path(
        f"M{number(x1)} {number(y)} H{number(x2)}",
        tip,
        stroke=color,
        stroke_width=7 if is_way else 5,
    )
    if text:
        canvas.text((x1 + x2) / 2, y - 8, text, 12, font_weight="bold")


_SWATCH = 18


_LINE = 18


_MOST_FACT_LINES = 3


class Key(Struct, frozen=True, kw_only=True):
    """One entry of the legend; a filled box, or a line where *fill* is empty."""

    text: str
    stroke: str
    fill: str = ""
    thickness: float = 1.6
    dashes: str = ""


def heading(snapshot: Snapshot) -> tuple[str, tuple[str, ...]]:
    """Return the title, and the facts below it."""
    name = snapshot.node or snapshot.product_name or "GPU node"
    products = sorted({gpu.product for gpu in snapshot.gpus if gpu.product})
    count = len(snapshot.gpus)
    what = products[0] if len(products) == 1 else "GPU" if count == 1 else "GPUs"
    gpus = f"{count} x {what}" if len(products) == 1 else f"{count} {what}"
    moment = snapshot.captured_at
    origin = snapshot.provenance.origin if snapshot.provenance else None
    taken = "captured"
    if origin is Origin.COMPOSED:
        taken = "composed from published facts, not captured"
        moment = None
    facts = (
        snapshot.product_name if snapshot.product_name != name else None,
        snapshot.cpu and snapshot.cpu.model,
        snapshot.driver_version and f"driver {snapshot.driver_version}",
        snapshot.cuda_version and "CUDA {}.{}".format(*snapshot.cuda_version),
        f"{taken} {moment:%Y-%m-%d %H:%M} UTC" if moment else taken if origin else None,
    )
    return f"{name}: {gpus}", tuple(fact for fact in facts if fact)


def paint_title(canvas: Canvas, snapshot: Snapshot, width: float) -> float:
    """Paint the title and the facts; return their lower side."""
    title, facts = heading(snapshot)
    x, room = look.MARGIN, width - 2 * look.MARGIN
    start = {"text_anchor": "start"}
    canvas.text(x, look.MARGIN + 18, fitted(title, 20, room), 20, font_weight="bold", **start)
    separated = [fact if at == len(facts) - 1 else f"{fact} ·" for at, fact in enumerate(facts)]
    y = look.MARGIN + 22.0
    for line in wrapped(separated, 12, room)[:_MOST_FACT_LINES]:
        y += 16
        canvas.text(x, y, line.rstrip(" ·"), 12, fill=look.FAINT, **start)
    return y + 18


def paint_legend(
    canvas: Canvas,
    plan: BlockPlan,
    snapshot: Snapshot,
    top: float,
    way: Highlight,
) -> float:
    """Paint the legend and the notes below *top*; return their lower side."""
    x, y = float(look.MARGIN), top + 30
    for key in _keys(plan, snapshot, way):
        needed = _SWATCH + 6 + text_width(key.text, 11) + 18
        if x > look.MARGIN and x + needed > plan.width - look.MARGIN:
            x, y = look.MARGIN, y + _LINE
        dashes = {"stroke_dasharray": key.dashes} if key.dashes else {}
        if key.fill:
            canvas.rect(x, y - 10, _SWATCH, 12, rx=2, fill=key.fill, stroke=key.stroke, **dashes)
        else:
            d = f"M{x:g} {y - 4:g} H{x + _SWATCH:g}"
            canvas.path(d, stroke=key.stroke, stroke_width=key.thickness, **dashes)
        canvas.text(x + _SWATCH + 6, y, key.text, 11, text_anchor="start", fill=look.FAINT)
        x += needed
    notes = (f"{group};" for group in memory_nodes(snapshot))
    for line in wrapped(notes, 11, plan.width - 2 * look.MARGIN):
        y += _LINE
        canvas.text(look.MARGIN, y, line.rstrip(";"), 11, text_anchor="start", fill=look.FAINT)
    return y


def _keys(plan: BlockPlan, snapshot: Snapshot, way: Highlight) -> Iterator[Key]:
    kinds = {box.branch.kind for box in plan.boxes()}
    if BranchKind.GPU in kinds:
        yield Key(text="GPU", fill=look.GPU_FILL, stroke=look.GPU_LINE)
    if BranchKind.NIC in kinds:
        yield Key(text="NIC", fill=look.NIC_FILL, stroke=look.NIC_LINE)
    if kinds & {BranchKind.SWITCH, BranchKind.GROUP}:
        yield Key(text="PCIe switch", fill=look.SWITCH_FILL, stroke=look.SWITCH_LINE)
    if any(is_vague(box) for box in plan.boxes()):
        text = "PCIe position known only by distance"
        yield Key(text=text, stroke=look.PCIE, dashes="4 3")
    if not all(is_vague(box) for box in plan.boxes()):
        yield Key(text="PCIe (fastest both ends support)", stroke=look.PCIE)
    if counts := sorted({count for count in nvlinks_between(snapshot).values() if count}):
        yield Key(text=_nvlink_key(counts, snapshot), stroke=look.NVLINK, thickness=5)
    if to_cpu := sorted(set(cpu_links(snapshot).values())):
        text = f"NVLink ({span_text(to_cpu)} from each GPU to its CPU)"
        yield Key(text=text, stroke=look.NVLINK, thickness=5)
    if any(gpu.c2c is not None and gpu.c2c.is_enabled for gpu in snapshot.gpus):
        yield Key(text="NVLink-C2C", stroke=look.C2C, thickness=5)
    if sum(block.branch.name is not None for block in plan.blocks) > 1:
        yield Key(text="CPU interconnect", stroke=look.BETWEEN, thickness=5)
    if way.ends:
        ends = " to ".join(sorted(way.ends))
        yield Key(text=f"path {ends}", stroke=look.WAY, thickness=4)


def _nvlink_key(counts: Sequence[int], snapshot: Snapshot) -> str:
    """Return what the thickness of lines means: *counts* are the links of pairs, ascending."""
    if has_switch(snapshot):
        return f"NVLink ({span_text(counts)} from each GPU)"
    if len(counts) == 1:
        return f"NVLink ({span_text(counts)} between two GPUs)"
    thin, thick = span_text(counts[:1]), span_text(counts[-1:])
    return f"NVLink (thin: {thin}, thick: {thick} between two GPUs)"
