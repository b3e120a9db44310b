"""NCCL's path types between two devices, similar to nvidia-smi's but not the same.

Facts: NVIDIA/nccl 2.30.7, ``src/include/graph.h`` (the order), ``src/graph/paths.cc`` (the rules).
"""

from enum import IntEnum

from msgspec import Struct


class NcclPath(IntEnum):
    """The kind of the worst step on a path, in NCCL's order of comparison since 2.27.

    Up to 2.22 there was no C2C and no P2C (2.26 and 2.27 brought them), so the numbers of
    older versions differ; the words do not. There is no NODE: all devices of one NUMA node
    hang below one CPU node, and what nvidia-smi calls NODE is PHB here.
    """

    LOC = 0
    """The device itself."""
    NVL = 1
    """NVLink, direct or through NVSwitches."""
    NVB = 2
    """NVLink through one other GPU."""
    C2C = 3
    """The chip-to-chip link of a Grace CPU."""
    PIX = 4
    """PCIe through one switch."""
    PXB = 5
    """PCIe through several switches, no CPU."""
    P2C = 6
    """C2C to the CPU, then PCIe to a NIC that is among the GPU's nearest."""
    PXN = 7
    """NVLink to another GPU, then that GPU's PCIe to the NIC."""
    PHB = 8
    """PCIe through a CPU."""
    SYS = 9
    """PCIe and the link between NUMA nodes."""
    NET = 10
    """Only over the network."""
    DIS = 11
    """Not connected."""


class NcclRoute(Struct, frozen=True, kw_only=True):
    """The route that NCCL takes from one device to another."""

    type: NcclPath
    # Gigabytes per second in one direction by NCCL's own constants, an order of preference and no
    # measurement; None where the snapshot lacks a value on the route (compute capability, port
    # rate).
    bandwidth_gbs: float | None
    hops: tuple[str, ...]  # all nodes of NCCL's graph on the route, both ends included


P2P_LIMIT = NcclPath.PXB
"""Farthest path over which GPUs map each other's memory (paths.cc, ncclTopoCheckP2p)."""

GDR_LIMIT = NcclPath.P2C
"""Farthest path for GPUDirect RDMA with ``NCCL_NET_GDR_C2C=1``, the default since 2.27
(paths.cc, ncclTopoCheckGdr); without C2C no path is P2C, so the limit is then PXB."""

PXN_LIMIT = NcclPath.P2C
"""Farthest path between a relaying GPU and its NIC, with ``NCCL_PXN_C2C=1`` (paths.cc)."""

_GDR_READ_CAPABILITY = 80
"""Compute capability from which a NIC can read GPU memory whatever else uses PCIe."""


def p2p_allowed(path: NcclPath, *, is_small_amd: bool, is_denied: bool) -> bool:
    """Return whether NCCL lets two GPUs of one host reach each other's memory.

    Args:
        is_small_amd: an AMD x86 machine with at most two GPUs, where SYS is near enough.
        is_denied: NVML reports of a direction that it cannot read or cannot write.
    """
    limit = NcclPath.SYS if is_small_amd else P2P_LIMIT
    return path <= limit and not is_denied


def gdr_allowed(path: NcclPath, *, is_read: bool, capability: int | None, has_nvlink: bool) -> bool:
    """Return whether NCCL lets a NIC reach a GPU's memory, where the driver supports it at all.

    Args:
        path: from the GPU to the NIC; of the relaying GPU if it is PXN.
        is_read: the NIC reads (the GPU sends).
        capability: compute capability as NCCL writes it, 90 for 9.0; unknown counts as new.
        has_nvlink: the GPU reaches another over NVLink, or is the only one.
    """
    if is_read and capability is not None and capability < _GDR_READ_CAPABILITY and not has_nvlink:
        return False
    return path <= GDR_LIMIT
