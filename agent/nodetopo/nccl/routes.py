"""The route NCCL would take between every two GPUs, and every GPU and HCA.

Facts: NVIDIA/nccl 2.30.7 ``src/graph/paths.cc`` (ncclTopoComputePaths; ncclTopoSetPaths,
addInterStep: the breadth-first search) and ``topo.cc`` (ncclTopoGetLocal; with
``NCCL_NETDEVS_POLICY=AUTO``, the default, ncclTopoGetLocalNetType, ncclTopoGetLocalGpu). First
the best paths; then what P2P and GPUDirect RDMA do not allow goes through the CPU, C2C to a near
NIC becomes P2C, and far NICs are reached through a GPU that is near them (PXN).
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import product

from msgspec import Struct

from nodetopo.model.nvlink import P2pStatus
from nodetopo.model.snapshot import Snapshot
from nodetopo.nccl.bandwidth import LOCAL, UNKNOWN, nccl_capability
from nodetopo.nccl.graph import Graph, NodeKind, graph
from nodetopo.nccl.paths import PXN_LIMIT, NcclPath, NcclRoute, gdr_allowed, p2p_allowed

CHANNELS = 64
"""Most channels of a communicator (MAXCHANNELS, src/include/device.h)."""

_RELAY_HOPS = 1
"""A path can go through one GPU, as its second step over NVLink (NVB)."""

_SMALL = 2
"""GPUs of an AMD machine up to which they reach each other over any distance."""


class Path(Struct, frozen=True):
    """A path: its type, its bandwidth (``math.inf`` where unknown), its nodes, both ends too."""

    type: NcclPath
    gbs: float
    nodes: tuple[str, ...]
    is_complete: bool = True
    """Whether the bandwidth of each of the path's links is known."""

    def beats(self, other: "Path | None") -> bool:
        """Return whether NCCL would take this path: better type, then wider, then shorter."""
        return other is None or (self.type, -self.gbs, len(self.nodes)) < (
            other.type,
            -other.gbs,
            len(other.nodes),
        )

    def then(self, other: "Path", kind: NcclPath) -> "Path":
        gbs = min(self.gbs, other.gbs)
        is_complete = self.is_complete and other.is_complete
        return Path(kind, gbs, (*self.nodes, *other.nodes[1:]), is_complete)


Paths = dict[tuple[str, str], Path]
"""(from, to) → path; missing: no way."""


class Routed(Struct, frozen=True):
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
    active port; where NVLinks are unknown, the routes that NVLink could improve: those between
    GPUs, and those from a GPU to a NIC farther than PXB.
    """
    routed = route(snapshot)
    graph, paths = routed.graph, routed.paths
    rows: dict[tuple[str, str], Path] = {
        (a, b): paths[a, b]
        for a, b in product(routed.gpus, routed.gpus)
        if a != b and (a, b) in paths
    }
    # A fused network device is in the row of each of its HCAs.
    for gpu, net in product(routed.gpus, routed.nets):
        for row in (f"NIC{position}" for position in graph.nets[net].hcas):
            if (gpu, net) in paths:
                rows[gpu, row] = _named(paths[gpu, net], net, row)
            if (net, gpu) in paths:
                rows[row, gpu] = _named(paths[net, gpu], net, row)

    knows_links = knows_nvlinks(snapshot)
    routes = {}
    for (start, end), path in rows.items():
        is_between_gpus = start in graph.gpus and end in graph.gpus
        is_far_nic = start in graph.gpus and path.type > NcclPath.PXB
        if knows_links or not (is_between_gpus or is_far_nic):
            routes[start, end] = NcclRoute(
                type=path.type,
                bandwidth_gbs=path.gbs if path.is_complete else None,
                hops=path.nodes,
            )
    return routes


def knows_nvlinks(snapshot: Snapshot) -> bool:
    """Return whether the NVLinks of every pair of GPUs are known, from NVML or a text."""
    if snapshot.nvlinks is not None or len(snapshot.gpus) == 1:
        return True
    counted = sum(pair.nvlinks is not None for pair in snapshot.pairs)
    return counted >= len(snapshot.gpus) * (len(snapshot.gpus) - 1) // 2


def gdr_supported(snapshot: Snapshot) -> bool | None:
    """Return whether the driver lets HCAs register GPU memory; ``None`` is unknown.

    Through nvidia_peermem, or through dma-buf, which the open kernel module offers
    (src/transport/net_ib/gdr.cc, ncclIbGdrSupport and ncclIbDmaBufSupport).
    """
    driver = snapshot.nvidia
    if driver is None:
        return None
    ways = (driver.peer_memory, driver.is_open)
    if True in ways:
        return True
    return False if None not in ways else None


def route(snapshot: Snapshot) -> Routed:
    """Return the graph of *snapshot* and the paths through it that NCCL would use."""
    built = graph(snapshot)
    routed = Routed(
        built,
        search(built),
        tuple(built.of(NodeKind.GPU)),
        tuple(built.of(NodeKind.NET)),
        tuple(built.of(NodeKind.CPU)),
    )
    _divert_peers(routed, snapshot)
    _prefer_c2c(routed)
    for net, gpu in product(routed.nets, routed.gpus):
        _relay(routed, gpu, net, snapshot)
        _divert_net(routed, gpu, net, snapshot)
    return routed


def search(graph: Graph) -> Paths:
    """Return the best path between all nodes that matter: to each CPU, GPU and NET."""
    ends = [*graph.of(NodeKind.CPU), *graph.of(NodeKind.GPU), *graph.of(NodeKind.NET)]
    return {(name, end): path for end in ends for name, path in paths_to(graph, end).items()}


def paths_to(graph: Graph, end: str) -> Mapping[str, Path]:
    """Return the best path to *end* from every node that reaches it."""
    best = {end: Path(NcclPath.LOC, LOCAL, (end,))}
    frontier = [end]
    while frontier:
        following: dict[str, None] = {}
        for node in frontier:
            for (there, link), gbs in graph.links[node].items():
                path = _longer(graph, best[node], there, link, gbs)
                if path is not None and path.beats(best.get(there)):
                    best[there] = path
                    following[there] = None
        frontier = list(following)
    return best


def local(paths: Paths, start: str, ends: Iterable[str]) -> tuple[str, ...]:
    """Return the *ends* nearest to *start*: the widest, then of the best type."""
    known = [(end, paths[start, end]) for end in ends if (start, end) in paths]
    if not known:
        return ()
    rank = min((-path.gbs, path.type) for _, path in known)
    return tuple(end for end, path in known if (-path.gbs, path.type) == rank)


def local_cpu(paths: Paths, gpu: str, cpus: Iterable[str]) -> str | None:
    """Return the CPU of a GPU: the nearest, of several the one with the fewest steps."""
    nearest = local(paths, gpu, cpus)
    return min(nearest, key=lambda cpu: len(paths[gpu, cpu].nodes), default=None)


def through(paths: Paths, start: str, middle: str, end: str) -> Path:
    """Return the path from *start* to *end* through *middle*; C2C followed by PCIe is P2C."""
    first, second = paths[start, middle], paths[middle, end]
    kinds = {first.type, second.type}
    kind = NcclPath.P2C if kinds == {NcclPath.C2C, NcclPath.PHB} else max(kinds)
    return first.then(second, kind)


def share(
    paths: Paths, graph: Graph, gpu: str, all_gpus: Sequence[str], all_nets: Sequence[str]
) -> tuple[str, ...]:
    """Return the network devices of a GPU, channel 0's first; channels use them in turn.

    The nearest devices are divided among the GPUs that are nearest to the first of them; each GPU
    starts at its own, by NVML index, mirrored in its bits if the devices number a power of two.
    Empty where the GPU reaches no network device.
    """
    nearest = local(paths, gpu, all_nets)
    if not nearest:
        return ()
    sharers = len(local(paths, nearest[0], all_gpus)) or 1
    each = -(-len(nearest) // sharers)
    start = graph.gpus[gpu].index % sharers
    if is_power_of_two(len(nearest)):
        start = mirrored(start, len(nearest))
    return tuple(nearest[(start + turn) % len(nearest)] for turn in range(each))


def owner(
    paths: Paths, graph: Graph, net: str, all_gpus: Sequence[str], all_nets: Sequence[str]
) -> str | None:
    """Return the GPU that would use *net* on the earliest channel, ``None`` if none would."""
    shares = {
        gpu: share(paths, graph, gpu, all_gpus, all_nets) for gpu in local(paths, net, all_gpus)
    }
    for channel in range(CHANNELS):
        for gpu, taken in shares.items():
            if taken and taken[channel % len(taken)] == net:
                return gpu
    return None


def is_power_of_two(count: int) -> bool:
    """Return whether *count*, from 1, is a power of two."""
    return count & (count - 1) == 0


def mirrored(value: int, power: int) -> int:
    """Return *value* with its bits reversed, in as many bits as count up to *power*."""
    width = power.bit_length() - 1
    return sum(1 << (width - 1 - bit) for bit in range(width) if value >> bit & 1)


def _longer(graph: Graph, path: Path, there: str, link: NcclPath, gbs: float) -> Path | None:
    """Return *path* with one more step in front, if NCCL would look at it."""
    kind, far = graph.kinds[path.nodes[0]], graph.kinds[there]
    steps = len(path.nodes) - 1
    step = link
    if kind is NodeKind.GPU and steps:
        if link is not NcclPath.NVL or far is not NodeKind.GPU or steps > _RELAY_HOPS:
            return None
        if path.type is NcclPath.NVL:
            step = NcclPath.NVB
    if kind is NodeKind.PCI and far is NodeKind.PCI:
        step = NcclPath.PXB
    if link is NcclPath.PIX and NodeKind.CPU in (kind, far):
        step = NcclPath.PHB
    is_complete = path.is_complete and gbs != UNKNOWN
    return Path(max(path.type, step), min(path.gbs, gbs), (there, *path.nodes), is_complete)


def _named(path: Path, net: str, row: str) -> Path:
    """Return *path* with *row* in place of the network device, and without its PCI device."""
    nodes = tuple(row if node == net else node for node in path.nodes if node[:4] != "NIC/")
    return Path(path.type, path.gbs, nodes, path.is_complete)


def _divert_peers(routed: Routed, snapshot: Snapshot) -> None:
    """Route through the CPU what peer access does not allow."""
    is_amd = snapshot.cpu is not None and snapshot.cpu.vendor == "AuthenticAMD"
    is_small_amd = is_amd and len(routed.gpus) <= _SMALL
    denied = {
        frozenset((pair.a, pair.b))
        for pair in snapshot.pairs
        for way in (pair.forward, pair.backward)
        if way is not None
        and any(status not in (None, P2pStatus.OK) for status in (way.read, way.write))
    }
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


def _prefer_c2c(routed: Routed) -> None:
    """Make C2C to the CPU followed by PCIe to one of the GPU's nearest NICs a P2C path."""
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
    """Route through the GPU that owns the NIC, where that is wider or avoids the CPU (PXN)."""
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
    """Route through the CPU what GPUDirect RDMA does not allow."""
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
