"""Levels of NCCL: how far two devices may be apart for NCCL to let them reach each other.

What a value does is taken from NVIDIA/nccl v2.30.7-1 ``src/graph/paths.cc``, ``ncclGetLevel`` and
``ncclTopoCheckGdr``.
"""

from collections.abc import Iterator

from agent.checks.inputs import adapters, is_virtual_machine, missing_machine, unknown_of
from agent.checks.pods.pods_nccl_place import Place, number
from agent.model.snapshot import Snapshot
from agent.nccl.paths import GDR_LIMIT, NcclPath
from agent.nccl.routes import gdr_supported, nccl_paths

C2C = "NCCL_NET_GDR_C2C"
"""Whether an HCA at a Grace CPU may reach the memory of that CPU's GPU."""

GDR = "NCCL_NET_GDR_LEVEL"
"""The farthest that an HCA may be from a GPU whose memory it reaches."""

P2P = "NCCL_P2P_LEVEL"
"""The same between two GPUs."""

LEVELS = tuple(path.name for path in NcclPath if path <= NcclPath.SYS)
"""Path types, as NCCL spells them, nearest first."""

_OLD = (NcclPath.LOC, NcclPath.PIX, NcclPath.PXB, NcclPath.PHB, NcclPath.SYS)
"""What the digits stand for; greater numbers for the last."""


def level(place: Place, name: str) -> NcclPath | None:
    """Return the level that the value of *name* sets; ``None`` where NCCL keeps its own."""
    value = place.value(name)
    if value in LEVELS:
        return NcclPath[value]
    if value[:1] not in tuple("0123456789"):
        return None
    return _OLD[min(number(value), len(_OLD) - 1)]


def ignored(place: Place) -> Iterator[tuple[str, str]]:
    """Find values that are no level."""
    for name in (P2P, GDR):
        if place.value(name) and level(place, name) is None:
            yield f"{place.shown(name)}, which NCCL ignores", f"one of {', '.join(LEVELS)}"


def without_gpudirect(place: Place) -> Iterator[tuple[str, str]]:
    """Find a level that no HCA is near enough for, where NCCL's own would let some."""
    name, most = _limit(place)
    if most is NcclPath.LOC:
        yield f"{place.shown(name)} turns GPUDirect RDMA off", "unset"
    elif most is not None and not missing(place):
        nearest = _nearest(place.snapshot)
        if nearest is not None and most < nearest <= GDR_LIMIT:
            off = "turns GPUDirect RDMA off: the nearest HCAs are at"
            yield f"{place.shown(name)} {off} {nearest.name}", "unset"


def missing(place: Place) -> tuple[str, ...]:
    """Return what is not known of the way from GPUs to HCAs, if a level may be too low for it.

    A virtual machine may have a file that tells NCCL of another topology than its own.
    """
    _, most = _limit(place)
    snapshot = place.snapshot
    if most is None or not NcclPath.LOC < most < GDR_LIMIT or not snapshot.hcas:
        return ()
    is_known = gdr_supported(snapshot) is not None
    return (
        *missing_machine(snapshot),
        *unknown_of("place on the PCI bus", _unplaced(snapshot)),
        *(() if is_known else ("whether HCAs can reach GPU memory",)),
    )


def _limit(place: Place) -> tuple[str, NcclPath | None]:
    """Return the variable that says how far HCAs may be, and how far that is."""
    if place.value("NCCL_TOPO_FILE"):
        return GDR, None
    most = level(place, GDR)
    is_without_c2c = most is None and place.is_off(C2C)
    return (C2C, NcclPath.PXB) if is_without_c2c else (GDR, most)


def _nearest(snapshot: Snapshot) -> NcclPath | None:
    """Return how far the HCA is that is nearest to any GPU; ``None`` where that matters not."""
    if is_virtual_machine(snapshot):
        return None
    # Through another GPU (PXN) it is that GPU's distance that counts.
    direct = (
        route.type
        for (start, end), route in nccl_paths(snapshot).items()
        if start.startswith("GPU") and end.startswith("NIC") and route.type is not NcclPath.PXN
    )
    return min(direct, default=None)


def _unplaced(snapshot: Snapshot) -> Iterator[str]:
    for gpu in snapshot.gpus:
        if gpu.is_lost or gpu.path is None or not gpu.path.hops:
            yield gpu.name
    for hca in adapters(snapshot):
        if hca.path is None or not hca.path.hops:
            yield hca.name
