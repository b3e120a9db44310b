"""The PCIe side of the picture: CPUs, host bridges, switches, cards, and the lines between."""

from nodetopo.drawing import canvas as look
from nodetopo.drawing.blocks import CPU_LINE, FRAME_HEAD, Block, BlockPlan
from nodetopo.drawing.canvas import Canvas, elbow, fitted, number
from nodetopo.drawing.containment import BranchKind
from nodetopo.drawing.highlight import Highlight
from nodetopo.drawing.layout import BAND_H, HEAD_H, LINE_H, Box, Mark, is_vague, tip
from nodetopo.drawing.text import GROUPS
from nodetopo.model.gpu import Gpu
from nodetopo.model.pci import PcieLink

_CARDS = {
    BranchKind.GPU: (look.GPU_FILL, look.GPU_LINE),
    BranchKind.NIC: (look.NIC_FILL, look.NIC_LINE),
}
_TURN = 10
"""How far below a box the lines to its children turn."""


def paint(canvas: Canvas, plan: BlockPlan, way: Highlight) -> None:
    """Paint frames, blocks, lines and boxes, in that order."""
    for socket, (left, right) in plan.frames.items():
        _frame(canvas, plan, socket, left, right)
    for block in plan.blocks:
        canvas.rect(
            block.left,
            plan.top,
            block.width,
            plan.bottom - plan.top,
            rx=8,
            fill=look.NUMA_FILL,
            stroke=look.NUMA_LINE,
            # A place that was not reported has no firm border.
            **({"stroke_dasharray": "5 4"} if block.branch.name is None else {}),
        )
        for chosen in (False, True):  # the way lies on top
            _edges(canvas, plan, block, way, chosen=chosen)
        _cpu(canvas, plan, block, way)
        for top in block.children:
            for box in top.walk():
                (_card if box.is_card else _chip)(canvas, plan, box, way)


def _frame(canvas: Canvas, plan: BlockPlan, socket: int, left: float, right: float) -> None:
    top = plan.top - FRAME_HEAD
    canvas.rect(
        left,
        top,
        right - left,
        plan.bottom + look.PAD - top,
        rx=10,
        fill=look.PAPER,
        stroke=look.SOCKET_LINE,
        stroke_width=1.5,
    )
    canvas.text((left + right) / 2, top + 17, f"Socket {socket}", 13, font_weight="bold")


def _cpu(canvas: Canvas, plan: BlockPlan, block: Block, way: Highlight) -> None:
    x, y = block.left + look.PAD, plan.top + look.PAD
    room = block.width - 2 * look.PAD
    on_way = block.branch.name in way.numas
    if block.branch.name is not None:
        canvas.rect(
            x,
            y,
            room,
            plan.cpu_height,
            "\n".join(block.lines),
            rx=5,
            fill=look.CPU_FILL,
            stroke=look.WAY if on_way else look.CPU_EDGE,
            stroke_width=2.5 if on_way else 1,
        )
    for position, line in enumerate(block.lines):
        size = 11 if position else 13
        canvas.text(
            block.middle,
            y + 19 + position * CPU_LINE,
            fitted(line, size, room - 6),
            size,
            font_weight="normal" if position else "bold",
        )


def _edges(canvas: Canvas, plan: BlockPlan, block: Block, way: Highlight, *, chosen: bool) -> None:
    for top in block.children:
        if block.branch.name is not None and _is_on(top, way, above=True) is chosen:
            _edge(canvas, plan, (top.x, plan.cpu_bottom), top, chosen=chosen)
        for box in top.walk():
            for child in box.children:
                is_on = _is_on(child, way) and (_is_on(box, way) or not box.branch.address)
                if is_on is chosen:
                    start = (box.x, plan.y(box) + look.CHIP_H)
                    _edge(canvas, plan, start, child, chosen=chosen)
        if not chosen:
            _to_cpu(canvas, plan, top)


def _edge(
    canvas: Canvas,
    plan: BlockPlan,
    start: tuple[float, float],
    box: Box,
    *,
    chosen: bool,
) -> None:
    (x, y), end = start, plan.y(box)
    canvas.path(
        elbow(x, y, box.x, end, y + _TURN),
        stroke=look.WAY if chosen else look.PCIE,
        stroke_width=4 if chosen else 1.6,
        **({"stroke_dasharray": "4 3"} if is_vague(box) else {}),
    )


def _to_cpu(canvas: Canvas, plan: BlockPlan, top: Box) -> None:
    """Draw the links of GPUs that bypass PCIe: NVLink-C2C of Grace, NVLink of POWER9."""
    chips = [box.x for box in plan.boxes() if not box.is_card]
    for box in top.walk():
        device = box.branch.device
        if not isinstance(device, Gpu):
            continue
        count = plan.cpu_links.get(device.index, 0)
        if device.c2c is not None and device.c2c.is_enabled:
            text, note, color = "C2C", "NVLink-C2C", look.C2C
        elif count:
            note = f"{device.name}: {count} NVLink{'' if count == 1 else 's'} to its CPU"
            text, color = f"NV{count}", look.NVLINK  # as `topo matrix` writes links of GPUs
        else:
            continue
        offset = (look.CHIP_W + look.CARD) / 4
        sides = (box.x + offset, box.x - offset)
        free = (x for x in sides if all(abs(chip - x) > look.CHIP_W / 2 for chip in chips))
        x, y = next(free, sides[0]), plan.y(box)
        canvas.path(
            f"M{number(x)} {number(plan.cpu_bottom)} V{number(y)}",
            note,
            stroke=color,
            stroke_width=5,
        )
        canvas.label(x, y - 5, text, 10, ground=look.NUMA_FILL)


def _is_on(box: Box, way: Highlight, *, above: bool = False) -> bool:
    """Return whether *box* lies on the way; with *above*, whether the way leads on to the CPU."""
    if box.branch.kind is BranchKind.ROOT:
        return box.branch.name in way.roots
    if above and not way.numas:
        return False
    if box.is_card:
        return any(branch.name in way.ends for branch in box.branches)
    return box.branch.address in way.addresses


def _chip(canvas: Canvas, plan: BlockPlan, box: Box, way: Highlight) -> None:
    x, y = box.x - look.CHIP_W / 2, plan.y(box)
    on_way = _is_on(box, way)
    is_root = box.branch.kind is BranchKind.ROOT
    name = (box.branch.name or "").removeprefix("pci").removeprefix("0000:")
    what = {BranchKind.ROOT: "host bridge", BranchKind.BRIDGE: "PCI bridge"}
    title, below = what.get(box.branch.kind, "PCIe switch"), name
    if box.branch.kind is BranchKind.GROUP:
        below = name.split()[0]
        title = {"PHB": "host bridge", "PXB": "switches"}.get(below, title)
    note = GROUPS.get(below, f"{title} {box.branch.name}")
    canvas.rect(
        x,
        y,
        look.CHIP_W,
        look.CHIP_H,
        note,
        rx=3,
        fill=look.CPU_FILL if is_root else look.SWITCH_FILL,
        stroke=look.WAY if on_way else look.CPU_EDGE if is_root else look.SWITCH_LINE,
        stroke_width=2.5 if on_way else 1.2,
    )
    canvas.text(box.x, y + 12, title, 10)
    canvas.text(box.x, y + 23.5, fitted(below, 9.5, look.CHIP_W - 6), 9.5, fill=look.FAINT)
    _link(canvas, plan, box, way)


def _card(canvas: Canvas, plan: BlockPlan, box: Box, way: Highlight) -> None:
    fill, line = _CARDS.get(box.branch.kind, (look.OTHER_FILL, look.OTHER_LINE))
    if box.mark is not None:
        fill, line = box.mark.fill, box.mark.line
    on_way = _is_on(box, way)
    y = plan.leaf_top
    tips = [tip(branch) for branch in box.branches]
    if box.mark is not None:
        tips += filter(None, (box.mark.state, box.mark.holder))
    canvas.rect(
        box.x - look.CARD / 2,
        y,
        look.CARD,
        box.height,
        "\n".join(tips),
        rx=6,
        fill=fill,
        stroke=look.WAY if on_way else line,
        stroke_width=3.5 if on_way else 1.6,
    )
    y += 4
    for item in box.lines:
        size = 13 if item.is_head else 10
        y += HEAD_H if item.is_head else LINE_H
        text = fitted(item.text, size, look.CARD - 8)
        weight = "bold" if item.is_head or item.is_bad else "normal"
        color = look.BAD if item.is_bad else look.INK
        canvas.text(box.x, y - 2, text, size, font_weight=weight, fill=color)
    if box.mark is not None:
        _mark(canvas, box, box.mark, y + LINE_H, plan.leaf_top + box.height)
    _link(canvas, plan, box, way)


def _mark(canvas: Canvas, box: Box, mark: Mark, y: float, bottom: float) -> None:
    """Write how the GPU is with its base line near *y*, and who has it in a band at the bottom."""
    room = look.CARD - 8
    canvas.text(box.x, y - 2, fitted(mark.state, 10, room), 10, font_weight="bold")
    if mark.holder:
        left, top = box.x - room / 2, bottom - BAND_H - 2
        canvas.rect(
            left, top, room, BAND_H - 2, rx=4, fill=mark.band, stroke=mark.line, stroke_width=1
        )
        text = fitted(mark.holder, 10, room - 6)
        canvas.text(box.x, top + 11.5, text, 10, font_weight="bold")


def _link(canvas: Canvas, plan: BlockPlan, box: Box, way: Highlight) -> None:
    """Write what the PCIe link above *box* could do, and in a warning colour what it lacks."""
    text, is_bad = _link_text(box.link)
    if text:
        is_slow = way.slow is not None and any(way.slow == b.address for b in box.branches)
        text += " slowest" if is_slow else ""
        color = look.BAD if is_bad or is_slow else look.INK
        canvas.label(box.x, plan.y(box) - 5, text, 10, ground=look.NUMA_FILL, color=color)


def _link_text(link: PcieLink | None) -> tuple[str, bool]:
    if link is None or link.width is None:
        return "", False
    generation = link.max_generation or link.generation
    name = f"gen{generation} " if generation else ""
    if link.max_width is not None and link.max_width > link.width:
        return f"{name}x{link.width} of x{link.max_width}", True
    return f"{name}x{link.width}", False
