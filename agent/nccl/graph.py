"""Nodes and links of the graph that NCCL searches, apart from how a snapshot becomes one."""

from dataclasses import dataclass, field
from enum import Enum, auto

from agent.model.gpu import Gpu
from agent.nccl.net import Net
from agent.nccl.paths import NcclPath

SWITCHES = "NVS"
"""All NVSwitches together, which NCCL keeps as one node (topo.cc, ncclTopoAddNvLinks)."""


class Kind(Enum):
    """What a node is (topo.h); NET is a network device, NIC the PCI device that carries it."""

    GPU = auto()
    PCI = auto()
    NVS = auto()
    CPU = auto()
    NIC = auto()
    NET = auto()


Links = dict[tuple[str, NcclPath], float]
"""Far end and kind of link → gigabytes per second. The kind is the type of a path of one step."""


@dataclass(slots=True)
class Graph:
    """Nodes by name with their links to neighbours.

    Attributes:
        keys: where NCCL's list of nodes has each GPU and NET: in the order of its tree, CPUs
            as they were met, functions below one switch by PCI address.
        gpus, nets: what the nodes of these kinds stand for.
    """

    kinds: dict[str, Kind] = field(default_factory=dict)
    links: dict[str, Links] = field(default_factory=dict)
    keys: dict[str, tuple[int | str, ...]] = field(default_factory=dict)
    gpus: dict[str, Gpu] = field(default_factory=dict)
    nets: dict[str, Net] = field(default_factory=dict)

    def add(self, name: str, kind: Kind) -> bool:
        """Add a node; False if it is there already."""
        if name in self.kinds:
            return False
        self.kinds[name] = kind
        self.links[name] = {}
        return True

    def connect(self, a: str, b: str, kind: NcclPath, gbs: float) -> None:
        """Link two nodes both ways; links of one kind between the same two add up."""
        for here, there in ((a, b), (b, a)):
            self.links[here][there, kind] = self.links[here].get((there, kind), 0.0) + gbs

    def drop(self, name: str) -> None:
        """Remove a node and its links."""
        del self.kinds[name]
        for there, kind in self.links.pop(name):
            self.links[there].pop((name, kind), None)

    def of(self, kind: Kind) -> list[str]:
        """Return the nodes of a kind, GPUs and NETs as NCCL lists them, others as they came."""
        names = [name for name, found in self.kinds.items() if found is kind]
        return sorted(names, key=lambda name: self.keys.get(name, ()))

    def tree(self, name: str) -> list[str]:
        """Return the switches and CPUs next to a node by PCIe, above it and below."""
        inner = (Kind.PCI, Kind.CPU)
        return [
            there
            for there, kind in self.links[name]
            if kind is NcclPath.PIX and self.kinds[there] in inner
        ]
