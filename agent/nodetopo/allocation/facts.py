"""Facts about GPUs and pairs of GPUs that placement depends on, by position in the snapshot.

An unknown fact counts as the worst case: a pair with unknown NVLinks counts by its PCIe distance, a
pair of unknown distance as SYS, a GPU of unknown NUMA node as a separate node. So a gap in the data
can cost a set its rank but never raise it.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations, compress
from types import MappingProxyType

from msgspec import Struct

from nodetopo.model.gpu import Gpu
from nodetopo.model.hca import Hca
from nodetopo.model.nvlink import Closeness, PeerKind
from nodetopo.model.snapshot import Snapshot
from nodetopo.rdma.rails import usable_cards
from nodetopo.topology.affinity import nearest_hcas, socket_of_node
from nodetopo.topology.domains import has_switch
from nodetopo.topology.links import active_links, usable_nvlinks_between
from nodetopo.topology.matrix import pci_closeness

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
"""Ring bandwidth between two GPUs by PCIe distance, GB/s, one direction, for generation 4 with
16 lanes. Model values, not measurements: 24 is 31.5 less the protocol overhead, and the others
only keep the order of the distances. Each generation doubles them (PCI-SIG base
specifications)."""

FULL_WIDTH = 16
"""Lanes assumed by the model, and for a GPU of unknown width on a node where none is known: a
data-centre GPU's (PCI Express Card Electromechanical and OAM specifications).
"""

OLDEST_PCIE = 3
"""PCIe generation assumed if none is reported: that of Maxwell, Pascal and Volta, the oldest GPUs
that a supported driver serves (NVIDIA driver release notes, branch 580).
"""

NEWEST_PCIE = 7
"""The newest generation that PCI-SIG has published; a file can claim any."""

Square = Sequence[Sequence[int]]
"""A value for every pair of positions; the diagonal has no meaning."""

UNKNOWN = "unknown"
Place = tuple[str, int]
"""(kind, number) of a NUMA node or socket.

The kind is UNKNOWN for a GPU of unknown place, which counts as a separate place.
"""


class Facts(Struct, frozen=True, kw_only=True):
    """The machine as the score sees it; every tuple is by position of the GPU."""

    indices: tuple[int, ...]  # NVML's, ascending
    # Usable NVLinks of each pair; 0 if there is none, none known, or MIG is on.
    links: tuple[tuple[int, ...], ...]
    rates: tuple[tuple[int, ...], ...]  # MB/s of one NVLink of each pair, one direction
    # Of each pair, 0.1 GB/s, over NVLink where there is any, else PCIe.
    hops: tuple[tuple[int, ...], ...]
    reach: tuple[int, ...]  # sum of each GPU's hops to all others, 0.1 GB/s
    is_switched: bool  # NVSwitches join the GPUs, so links do not belong to a pair
    # numa, sockets: of each GPU
    numa: tuple[Place, ...]
    sockets: tuple[Place, ...]
    # The position of the first GPU with the same product, memory and compute capability. What is
    # unknown of any GPU tells none apart.
    models: tuple[int, ...]
    # The nearest rails of each GPU that are not down, as a bit mask: HCAs for storage and
    # management are none (`rdma.rails`).
    hcas: tuple[int, ...]
    is_far: tuple[bool, ...]  # all of these HCAs are on another socket
    # Distance to the nearest of these HCAs, from 1 (PIX) to 5 (SYS); 0 on a node without rails, or
    # all of whose rails are down.
    hca_steps: tuple[int, ...]
    # Masks of positions that share a PCIe switch or are a Fabric Manager pair.
    partitions: tuple[int, ...]


def facts(snapshot: Snapshot) -> Facts:
    """Return the facts of *snapshot* that placement depends on."""
    gpus = snapshot.gpus
    places = range(len(gpus))
    is_switched = has_switch(snapshot)
    closeness = distances(snapshot)

    counts = usable_nvlinks_between(snapshot)
    indices = tuple(gpu.index for gpu in gpus)
    links = tuple(tuple(counts.get((min(a, b), max(a, b))) or 0 for b in indices) for a in indices)
    slowest = [nvlink_rate(gpu, snapshot) for gpu in gpus]
    rates = tuple(tuple(min(a, b) for b in slowest) for a in slowest)
    slot = _slot_rates(snapshot)
    hops = tuple(
        tuple(
            tenths(
                links[a][b] * rates[a][b]
                or min(
                    _pcie_rate(closeness[a][b], pcie_generation(gpus[a], gpus[b])),
                    slot[a],
                    slot[b],
                )
            )
            for b in places
        )
        for a in places
    )

    with_cpus = [node.id for node in snapshot.numa_nodes or () if len(node.cpus)]
    only_node = with_cpus[0] if len(with_cpus) == 1 else None
    numa = tuple(
        (UNKNOWN, place) if node is None else ("node", node)
        for place, gpu in enumerate(gpus)
        for node in [only_node if gpu.numa_node is None else gpu.numa_node]
    )
    all_sockets = snapshot.cpu.sockets if snapshot.cpu else ()
    socket_by_node = socket_of_node(snapshot)

    def socket(node: Place) -> Place:
        if len(all_sockets) == 1:
            return "socket", all_sockets[0].id
        if node[0] == UNKNOWN or node[1] not in socket_by_node:
            return node
        return "socket", socket_by_node[node[1]]

    sockets = tuple(map(socket, numa))
    models = _models(gpus)
    hcas = usable_hcas(snapshot)
    nearest = nearest_hcas(snapshot, hcas)
    masks, is_far, steps = [], [], []
    for gpu, own_socket in zip(gpus, sockets, strict=True):
        near = nearest.get(gpu.index)
        own = near.hcas if near else ()
        distance = near.closeness if near else Closeness.SYS
        ids = set(map(id, own))
        masks.append(sum(1 << n for n, hca in enumerate(snapshot.hcas or ()) if id(hca) in ids))
        hca_sockets = {socket(("node", hca.numa_node)) for hca in own if hca.numa_node is not None}
        is_far.append(bool(hcas) and distance == Closeness.SYS and own_socket not in hca_sockets)
        steps.append(distance // Closeness.PIX if hcas else 0)

    return Facts(
        indices=indices,
        links=links,
        rates=rates,
        hops=hops,
        reach=reach(hops),
        is_switched=is_switched,
        numa=numa,
        sockets=sockets,
        models=tuple(map(models.index, models)),
        hcas=tuple(masks),
        is_far=tuple(is_far),
        hca_steps=tuple(steps),
        partitions=_partitions(indices, closeness, is_switched=is_switched),
    )


def _models(gpus: Sequence[Gpu]) -> list[tuple[object, ...]]:
    """Return what GPUs of one model have in common; a call that failed makes no other model."""
    told = [(gpu.product, gpu.memory_mib, gpu.compute_capability) for gpu in gpus]
    known = [None not in column for column in zip(*told, strict=True)]
    return [tuple(compress(row, known)) for row in told]


def usable_hcas(snapshot: Snapshot) -> tuple[Hca, ...]:
    """Return the rails that are not down."""
    hcas = snapshot.hcas or ()
    return tuple(hcas[at] for at in usable_cards(snapshot))


def reach(hops: Square) -> tuple[int, ...]:
    """Return the sum of the *hops* of each GPU to all others."""
    return tuple(sum(row) - row[place] for place, row in enumerate(hops))


def distances(snapshot: Snapshot) -> tuple[tuple[Closeness | None, ...], ...]:
    """Return the PCIe distance of every pair of GPUs by position; ``None`` is unknown."""
    known = pci_closeness(snapshot, of_gpus=True)
    names = [gpu.name for gpu in snapshot.gpus]
    return tuple(tuple(known.get(frozenset((a, b))) for b in names) for a in names)


def pcie_generation(a: Gpu, b: Gpu) -> int:
    """Return the highest PCIe generation that both GPUs support.

    The maximum counts, not the current one, which drops while a GPU is idle.
    """
    return min(_generation(a), _generation(b))


def tenths(rate_mb_s: int) -> int:
    """Return MB/s in units of 0.1 GB/s, the resolution at which bandwidths are compared."""
    return (rate_mb_s + 50) // 100


def _generation(gpu: Gpu) -> int:
    link = gpu.pcie
    known = link and (link.max_generation or link.generation)
    return min(max(known, 1), NEWEST_PCIE) if known else OLDEST_PCIE


def nvlink_rate(gpu: Gpu, snapshot: Snapshot) -> int:
    """Return the MB/s of the slowest active NVLink, by architecture where none is active."""
    oldest = min(NVLINK_MB_S.values())
    generation = NVLINK_OF_ARCHITECTURE.get(gpu.architecture or "", 0)
    rates = []
    for link in active_links(gpu, snapshot):
        payload = NVLINK_MB_S.get(link.version or generation)
        if link.speed_mbps is None or link.speed_mbps <= 0:
            rates.append(payload or oldest)
        elif (link.version or 0) > max(NVLINK_MB_S):
            rates.append(link.speed_mbps)  # nothing is published yet: the driver's figure counts
        elif payload is None:
            slower = [rate for rate in NVLINK_MB_S.values() if rate <= link.speed_mbps]
            rates.append(max(slower, default=link.speed_mbps))
        else:
            # Slower than its version is real: the bridge of an RTX 3090 runs NVLink 3 at 14 GB/s.
            rates.append(min(payload, link.speed_mbps))
    return min(rates, default=NVLINK_MB_S.get(generation, oldest))


def _pcie_rate(distance: Closeness | None, generation: int) -> int:
    """Return the MB/s between two GPUs over PCIe."""
    gen4 = PCIE_GEN4_GB_S[Closeness.SYS if distance is None else distance] * 1000
    return gen4 << (generation - 4) if generation >= 4 else gen4 >> (4 - generation)


def _slot_rates(snapshot: Snapshot) -> list[int]:
    """Return the MB/s that the PCIe link of each GPU carries with the lanes that it trained to.

    Where the width is unknown, the narrowest of the node counts. A GPU with NVLinks to its CPU
    (POWER9: 2 lanes alongside them; Grace) does not depend on its lanes.
    """
    gpus = snapshot.gpus
    known = [gpu.pcie.width for gpu in gpus if gpu.pcie and gpu.pcie.width]
    narrowest = min(known, default=FULL_WIDTH)
    rates = []
    for gpu in gpus:
        width = (gpu.pcie.width if gpu.pcie else None) or narrowest
        is_past_pcie = bool(gpu.c2c and gpu.c2c.is_enabled) or any(
            link.peer_kind is PeerKind.CPU for link in active_links(gpu, snapshot)
        )
        lanes = FULL_WIDTH if is_past_pcie else min(width, FULL_WIDTH)
        rates.append(_pcie_rate(Closeness.PIX, _generation(gpu)) * lanes // FULL_WIDTH)
    return rates


def _partitions(
    indices: Sequence[int],
    closeness: Sequence[Sequence[Closeness | None]],
    *,
    is_switched: bool,
) -> tuple[int, ...]:
    """Return the GPUs behind one PCIe switch; of the others, with NVSwitches, pairs 2i and 2i+1.

    Those pairs are the two-GPU partitions of NVIDIA's Fabric Manager on HGX boards (Fabric
    Manager user guide, shared NVSwitch partitions); without NVSwitches numbers mean nothing.
    """
    group = {place: {place} for place in range(len(indices))}
    for a, b in combinations(group, 2):
        distance = closeness[a][b]
        if distance is not None and distance <= Closeness.PIX:
            group[a] |= group[b]
            group.update(dict.fromkeys(group[a], group[a]))
    alone = [place for place, members in group.items() if len(members) == 1]
    for a, b in combinations(alone, 2) if is_switched else ():
        if indices[a] // 2 == indices[b] // 2:
            group[a] = group[b] = {a, b}
    masks = {sum(1 << member for member in members) for members in group.values()}
    return tuple(sorted(mask for mask in masks if mask.bit_count() > 1))
