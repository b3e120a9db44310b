"""NUMA nodes as blocks side by side, and the frames of sockets that hold several."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct, field

from nodetopo.drawing.canvas import BLOCK_GAP, CHIP_H, MARGIN, PAD, ROW, text_width
from nodetopo.drawing.containment import Branch, BranchKind, containment
from nodetopo.drawing.layout import Box, boxes, model_names, place, rows, span
from nodetopo.model.numa import CpuSet, NumaNode
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.affinity import socket_of_node
from nodetopo.topology.links import cpu_links

FRAME_HEAD = 24
CPU_LINE = 15
TREE_GAP = 26
"""From the CPU to the first row below it."""

_BARE_WIDTH = 118
"""Of a NUMA node without devices."""

_WIDEST_TEXT = 230
"""A longer list of CPUs is cut where the devices below need no more room; the tooltip has it."""


class Block(Struct, kw_only=True):
    """One NUMA node: its CPU on top, its devices below."""

    branch: Branch
    lines: tuple[str, ...]  # of the CPU's box
    socket: int | None
    children: list[Box]
    left: float = 0.0
    width: float = 0.0

    @property
    def middle(self) -> float:
        return self.left + self.width / 2

    @property
    def right(self) -> float:
        return self.left + self.width


class BlockPlan(Struct, kw_only=True):
    """All blocks, placed, and the heights that they share; y grows downwards.

    *cpu_links* counts the NVLinks to the CPU by GPU index.
    """

    blocks: list[Block]
    has_frames: bool
    cpu_links: Mapping[int, int]
    width: float = 0.0
    top: float = 0.0
    cpu_height: float = 0.0
    tree_top: float = 0.0
    leaf_top: float = 0.0
    bottom: float = 0.0
    frames: dict[int, tuple[float, float]] = field(default_factory=dict)

    def boxes(self) -> Iterator[Box]:
        for block in self.blocks:
            for top in block.children:
                yield from top.walk()

    @property
    def cpu_bottom(self) -> float:
        return self.top + PAD + self.cpu_height

    def y(self, box: Box) -> float:
        return self.leaf_top if box.is_card else self.tree_top + box.row * ROW

    def height(self, box: Box) -> float:
        return box.height if box.is_card else CHIP_H


def plan(snapshot: Snapshot) -> BlockPlan:
    """Return the blocks of *snapshot* side by side; :func:`stack` gives them their heights."""
    blocks = list(_blocks(snapshot))
    sockets = [block.socket for block in blocks if block.socket is not None]
    found = BlockPlan(
        blocks=blocks,
        has_frames=len(sockets) > len(set(sockets)),
        cpu_links=cpu_links(snapshot),
    )
    _across(found)
    return found


def _blocks(snapshot: Snapshot) -> Iterator[Block]:
    links = {bridge.address: bridge.link for bridge in snapshot.bridges or ()}
    nodes = {str(node.id): node for node in snapshot.numa_nodes or ()}
    sockets = socket_of_node(snapshot)
    is_split = len(set(sockets.values())) < len(sockets)
    models = model_names({gpu.product for gpu in snapshot.gpus if gpu.product})
    for branch in containment(snapshot):
        node = nodes.get(branch.name or "")
        socket = sockets.get(node.id) if node else None
        title = "NUMA node not reported" if branch.name is None else f"NUMA {branch.name}"
        if socket is not None and not is_split:
            title = f"Socket {socket} · {title}"
        lines = (title, *_cpu_lines(branch, node, snapshot))
        children = boxes(branch.children, links, models)
        yield Block(
            branch=branch,
            lines=lines,
            socket=socket,
            children=children,
            width=max(span(children), least_width(lines)) + 2 * PAD,
        )


def least_width(lines: Sequence[str]) -> float:
    """Return the width that a CPU with *lines* asks for."""
    widest = max(text_width(line, 11 if at else 13) for at, line in enumerate(lines))
    return min(max(widest + 12, _BARE_WIDTH), _WIDEST_TEXT)


def _cpu_lines(branch: Branch, node: NumaNode | None, snapshot: Snapshot) -> Iterator[str]:
    cpus: CpuSet | None = node.cpus if node else None
    if node is None:  # the source lists no NUMA nodes: the CPUs that GPUs call near
        affinities = (
            getattr(inner.device, "cpu_affinity", None)
            for inner in branch.walk()
            if inner.kind is BranchKind.GPU
        )
        cpus = next((near for near in affinities if near is not None), None)
    if cpus is not None and len(cpus):
        yield f"CPUs {cpus}"
        cores = snapshot.cpu.cores if snapshot.cpu else ()
        inside = sum(core <= cpus for core in cores)
        counted = [f"{inside} cores" if inside else f"{len(cpus)} CPUs"]
        if node and node.memory_mib is not None:
            counted.append(f"{node.memory_mib / 1024:.0f} GiB")
        yield " · ".join(counted)


def _across(found: BlockPlan) -> None:
    """Set every x; blocks of one socket stand closer and inside a frame."""
    x: float = MARGIN
    for position, block in enumerate(found.blocks):
        previous = found.blocks[position - 1] if position else None
        is_framed = found.has_frames and block.socket is not None
        is_same = previous is not None and is_framed and previous.socket == block.socket
        if previous is not None:
            x += PAD if is_same else BLOCK_GAP
        if is_framed and not is_same:
            x += PAD
        block.left = x
        place(block.children, x + (block.width - span(block.children)) / 2)
        x += block.width
        if is_framed and block.socket is not None:
            left = found.frames.get(block.socket, (block.left - PAD, 0))[0]
            found.frames[block.socket] = (left, x + PAD)
            following = found.blocks[position + 1 : position + 2]
            is_last = not following or following[0].socket != block.socket
            x += PAD if is_last else 0
    found.width = x + MARGIN


def stack(found: BlockPlan, top: float) -> None:
    """Set every y, from *top* on."""
    found.top = top + (FRAME_HEAD if found.has_frames else 0)
    most = max((len(block.lines) for block in found.blocks), default=1)
    found.cpu_height = 14 + most * CPU_LINE
    found.tree_top = found.cpu_bottom + TREE_GAP
    depth = max((rows(block.children) for block in found.blocks), default=0)
    found.leaf_top = found.tree_top + depth * ROW + (0 if depth else 10)
    tallest = max((box.height for box in found.boxes() if box.is_card), default=0)
    found.bottom = (found.leaf_top + tallest if tallest else found.cpu_bottom) + PAD


def heights(found: BlockPlan) -> Mapping[int, tuple[float, float]]:
    """Return the (x, lower side) of each GPU's card, by index."""
    return {
        branch.device.index: (box.x, found.y(box) + box.height)  # type: ignore[union-attr]
        for box in found.boxes()
        for branch in box.branches
        if branch.kind is BranchKind.GPU
    }
