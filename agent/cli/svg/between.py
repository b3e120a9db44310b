"""The links between NUMA nodes and between sockets."""

from collections.abc import Iterator
from itertools import pairwise

from agent.cli.svg import palette as look
from agent.cli.svg.blocks import FRAME_HEAD, Block, Plan
from agent.cli.svg.canvas import Canvas, number
from agent.cli.svg.highlight import Highlight
from agent.cli.topo.crossing import crossing, socket_bus
from agent.model.snapshot import Snapshot


def paint(canvas: Canvas, plan: Plan, snapshot: Snapshot, way: Highlight) -> None:
    """Join each CPU with its neighbour; which others it joins is not known from sysfs."""
    y = plan.top + look.PAD + plan.cpu_height / 2
    for left, right in _neighbours(plan):
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


def _neighbours(plan: Plan) -> Iterator[tuple[Block, Block]]:
    named = [block for block in plan.blocks if block.branch.name is not None]
    yield from pairwise(named)


def _crossing(snapshot: Snapshot, left: Block, right: Block) -> _Found:
    names = frozenset((left.branch.name or "", right.branch.name or ""))
    if not all(name.isdecimal() for name in names):
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
