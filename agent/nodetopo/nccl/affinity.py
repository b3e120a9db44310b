"""Which HCAs NCCL would use for each GPU."""

from collections.abc import Mapping

from msgspec import Struct

from nodetopo.model.hca import Hca
from nodetopo.model.snapshot import Snapshot
from nodetopo.nccl.bandwidth import UNKNOWN
from nodetopo.nccl.net import NetPort
from nodetopo.nccl.paths import NcclPath
from nodetopo.nccl.routes import Routed, knows_nvlinks, local, route, share


class NcclNet(Struct, frozen=True, kw_only=True):
    """A network device as NCCL uses it: the ports of one card, fused."""

    hcas: tuple[Hca, ...]  # that the ports belong to, by position
    # Each with the identity of its card, whose bandwidth NCCL counts once.
    ports: tuple[NetPort, ...]


class NcclNearest(Struct, frozen=True, kw_only=True):
    """NCCL's HCAs for one GPU."""

    type: NcclPath  # of the path to them
    bandwidth_gbs: float | None  # by NCCL's constants; None if a value on the path is unknown
    nets: tuple[NcclNet, ...]  # used by the GPU, channel 0's first; channels take turns
    candidates: tuple[NcclNet, ...]  # all equally near ones, divided among the GPUs near to them


def nccl_nearest_hcas(snapshot: Snapshot) -> Mapping[int, NcclNearest]:
    """Return NCCL's HCAs by GPU index: the widest paths, of these the best type.

    The rule follows ncclTopoGetLocal and ncclTopoGetLocalNetType (NVIDIA/nccl 2.30.7,
    ``src/graph/topo.cc``): the nearest devices are divided among the GPUs near to them, rounded up,
    and each GPU starts at its own (see :func:`nodetopo.nccl.routes.share`).

    Left out: GPUs that reach no HCA; all GPUs where the rates of only some ports are known, as
    these cannot be compared; where NVLinks are unknown, GPUs whose nearest is farther than PXB,
    which another GPU might reach for them (PXN).
    """
    routed = route(snapshot)
    are_unknown = {net.bandwidth_gbs == UNKNOWN for net in routed.graph.nets.values()}
    if len(are_unknown) > 1:  # cannot be compared
        return {}
    knows_links = knows_nvlinks(snapshot)
    nearest = {}
    for name in routed.gpus:
        candidates = local(routed.paths, name, routed.nets)
        if not candidates:
            continue
        path = routed.paths[name, candidates[0]]
        if knows_links or path.type <= NcclPath.PXB:
            taken = share(routed.paths, routed.graph, name, routed.gpus, routed.nets)
            nearest[routed.graph.gpus[name].index] = NcclNearest(
                type=path.type,
                bandwidth_gbs=path.gbs if path.is_complete else None,
                nets=_nets(taken, routed, snapshot),
                candidates=_nets(candidates, routed, snapshot),
            )
    return nearest


def _nets(names: tuple[str, ...], routed: Routed, snapshot: Snapshot) -> tuple[NcclNet, ...]:
    hcas = snapshot.hcas or ()
    nets = (routed.graph.nets[name] for name in names)
    return tuple(
        NcclNet(hcas=tuple(hcas[position] for position in net.hcas), ports=net.ports)
        for net in nets
    )
