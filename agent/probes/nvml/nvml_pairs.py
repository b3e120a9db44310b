"""Pairs of GPUs, as NVML tells of them."""

from collections.abc import Mapping
from itertools import combinations
from typing import Any

from agent.model.nvlink import PeerAccess, ReportedPair
from agent.probes.nvml import values
from agent.probes.nvml.session import Asker, Session

_READ, _WRITE, _NVLINK = 0, 1, 2
"""``nvmlGpuP2PCapsIndex_t``. Our own numbers: pynvml's name for the first is a tuple."""


def pairs(session: Session, handles: Mapping[int, Any]) -> tuple[ReportedPair, ...]:
    """Return what NVML says of every two GPUs of *handles*, by index.

    Closeness from ``nvmlDeviceGetTopologyCommonAncestor``, peer access both ways from
    ``nvmlDeviceGetP2PStatus``. A pair of which nothing is known is left out.
    """
    found = (
        _pair(session.asker(f"GPU{a} GPU{b}"), (a, b), (handles[a], handles[b]))
        for a, b in combinations(sorted(handles), 2)
    )
    return tuple(pair for pair in found if pair is not None)


def _pair(asker: Asker, names: tuple[int, int], handles: tuple[Any, Any]) -> ReportedPair | None:
    level = "nvmlDeviceGetTopologyCommonAncestor"
    pair = ReportedPair(
        a=f"GPU{names[0]}",
        b=f"GPU{names[1]}",
        closeness=asker.ask(level, *handles, convert=values.closeness),
        forward=_access(asker, handles),
        backward=_access(asker, handles[::-1]),
    )
    return None if pair == ReportedPair(a=pair.a, b=pair.b) else pair


def _access(asker: Asker, handles: tuple[Any, Any]) -> PeerAccess | None:
    """Read ``nvmlDeviceGetP2PStatus`` of three capabilities; None if all are unknown."""

    def ask(capability: int) -> Any:
        call = "nvmlDeviceGetP2PStatus"
        return asker.ask(call, *handles, capability, convert=values.p2p_status)

    access = PeerAccess(read=ask(_READ), write=ask(_WRITE), nvlink=ask(_NVLINK))
    return None if access == PeerAccess() else access
