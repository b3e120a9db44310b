"""The PCIe distance of two devices by nvidia-smi's levels, from their place in the tree."""

from typing import Protocol

from nodetopo.model.nvlink import Closeness
from nodetopo.model.pci import PciPath

SWITCH_HOPS = 2
"""Hops below a switch's upstream port: its downstream port, then the device."""

COLLAPSED_SWITCH_HOPS = 1
"""The same in a path that keeps one hop for each switch: the device alone."""


class Placed(Protocol):
    """Anything with a place in the machine: a GPU, an HCA, a Data Direct function."""

    @property
    def path(self) -> PciPath | None: ...

    @property
    def numa_node(self) -> int | None: ...


def closeness(a: Placed, b: Placed, *, only_node: int | None = None) -> Closeness | None:
    """Return the level that ``nvidia-smi topo -m`` prints for two different devices.

    The rules are those the nvidia-smi manual (section "topo") and ``nvmlGpuTopologyLevel_t`` of
    nvml.h state for each word: PIX at most one bridge (one switch: its own ports do not count; the
    functions of one device always), PXB several, PHB the same host bridge, NODE different host
    bridges of one NUMA node, SYS across nodes.

    ``None`` when a path is unknown; when the devices are below different host bridges and the NUMA
    node of either is unknown, so that it is NODE or SYS (nvidia-smi was seen to print either then,
    docs/internals/topology.md); when the source names every port but no host bridge and the devices
    share none, so that it is PHB or NODE.

    A collapsed path comes from NCCL's tree, which has CPUs and no host bridges: two devices of one
    CPU that share no switch, or whose switch it does not give, are PHB by NCCL's word, which stands
    for nvidia-smi's PHB and NODE. All devices of unknown NUMA node are below one CPU there
    (NVIDIA/nccl src/graph/topo.cc, ``numaid`` −1).

    Args:
        only_node: the NUMA node of a machine that has no other, where devices for which firmware
            names none (sysfs −1) must be.
    """
    if a.path is None or b.path is None:
        return None
    nodes = (
        only_node if a.numa_node is None else a.numa_node,
        only_node if b.numa_node is None else b.numa_node,
    )
    # Devices of one NUMA node, or of unknown nodes, can be functions of one device.
    if (None in nodes or nodes[0] == nodes[1]) and _are_of_one_device(a.path, b.path):
        return Closeness.PIX
    across = None if None in nodes or nodes[0] == nodes[1] else Closeness.SYS
    if a.path.is_collapsed is not b.path.is_collapsed:  # their hops do not compare
        return across
    shared = shared_hops(a.path, b.path)
    if shared:
        below = max(len(a.path.hops), len(b.path.hops)) - shared
        limit = COLLAPSED_SWITCH_HOPS if a.path.is_collapsed else SWITCH_HOPS
        return Closeness.PIX if below <= limit else Closeness.PXB
    if a.path.root is None or b.path.root is None:
        is_of_one_cpu = a.path.is_collapsed and nodes[0] == nodes[1]
        return Closeness.PHB if is_of_one_cpu else across
    if a.path.root == b.path.root:
        return Closeness.PHB
    return Closeness.NODE if None not in nodes and nodes[0] == nodes[1] else across


def shared_hops(a: PciPath, b: PciPath) -> int:
    """Count the bridges that both paths go through; the devices themselves are none."""
    if a.root != b.root:
        return 0
    above, other = a.hops[:-1], b.hops[:-1]
    if above == other:  # most pairs of one switch, compared much faster than hop by hop
        return len(above)
    count = 0
    for left, right in zip(above, other, strict=False):
        if left != right:
            break
        count += 1
    return count


def _are_of_one_device(a: PciPath, b: PciPath) -> bool:
    """Return whether the paths end in functions of one device, below one bridge.

    Files written by hand can give one address to devices at two places, which are then distinct.
    """
    if not a.hops or not b.hops or a.root != b.root:
        return False
    one, other = a.hops[-1], b.hops[-1]
    if one.bus != other.bus or one.device != other.device or one.domain != other.domain:
        return False
    return a.hops[:-1] == b.hops[:-1]
