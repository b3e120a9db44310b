"""What the driver says of peer access between GPUs, for the rules on NVLink and on PCIe."""

from collections.abc import Callable, Iterable
from enum import StrEnum

from agent.model.nvlink import P2pStatus, PeerAccess
from agent.model.snapshot import Snapshot


class Way(StrEnum):
    """The fields of :class:`agent.model.nvlink.PeerAccess`."""

    READ = "read"
    WRITE = "write"
    NVLINK = "nvlink"


def statuses(
    snapshot: Snapshot, ways: Iterable[Way]
) -> Callable[[int, int], tuple[P2pStatus | None, ...]]:
    """Return a function that gives the statuses of two GPUs by index, both directions.

    ``None`` among them is what NVML did not tell.
    """
    names = tuple(ways)
    told = {frozenset((pair.a, pair.b)): pair for pair in snapshot.pairs}

    def of(a: int, b: int) -> tuple[P2pStatus | None, ...]:
        pair = told.get(frozenset((f"GPU{a}", f"GPU{b}")))
        both = (None, None) if pair is None else (pair.forward, pair.backward)
        return tuple(getattr(one or PeerAccess(), name) for one in both for name in names)

    return of


def confidential(snapshot: Snapshot) -> str | None:
    """Return why rules about peer access say nothing here, where the mode forbids it."""
    mode = snapshot.confidential_compute
    return "confidential computing" if mode is not None and mode.is_enabled else None
