"""Where everything stands: a tree, leaves in one row, parents in the middle above theirs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from agent.cli.svg.cards import Line, card
from agent.cli.svg.palette import CARD, CHIP_W, GAP
from agent.cli.topo.containment import Branch, BranchKind
from agent.cli.topo.devices import link_of
from agent.cli.topo.pcie_speed import joined
from agent.model.hca import Hca, HcaKind
from agent.model.pci import PciAddress, PcieLink

LINE_H = 13
HEAD_H = 17
INNER = (BranchKind.ROOT, BranchKind.SWITCH, BranchKind.BRIDGE, BranchKind.GROUP)


@dataclass(slots=True, kw_only=True)
class Box:
    """A host bridge, a switch, or a card of one or more functions of a device.

    Attributes:
        row: of switches, counted from 0; a card's is that of the row below all.
        x: of the middle.
        link: the PCIe link above, both ends considered.
    """

    branches: tuple[Branch, ...]
    row: int
    lines: tuple[Line, ...] = ()
    link: PcieLink | None = None
    children: list["Box"] = field(default_factory=list)
    width: float = 0.0
    x: float = 0.0

    @property
    def branch(self) -> Branch:
        """The first, or only, branch."""
        return self.branches[0]

    @property
    def is_card(self) -> bool:
        """Whether this is a device."""
        return self.branch.kind not in INNER

    @property
    def height(self) -> float:
        """Of a card."""
        heads = sum(line.is_head for line in self.lines)
        return heads * HEAD_H + (len(self.lines) - heads) * LINE_H + 10

    def walk(self) -> Iterator["Box"]:
        """Yield this box, then all below it."""
        yield self
        for child in self.children:
            yield from child.walk()


def boxes(
    branches: Sequence[Branch],
    links: Mapping[PciAddress, PcieLink | None],
    row: int = 0,
) -> list[Box]:
    """Return the boxes of *branches* and of all below, sized but not yet placed."""
    found = []
    for members in _cards(branches):
        box = Box(branches=members, row=row, link=_link(members[0], links))
        if box.is_card:
            box.lines = card(members)
            box.width = CARD
        else:
            box.children = boxes(members[0].children, links, row + 1)
            box.width = max(CHIP_W, span(box.children))
        found.append(box)
    return found


def _cards(branches: Sequence[Branch]) -> Iterator[tuple[Branch, ...]]:
    """Yield what makes one box: ports of one card are functions of one PCI device."""
    run: list[Branch] = []
    for branch in branches:
        if run and _slot(branch) is not None and _slot(branch) == _slot(run[0]):
            run.append(branch)
            continue
        if run:
            yield tuple(run)
        run = [branch]
    if run:
        yield tuple(run)


def _slot(branch: Branch) -> tuple[object, ...] | None:
    device = branch.device
    if not isinstance(device, Hca) or device.pci is None or device.kind is HcaKind.VIRTUAL:
        return None
    return (branch.kind, device.pci.domain, device.pci.bus, device.pci.device)


def _link(branch: Branch, links: Mapping[PciAddress, PcieLink | None]) -> PcieLink | None:
    if branch.device is not None:
        near = link_of(branch.device)
    else:
        near = links.get(branch.address) if branch.address else None
    return joined(near, links.get(branch.port) if branch.port else None)


def span(children: Sequence[Box]) -> float:
    """Return the width of *children* side by side."""
    return sum(child.width for child in children) + GAP * max(0, len(children) - 1)


def place(children: Sequence[Box], left: float) -> None:
    """Set the x of *children* and of all below them, from *left* on."""
    for child in children:
        if child.children:
            place(child.children, left + (child.width - span(child.children)) / 2)
            child.x = (child.children[0].x + child.children[-1].x) / 2
        else:
            child.x = left + child.width / 2
        left += child.width + GAP


def rows(children: Sequence[Box]) -> int:
    """Return how many rows of host bridges and switches there are."""
    return max(
        (box.row + 1 for top in children for box in top.walk() if not box.is_card), default=0
    )


def is_vague(box: Box) -> bool:
    """Return whether what leads down to *box* is known from distances only."""
    if box.is_card:
        return all(branch.device is None or branch.device.path is None for branch in box.branches)
    return box.branch.kind is BranchKind.GROUP
