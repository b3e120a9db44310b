"""A node as narrow drawings, one below the other, for a screen that the whole one does not fit.

Each piece has a CPU and some PCIe trees below it. The links that join pieces, NVLink and the CPU
interconnect, are given as text.
"""

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from nodetopo.drawing import pcie
from nodetopo.drawing.blocks import BlockPlan, least_width, plan, stack
from nodetopo.drawing.canvas import CARD, CHIP_W, GAP, PAD, Canvas
from nodetopo.drawing.highlight import Highlight
from nodetopo.drawing.hops import socket_bus
from nodetopo.drawing.layout import Box, Mark, place, span
from nodetopo.drawing.node import mark
from nodetopo.drawing.nvlink import words
from nodetopo.model.snapshot import Snapshot

_ROOM = 4 * CARD + 3 * GAP
"""Width of the devices of one piece: four cards, which a phone shows at 80 % of their size."""

_BOLD = 24
"""Room for a title, which is bold: a piece can be as narrow as its title."""

_EDGE = 1
"""Around a piece: half of the line of its frame."""


def pieces(snapshot: Snapshot, marks: Mapping[int, Mark]) -> tuple[str, ...]:
    """Return the pieces as elements of an HTML page, with the *marks* of GPUs, by index.

    A PCIe tree that is wider than a piece continues in the next one, below the same bridges.
    """
    whole = plan(snapshot)
    mark(whole, marks)
    return tuple(
        _piece(whole, at, children, f" ({number} of {len(groups)})" if len(groups) > 1 else "")
        for at, block in enumerate(whole.blocks)
        for groups in [_groups(block.children) or [[]]]
        for number, children in enumerate(groups, 1)
    )


def links(snapshot: Snapshot) -> Iterator[str]:
    """Yield the links that join the pieces, a line each."""
    yield from words(snapshot)
    if (bus := socket_bus(snapshot)) is not None and len(snapshot.numa_nodes or ()) > 1:
        yield f"CPU interconnect: {bus}"


def _piece(whole: BlockPlan, at: int, children: list[Box], part: str) -> str:
    block = whole.blocks[at]
    title, *others = block.lines
    if whole.has_frames and block.socket is not None:
        title = f"Socket {block.socket} · {title}"
    lines = (f"{title}{part}", *others)
    inner = max(span(children), least_width(lines) + _BOLD)
    one = replace(
        block, lines=lines, children=children, left=_EDGE, width=min(inner, _ROOM) + 2 * PAD
    )
    one.width = max(one.width, span(children) + 2 * PAD)
    place(children, one.left + (one.width - span(children)) / 2)
    alone = BlockPlan(blocks=[one], has_frames=False, cpu_links=whole.cpu_links)
    stack(alone, _EDGE)
    canvas = Canvas()
    pcie.paint(canvas, alone, Highlight())
    return canvas.piece(one.width + 2 * _EDGE, alone.bottom + _EDGE, lines[0])


def _groups(children: Sequence[Box]) -> list[list[Box]]:
    """Return *children*, divided where they are too wide, in groups that fit a piece."""
    groups: list[list[Box]] = []
    for child in children:
        for part in _divided(child):
            if groups and span([*groups[-1], part]) <= _ROOM:
                groups[-1].append(part)
            else:
                groups.append([part])
    return groups


def _divided(box: Box) -> Iterator[Box]:
    if box.is_card or box.width <= _ROOM:
        yield box
        return
    for group in _groups(box.children):
        yield replace(box, children=group, width=max(CHIP_W, span(group)))
