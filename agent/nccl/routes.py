"""The route NCCL would take between every two GPUs, and every GPU and HCA.

Facts: NVIDIA/nccl 2.30.7 ``src/graph/paths.cc`` (ncclTopoComputePaths). First the best paths;
then what P2P and GPUDirect RDMA forbid goes through the CPU, C2C to a near NIC becomes P2C,
and far NICs are reached through a GPU that is near them (PXN).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from agent.model.nvlink import P2pStatus, PeerAccess, ReportedPair
from agent.model.snapshot import Snapshot
from agent.nccl.bandwidth import nccl_capability
from agent.nccl.graph import Graph, Kind
from agent.nccl.nccl_graph import graph
from agent.nccl.nccl_local import owner
from agent.nccl.nccl_search import Path, Paths, local, local_cpu, search, through
from agent.nccl.paths import PXN_LIMIT, NcclPath, NcclRoute, gdr_allowed, p2p_allowed

_SMALL = 2
"""GPUs of an AMD machine up to which they reach each other over any distance."""


@dataclass(frozen=True, slots=True)
class Routed:
    """The graph, and the paths after all of NCCL's corrections, by node names."""

    graph: Graph
    paths: Paths
    gpus: tuple[str, ...]
    nets: tuple[str, ...]
    cpus: tuple[str, ...]


def nccl_paths(snapshot: Snapshot) -> Mapping[tuple[str, str], NcclRoute]:
    """Return routes by (from, to): row names ``GPU<index>`` and ``NIC<position>``.

    GPU to GPU, GPU to NIC and NIC to GPU; the last two differ where NCCL relays (PXN), which
    it does only when sending. Between GPUs of two sockets they differ where one has a bridge
    to a GPU right at the other's CPU, which NCCL counts as a way to that CPU.

    Environment variables count as unset, and GPUDirect RDMA as supported unless the snapshot
    knows that the driver lacks it.

    Left out: devices whose place in the PCI tree is unknown, lost GPUs, HCAs without an
    active port; without knowledge of NVLinks all that NVLink could better: routes between
    GPUs, and those from a GPU to a NIC that are farther than PXB.
    """
    routed = route(snapshot)
    knows_links = knows_nvlinks(snapshot)
    found = {}
    for start, end, path in _rows(routed):
        is_between_gpus = start in routed.graph.gpus and end in routed.graph.gpus
        is_sending = start in routed.graph.gpus
        if knows_links or not (is_between_gpus or (is_sending and path.type > NcclPath.PXB)):
            found[start, end] = NcclRoute(
                type=path.type,
                bandwidth_gbs=path.gbs if path.is_complete else None,
                hops=path.nodes,
            )
    return found


def knows_nvlinks(snapshot: Snapshot) -> bool:
    """Return whether the NVLinks of every pair of GPUs are known, from NVML or a text."""
    if snapshot.nvlinks is not None or len(snapshot.gpus) == 1:
        return True
    counted = sum(pair.nvlinks is not None for pair in snapshot.pairs)
    return counted >= len(snapshot.gpus) * (len(snapshot.gpus) - 1) // 2


def _rows(routed: Routed) -> Iterator[tuple[str, str, Path]]:
    """Yield the paths by row names; a fused network device stands in the row of each HCA."""
    for a, b in product(routed.gpus, routed.gpus):
        if a != b and (a, b) in routed.paths:
            yield a, b, routed.paths[a, b]
    for gpu, net in product(routed.gpus, routed.nets):
        for row in (f"NIC{position}" for position in routed.graph.nets[net].hcas):
            if (gpu, net) in routed.paths:
                yield gpu, row, _named(routed.paths[gpu, net], net, row)
            if (net, gpu) in routed.paths:
                yield row, gpu, _named(routed.paths[net, gpu], net, row)


def _named(path: Path, net: str, row: str) -> Path:
    """Return the path with the row for the network device, and without its PCI device."""
    nodes = tuple(row if node == net else node for node in path.nodes if node[:4] != "NIC/")
    return Path(path.type, path.gbs, nodes, path.is_complete)


def route(snapshot: Snapshot) -> Routed:
    """Return the graph of *snapshot* and the paths through it that NCCL would use."""
    built = graph(snapshot)
    routed = Routed(
        built,
        search(built),
        tuple(built.of(Kind.GPU)),
        tuple(built.of(Kind.NET)),
        tuple(built.of(Kind.CPU)),
    )
    _divert_peers(routed, snapshot)
    _prefer_c2c(routed)
    for net, gpu in product(routed.nets, routed.gpus):
        _relay(routed, gpu, net, snapshot)
        _divert_net(routed, gpu, net, snapshot)
    return routed


def _divert_peers(routed: Routed, snapshot: Snapshot) -> None:
    """Send through the CPU what peer access may not do."""
    is_amd = snapshot.cpu is not None and snapshot.cpu.vendor == "AuthenticAMD"
    is_small_amd = is_amd and len(routed.gpus) <= _SMALL
    denied = set(_denied(snapshot.pairs))
    for end, start in product(routed.gpus, routed.gpus):
        path = routed.paths.get((start, end))
        is_denied = frozenset((start, end)) in denied
        if (
            path is None
            or start == end
            or p2p_allowed(path.type, is_small_amd=is_small_amd, is_denied=is_denied)
        ):
            continue
        cpu = local_cpu(routed.paths, end, routed.cpus)
        if cpu is not None:
            routed.paths[start, end] = through(routed.paths, start, cpu, end)


def _denied(pairs: tuple[ReportedPair, ...]) -> Iterator[frozenset[str]]:
    for pair in pairs:
        if any(_is_refusal(way) for way in (pair.forward, pair.backward)):
            yield frozenset((pair.a, pair.b))


def _is_refusal(way: PeerAccess | None) -> bool:
    return way is not None and any(
        status not in (None, P2pStatus.OK) for status in (way.read, way.write)
    )


def _prefer_c2c(routed: Routed) -> None:
    """Call C2C to the CPU and PCIe to one of the GPU's nearest NICs P2C."""
    paths = routed.paths
    for gpu in routed.gpus:
        cpu = local_cpu(paths, gpu, routed.cpus)
        for net in local(paths, gpu, routed.nets) if cpu is not None else ():
            if cpu is not None and through(paths, gpu, cpu, net).type is NcclPath.P2C:
                for way in ((gpu, net), (net, gpu)):
                    kind = min(NcclPath.P2C, paths[way].type)
                    paths[way] = Path(
                        kind, paths[way].gbs, paths[way].nodes, paths[way].is_complete
                    )


def _relay(routed: Routed, gpu: str, net: str, snapshot: Snapshot) -> None:
    """Send through the GPU that owns the NIC, where that is wider or avoids the CPU (PXN)."""
    paths = routed.paths
    peer = owner(paths, routed.graph, net, routed.gpus, routed.nets)
    if peer in (None, gpu) or (gpu, net) not in paths:
        return
    assert peer is not None
    own, theirs = paths[gpu, net], paths[peer, net]
    reached = paths.get((gpu, peer))
    if (
        theirs.type <= PXN_LIMIT
        and _has_gdr(routed, peer, net, snapshot, is_read=True)
        and reached is not None
        and reached.type <= NcclPath.NVL
        and (theirs.gbs > own.gbs or own.type > NcclPath.PXN)
    ):
        paths[gpu, net] = reached.then(theirs, NcclPath.PXN)


def _divert_net(routed: Routed, gpu: str, net: str, snapshot: Snapshot) -> None:
    """Send through the CPU what GPUDirect RDMA may not do."""
    paths = routed.paths
    if (gpu, net) not in paths or paths[gpu, net].type >= NcclPath.PHB:
        return
    cpu = local_cpu(paths, gpu, routed.cpus)
    if cpu is None or _has_gdr(routed, gpu, net, snapshot, is_read=False):
        return
    paths[net, gpu] = through(paths, net, cpu, gpu)
    paths[gpu, net] = through(paths, gpu, cpu, net)


def _has_gdr(routed: Routed, gpu: str, net: str, snapshot: Snapshot, *, is_read: bool) -> bool:
    if gdr_supported(snapshot) is False:
        return False
    path = routed.paths[gpu, net]
    if path.type is NcclPath.PXN:
        relay = next(node for node in path.nodes[1:] if node in routed.graph.gpus)
        path = routed.paths[relay, net]
    others = (routed.paths.get((gpu, other)) for other in routed.gpus if other != gpu)
    has_nvlink = len(routed.gpus) == 1 or any(
        other is not None and other.type is NcclPath.NVL for other in others
    )
    capability = nccl_capability(routed.graph.gpus[gpu])
    return gdr_allowed(path.type, is_read=is_read, capability=capability, has_nvlink=has_nvlink)


def gdr_supported(snapshot: Snapshot) -> bool | None:
    """Return whether the driver lets HCAs register GPU memory; ``None`` is unknown.

    Either nvidia_peermem does, or dma-buf, which the open kernel module offers
    (src/transport/net_ib/gdr.cc, ncclIbGdrSupport and ncclIbDmaBufSupport).
    """
    driver = snapshot.nvidia
    if driver is None:
        return None
    told = (driver.peer_memory, driver.is_open)
    if True in told:
        return True
    return False if None not in told else None
