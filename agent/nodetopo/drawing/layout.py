"""Where everything stands: a tree, leaves in one row, parents in the middle above theirs."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct, field

from nodetopo.drawing.canvas import CARD, CHIP_W, GAP, PAPER, text_width
from nodetopo.drawing.containment import Branch, BranchKind
from nodetopo.drawing.devices import link_of
from nodetopo.drawing.hops import joined
from nodetopo.drawing.text import port_text
from nodetopo.model.gpu import Gpu
from nodetopo.model.hca import DataDirect, Hca, HcaKind, LinkLayer
from nodetopo.model.pci import PciAddress, PcieLink

# What stands on a device's card.

_MAKER = re.compile(r"^(NVIDIA |GeForce |Tesla |Graphics Device )+")


_MEMORY = re.compile(r"[ -][0-9]+ ?GB\b|\bHBM[0-9]e?\b")


_LONGEST_MODEL = 100
"""Characters of a model's name that is shortened by words; names of products have fewer."""


_LAYER = {LinkLayer.INFINIBAND: "IB", LinkLayer.ETHERNET: "Eth"}


class Line(Struct, frozen=True, kw_only=True):
    """One line of a card: a heading, a plain one, or a warning."""

    text: str
    is_head: bool = False
    is_bad: bool = False


def model_names(products: Iterable[str]) -> Mapping[str, str]:
    """Return what a card calls each of *products*, the products of one node.

    Maker and memory are left out: the title and a line of the card have them. A name that is too
    wide loses the words at its end that all products share, so that "RTX PRO 6000 Blackwell Server
    Edition" becomes "RTX PRO 6000".
    """
    words = {
        product: _MEMORY.sub(" ", _MAKER.sub("", product)).split() or [product]
        for product in products
    }

    def is_too_wide() -> bool:
        return any(
            len(product) <= _LONGEST_MODEL and text_width(" ".join(parts), 10) > CARD - 8
            for product, parts in words.items()
        )

    while (
        is_too_wide()
        and min(map(len, words.values())) > 1
        and len({parts[-1] for parts in words.values()}) == 1
    ):
        words = {product: parts[:-1] for product, parts in words.items()}
    return {product: " ".join(parts) for product, parts in words.items()}


def card(branches: Sequence[Branch], models: Mapping[str, str]) -> tuple[Line, ...]:
    """Return the lines of one card; several *branches* are the functions of one PCI device.

    *models* has the name of each product.
    """
    if branches[0].kind is BranchKind.MANAGEMENT:
        # Only the names: no job uses these ports.
        lines = [
            Line(text=branch.name or "?", is_head=branch is branches[0]) for branch in branches
        ]
        lines.append(Line(text="for NVLink only"))
        if branches[0].address is not None:
            lines.append(Line(text=str(branches[0].address).removeprefix("0000:")))
        return tuple(lines)
    return tuple(line for branch in branches for line in _lines(branch, models))


def tip(branch: Branch) -> str:
    """Return all that is known of the device, for the pointer."""
    device = branch.device
    pci = None if device is None or device.pci is None else str(device.pci)
    words: list[str | None] = [branch.name, pci]
    if isinstance(device, Gpu):
        words += [device.product, device.uuid]
    if isinstance(device, Hca):
        words += [device.name, device.firmware and f"firmware {device.firmware}"]
        words += [port_text(port) for port in device.ports]
        words += [netdev.name for netdev in device.netdevs]
    return " · ".join(word for word in words if word)


def _lines(branch: Branch, models: Mapping[str, str]) -> Iterator[Line]:
    device = branch.device
    yield Line(text=branch.name or "?", is_head=True)
    match device:
        case Gpu():
            yield from _gpu(device, models)
        case Hca():
            yield from _hca(branch, device)
        case DataDirect():
            yield Line(text="Data Direct")
            yield from (Line(text=f"of {name}") for name in device.hcas)
    if device is not None and device.pci is not None:
        yield Line(text=str(device.pci).removeprefix("0000:"))


def _gpu(gpu: Gpu, models: Mapping[str, str]) -> Iterator[Line]:
    if gpu.is_lost:
        yield Line(text="lost", is_bad=True)
    if gpu.product:
        yield Line(text=models[gpu.product])
    if gpu.memory_mib is not None:
        yield Line(text=f"{gpu.memory_mib / 1024:.0f} GiB")
    if gpu.memory_numa_node is not None:
        yield Line(text=f"NUMA node {gpu.memory_numa_node}")
    if gpu.mig is not None and gpu.is_divided:
        profiles = [instance.profile or "?" for instance in gpu.mig.instances]
        yield Line(text="MIG" if profiles else "MIG, empty")
        for profile in sorted(set(profiles)):
            yield Line(text=f"{profiles.count(profile)} x {profile}")


def _hca(branch: Branch, hca: Hca) -> Iterator[Line]:
    if hca.name not in (branch.name, str(hca.pci)):
        yield Line(text=hca.name)
    rates = []
    for port in hca.ports:
        layer = _LAYER[port.layer] if port.layer else ""
        rate = "" if port.rate_gbps is None else f"{port.rate_gbps:g} Gb/s"
        rates.append(f"{layer} {rate}".strip())
    for text in dict.fromkeys(filter(None, rates)):
        count = rates.count(text)
        yield Line(text=text if count == 1 else f"{count} x {text}")
    for port in hca.ports:
        if port.state not in (None, "ACTIVE"):
            yield Line(text=f"port {port.number} {port.state}", is_bad=True)
    if branch.children:
        yield Line(text=f"+ {len(branch.children)} parts")


class Mark(Struct, frozen=True, kw_only=True):
    """The state and the holder of a GPU in a drawing."""

    state: str  # a symbol and a word: ✓ healthy
    # fill, line: colours of the card
    fill: str
    line: str
    holder: str | None = None  # such as `free` or `pod 1`
    band: str = PAPER  # colour behind the holder


LINE_H = 13


HEAD_H = 17


BAND_H = 18
"""Of the band at the lower side of a marked card, which names the holder."""


INNER = (BranchKind.ROOT, BranchKind.SWITCH, BranchKind.BRIDGE, BranchKind.GROUP)


class Box(Struct, kw_only=True):
    """A host bridge, a switch, or a card of one or more functions of a device."""

    branches: tuple[Branch, ...]
    row: int  # of switches, from 0; a card's is that of the row below all
    lines: tuple[Line, ...] = ()
    link: PcieLink | None = None  # above, both ends considered
    mark: Mark | None = None  # of a GPU; None where nothing is marked
    children: list["Box"] = field(default_factory=list)
    width: float = 0.0
    x: float = 0.0  # of the middle

    @property
    def branch(self) -> Branch:
        return self.branches[0]

    @property
    def is_card(self) -> bool:
        return self.branch.kind not in INNER

    @property
    def height(self) -> float:
        """Of a card."""
        heads = sum(line.is_head for line in self.lines)
        marked = 0 if self.mark is None else LINE_H + (BAND_H if self.mark.holder else 0)
        return heads * HEAD_H + (len(self.lines) - heads) * LINE_H + 10 + marked

    def walk(self) -> Iterator["Box"]:
        yield self
        for child in self.children:
            yield from child.walk()


def boxes(
    branches: Sequence[Branch],
    links: Mapping[PciAddress, PcieLink | None],
    models: Mapping[str, str],
    row: int = 0,
) -> list[Box]:
    """Return the boxes of *branches* and of all below, sized but not yet placed.

    *models* has the name of each product (:func:`model_names`).
    """
    found = []
    for members in _cards(branches):
        top = members[0]
        if top.device is not None:
            near = link_of(top.device)
        else:
            near = links.get(top.address) if top.address else None
        far = links.get(top.port) if top.port else None
        box = Box(branches=members, row=row, link=joined(near, far))
        if box.is_card:
            box.lines = card(members, models)
            box.width = CARD
        else:
            box.children = boxes(members[0].children, links, models, row + 1)
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
