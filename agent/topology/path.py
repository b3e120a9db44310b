"""How far apart two devices are on PCIe, from where they sit in the tree."""

from typing import Protocol

from agent.model.nvlink import Closeness
from agent.model.pci import PciPath

SWITCH_HOPS = 2
"""Hops below a switch's upstream port: its downstream port, then the device."""


class Placed(Protocol):
    """Anything with a place in the machine: a GPU, an HCA."""

    @property
    def path(self) -> PciPath | None: ...  # noqa: D102

    @property
    def numa_node(self) -> int | None: ...  # noqa: D102


def closeness(a: Placed, b: Placed) -> Closeness | None:
    """Return the level that ``nvidia-smi topo -m`` prints for two different devices.

    ``None`` when a path is unknown, or when the devices hang under different host bridges
    and the NUMA node of either is unknown, which leaves NODE and SYS apart.

    The rules are those the nvidia-smi manual states for each word: PIX at most one bridge
    (one switch: its own ports do not count), PXB several, PHB the same host bridge, NODE
    different host bridges of one NUMA node, SYS across nodes.
    """
    if a.path is None or b.path is None:
        return None
    if a.path.root != b.path.root:
        return _across_roots(a.numa_node, b.numa_node)
    shared = _shared_hops(a.path, b.path)
    if shared == 0:
        return Closeness.PHB
    below = max(len(a.path.hops), len(b.path.hops)) - shared
    return Closeness.PIX if below <= SWITCH_HOPS else Closeness.PXB


def _across_roots(a: int | None, b: int | None) -> Closeness | None:
    if a is None or b is None:
        return None
    return Closeness.NODE if a == b else Closeness.SYS


def _shared_hops(a: PciPath, b: PciPath) -> int:
    count = 0
    for left, right in zip(a.hops, b.hops, strict=False):
        if left != right:
            break
        count += 1
    return count
