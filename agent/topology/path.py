"""How far apart two devices are on PCIe by nvidia-smi's levels, from their place in the tree."""

from typing import Protocol

from agent.model.nvlink import Closeness
from agent.model.pci import PciAddress, PciPath

SWITCH_HOPS = 2
"""Hops below a switch's upstream port: its downstream port, then the device."""

COLLAPSED_SWITCH_HOPS = 1
"""The same in a path that keeps one hop for each switch: the device alone."""


class Placed(Protocol):
    """Anything with a place in the machine: a GPU, an HCA, a Data Direct function."""

    @property
    def path(self) -> PciPath | None: ...  # noqa: D102

    @property
    def numa_node(self) -> int | None: ...  # noqa: D102


def closeness(a: Placed, b: Placed, *, only_node: int | None = None) -> Closeness | None:
    """Return the level that ``nvidia-smi topo -m`` prints for two different devices.

    The rules are those the nvidia-smi manual (section "topo") and ``nvmlGpuTopologyLevel_t``
    of nvml.h state for each word: PIX at most one bridge (one switch: its own ports do not
    count; the functions of one device always), PXB several, PHB the same host bridge, NODE
    different host bridges of one NUMA node, SYS across nodes.

    ``None`` when a path is unknown; when the devices hang under different host bridges and
    the NUMA node of either is unknown, which leaves NODE and SYS apart (nvidia-smi was seen
    to print either then, docs/internals/topology.md); when the source names no host bridge and the
    devices share no switch, which leaves PHB and NODE apart.

    Args:
        a: one device.
        b: the other.
        only_node: the NUMA node of a machine that has no other: devices for which firmware
            gave none (sysfs −1) can be nowhere else.
    """
    if a.path is None or b.path is None:
        return None
    nodes = tuple(only_node if device.numa_node is None else device.numa_node for device in (a, b))
    if _is_one_device(a.path, b.path) and (None in nodes or nodes[0] == nodes[1]):
        return Closeness.PIX
    if a.path.is_collapsed is not b.path.is_collapsed:  # their hops do not compare
        return _across_roots(*nodes, same_node=None)
    shared = shared_hops(a.path, b.path)
    if shared == 0:
        return _apart(a.path.root, b.path.root, *nodes)
    below = max(len(a.path.hops), len(b.path.hops)) - shared
    limit = COLLAPSED_SWITCH_HOPS if a.path.is_collapsed else SWITCH_HOPS
    return Closeness.PIX if below <= limit else Closeness.PXB


def _apart(
    a_root: str | None,
    b_root: str | None,
    a_node: int | None,
    b_node: int | None,
) -> Closeness | None:
    if a_root is None or b_root is None:
        return _across_roots(a_node, b_node, same_node=None)
    if a_root == b_root:
        return Closeness.PHB
    return _across_roots(a_node, b_node, same_node=Closeness.NODE)


def _across_roots(
    a: int | None,
    b: int | None,
    *,
    same_node: Closeness | None,
) -> Closeness | None:
    if a is None or b is None:
        return None
    return same_node if a == b else Closeness.SYS


def _is_one_device(a: PciPath, b: PciPath) -> bool:
    """Return whether the paths end in functions of one device, above which there is one bridge.

    Files by hand give one address to devices at two places, which then are not one.
    """
    if not a.hops or not b.hops or a.root != b.root or a.hops[:-1] != b.hops[:-1]:
        return False
    return _device(a.hops[-1]) == _device(b.hops[-1])


def _device(address: PciAddress) -> tuple[int, int, int]:
    return (address.domain, address.bus, address.device)


def shared_hops(a: PciPath, b: PciPath) -> int:
    """Count the bridges that both paths go through; the devices themselves are none."""
    if a.root != b.root:
        return 0
    count = 0
    for left, right in zip(a.hops[:-1], b.hops[:-1], strict=False):
        if left != right:
            break
        count += 1
    return count
