"""What the objective needs to know of every GPU and every pair, by position in the snapshot.

Unknown facts become the worst that is possible, never the best: a pair of unknown NVLinks
counts by its PCIe distance, one of unknown distance as SYS, a GPU of unknown NUMA node as a
node of its own. So a gap in the data can lose a set its place but never win it one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from types import MappingProxyType

from agent.model.gpu import Gpu
from agent.model.hca import Hca
from agent.model.nvlink import Closeness, NvLink
from agent.model.snapshot import Snapshot
from agent.topology.affinity import NearestHcas, nearest_hcas, socket_of_node
from agent.topology.domains import has_switch
from agent.topology.links import active_links, usable_nvlinks_between
from agent.topology.matrix import pci_closeness

NVLINK_MB_S: Mapping[int, int] = MappingProxyType(
    {1: 20_000, 2: 25_000, 3: 25_000, 4: 25_000, 5: 50_000},
)
"""Payload of one NVLink by version, MB/s, one direction. NVIDIA datasheets: P100 160 GB/s =
4 links x 2 directions x 20, V100 300 = 6 x 2 x 25, A100 600 = 12 x 2 x 25, H100 900 =
18 x 2 x 25, B200 1800 = 18 x 2 x 50. Drivers report the raw line rate, up to 6 % more."""

NVLINK_OF_ARCHITECTURE: Mapping[str, int] = MappingProxyType(
    {"pascal": 1, "volta": 2, "turing": 2, "ampere": 3, "hopper": 4, "blackwell": 5},
)
"""NVLink version by GPU architecture (NVIDIA architecture white papers)."""

PCIE_GEN4_GB_S: Mapping[Closeness, int] = MappingProxyType(
    {
        Closeness.INTERNAL: 24,
        Closeness.PIX: 24,
        Closeness.PXB: 22,
        Closeness.PHB: 20,
        Closeness.NODE: 18,
        Closeness.SYS: 14,
    },
)
"""Ring bandwidth over two GPUs of a PCIe class, GB/s, one direction, generation 4 with 16
lanes. Model values, not measured: 24 is what remains of 31.5 after protocol overhead, the
rest only keep the order of the classes. Each generation doubles them (PCI-SIG base
specifications)."""

OLDEST_PCIE = 3
"""PCIe generation assumed where none is reported: that of Maxwell, Pascal and Volta, the
oldest GPUs that a driver in support serves (NVIDIA driver release notes, branch 580)."""

NEWEST_PCIE = 7
"""The newest generation that PCI-SIG has published; a file may claim any."""

Square = Sequence[Sequence[int]]
"""A figure for every pair of positions; its diagonal has no meaning."""

UNKNOWN = "unknown"
Place = tuple[str, int]
"""A NUMA node or a socket. Its first part is UNKNOWN for a GPU that counts as one of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The machine as the objective sees it; every tuple is by position of the GPU.

    Attributes:
        indices: the GPUs' NVML indices, ascending.
        links: NVLinks of each pair; 0 where there is none, none known, or MIG is on.
        rates: MB/s of one link of each pair, one direction.
        hops: bandwidth of each pair in 0.1 GB/s: NVLink where there is any, else PCIe.
        is_switched: NVSwitches join the GPUs, so links are not tied to a pair.
        hcas: the nearest HCAs of each GPU, as a bit mask.
        is_far: whether all of those are across a socket.
        hca_steps: how far they are; 1 is PIX, 5 is SYS.
        partitions: bit masks of positions that a PCIe switch or the Fabric Manager holds together.
    """

    indices: tuple[int, ...]
    links: tuple[tuple[int, ...], ...]
    rates: tuple[tuple[int, ...], ...]
    hops: tuple[tuple[int, ...], ...]
    is_switched: bool
    numa: tuple[Place, ...]
    sockets: tuple[Place, ...]
    hcas: tuple[int, ...]
    is_far: tuple[bool, ...]
    hca_steps: tuple[int, ...]
    partitions: tuple[int, ...]


def facts(snapshot: Snapshot) -> Facts:
    """Return the facts of *snapshot* that placement depends on."""
    gpus = snapshot.gpus
    links = _links(snapshot)
    rates = _rates(snapshot)
    nearest = nearest_hcas(snapshot)
    numa = tuple(_numa(snapshot, position) for position in range(len(gpus)))
    sockets = tuple(_socket(snapshot, place) for place in numa)
    is_rdma = bool(snapshot.hcas)
    return Facts(
        indices=tuple(gpu.index for gpu in gpus),
        links=links,
        rates=rates,
        hops=_hops(snapshot, links, rates),
        is_switched=has_switch(snapshot),
        numa=numa,
        sockets=sockets,
        hcas=tuple(_hca_mask(snapshot, nearest.get(gpu.index)) for gpu in gpus),
        is_far=tuple(
            is_rdma and _is_far(snapshot, nearest.get(gpu.index), socket)
            for gpu, socket in zip(gpus, sockets, strict=True)
        ),
        hca_steps=tuple(_steps(nearest.get(gpu.index)) if is_rdma else 0 for gpu in gpus),
        partitions=_partitions(snapshot),
    )


def distances(snapshot: Snapshot) -> tuple[tuple[Closeness | None, ...], ...]:
    """Return the PCIe distance of every pair of GPUs by position; ``None`` is unknown."""
    known = pci_closeness(snapshot)
    names = [gpu.name for gpu in snapshot.gpus]
    return tuple(tuple(known.get(frozenset((a, b))) for b in names) for a in names)


def pcie_generation(a: Gpu, b: Gpu) -> int:
    """Return the generation that two GPUs can speak to each other on.

    The maximum counts, not the current one, which drops while a GPU idles.
    """
    return min(_generation(a), _generation(b))


def _generation(gpu: Gpu) -> int:
    link = gpu.pcie
    known = link and (link.max_generation or link.generation)
    return min(max(known, 1), NEWEST_PCIE) if known else OLDEST_PCIE


def _links(snapshot: Snapshot) -> tuple[tuple[int, ...], ...]:
    counts = usable_nvlinks_between(snapshot)
    # In MIG mode there is no peer access between GPUs (NVIDIA MIG user guide, limitations).
    whole = {gpu.index for gpu in snapshot.gpus if not gpu.is_divided}
    order = [gpu.index for gpu in snapshot.gpus]
    return tuple(
        tuple(
            (counts.get((min(a, b), max(a, b))) or 0) if a in whole and b in whole else 0
            for b in order
        )
        for a in order
    )


def _rates(snapshot: Snapshot) -> tuple[tuple[int, ...], ...]:
    own = [_rate(gpu, snapshot) for gpu in snapshot.gpus]
    return tuple(tuple(min(a, b) for b in own) for a in own)


def _rate(gpu: Gpu, snapshot: Snapshot) -> int:
    generation = NVLINK_OF_ARCHITECTURE.get(gpu.architecture or "")
    payload = NVLINK_MB_S.get(generation or 0, min(NVLINK_MB_S.values()))
    links = active_links(gpu, snapshot)
    return min((_link_rate(link, generation) for link in links), default=payload)


def _link_rate(link: NvLink, generation: int | None) -> int:
    payload = NVLINK_MB_S.get(link.version or generation or 0)
    if link.speed_mbps is None or link.speed_mbps <= 0:
        return payload or min(NVLINK_MB_S.values())
    if payload is None:
        slower = [rate for rate in NVLINK_MB_S.values() if rate <= link.speed_mbps]
        return max(slower, default=link.speed_mbps)
    # Slower than its version is real: the bridge of an RTX 3090 runs NVLink 3 at 14 GB/s.
    return min(payload, link.speed_mbps)


def _hops(
    snapshot: Snapshot,
    links: tuple[tuple[int, ...], ...],
    rates: tuple[tuple[int, ...], ...],
) -> tuple[tuple[int, ...], ...]:
    classes = distances(snapshot)
    gpus = snapshot.gpus
    return tuple(
        tuple(
            tenths(links[a][b] * rates[a][b])
            if links[a][b]
            else tenths(_pcie_mb_s(classes[a][b], pcie_generation(gpus[a], gpus[b])))
            for b in range(len(gpus))
        )
        for a in range(len(gpus))
    )


def tenths(rate_mb_s: int) -> int:
    """Return MB/s in units of 0.1 GB/s, the grain at which bandwidths count as equal."""
    return (rate_mb_s + 50) // 100


def _pcie_mb_s(distance: Closeness | None, generation: int) -> int:
    gen4 = PCIE_GEN4_GB_S[Closeness.SYS if distance is None else distance] * 1000
    return gen4 << (generation - 4) if generation >= 4 else gen4 >> (4 - generation)


def _numa(snapshot: Snapshot, position: int) -> Place:
    node = snapshot.gpus[position].numa_node
    if node is not None:
        return "node", node
    only = [node.id for node in snapshot.numa_nodes or () if len(node.cpus)]
    return ("node", only[0]) if len(only) == 1 else (UNKNOWN, position)


def _socket(snapshot: Snapshot, numa: Place) -> Place:
    sockets = snapshot.cpu.sockets if snapshot.cpu else ()
    if len(sockets) == 1:
        return "socket", sockets[0].id
    if numa[0] == UNKNOWN:
        return numa
    socket = socket_of_node(snapshot).get(numa[1])
    return numa if socket is None else ("socket", socket)


def _hca_mask(snapshot: Snapshot, nearest: NearestHcas | None) -> int:
    if nearest is None:
        return 0
    near = set(map(id, nearest.hcas))
    return sum(1 << n for n, hca in enumerate(snapshot.hcas or ()) if id(hca) in near)


def _is_far(snapshot: Snapshot, nearest: NearestHcas | None, socket: Place) -> bool:
    if nearest is None:
        return True
    if nearest.closeness < Closeness.SYS:
        return False
    return socket not in {_hca_socket(snapshot, hca) for hca in nearest.hcas}


def _hca_socket(snapshot: Snapshot, hca: Hca) -> Place | None:
    return None if hca.numa_node is None else _socket(snapshot, ("node", hca.numa_node))


def _steps(nearest: NearestHcas | None) -> int:
    distance = Closeness.SYS if nearest is None else nearest.closeness
    return distance // Closeness.PIX


def _partitions(snapshot: Snapshot) -> tuple[int, ...]:
    """Group GPUs behind one PCIe switch; others, if NVSwitches join them, 2i with 2i+1.

    Those pairs are the two-GPU partitions of NVIDIA's Fabric Manager on HGX boards (Fabric
    Manager user guide, shared NVSwitch partitions); without NVSwitches numbers mean nothing.
    """
    classes = distances(snapshot)
    group = {position: {position} for position in range(len(snapshot.gpus))}
    for a, b in combinations(group, 2):
        distance = classes[a][b]
        if distance is not None and distance <= Closeness.PIX:
            group[a] |= group[b]
            group.update(dict.fromkeys(group[a], group[a]))
    alone = [position for position, members in group.items() if len(members) == 1]
    for a, b in combinations(alone, 2) if has_switch(snapshot) else ():
        if snapshot.gpus[a].index // 2 == snapshot.gpus[b].index // 2:
            group[a] = group[b] = {a, b}
    masks = {sum(1 << member for member in members) for members in group.values()}
    return tuple(sorted(mask for mask in masks if mask.bit_count() > 1))
