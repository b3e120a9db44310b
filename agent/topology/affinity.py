"""Which HCAs are nearest to a GPU by nvidia-smi's levels, and which socket holds a NUMA node."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product

from agent.model.gpu import Gpu
from agent.model.hca import Hca
from agent.model.nvlink import Closeness
from agent.model.snapshot import Snapshot
from agent.topology.matrix import pci_closeness


@dataclass(frozen=True, slots=True, kw_only=True)
class NearestHcas:
    """The HCAs nearest to one GPU, and how near; several when they tie."""

    closeness: Closeness
    hcas: tuple[Hca, ...]


def hca_closeness(snapshot: Snapshot) -> Mapping[tuple[int, int], Closeness]:
    """Return the distance by (GPU index, HCA position), where it is known.

    An HCA with a Data Direct function is as near as the nearer of the two: data takes that
    way (``nvidia-smi topo -m``: the row ``DD<n>``), whatever the HCA's own row says.
    """
    distances = pci_closeness(snapshot)
    found = {}
    for position, hca in enumerate(snapshot.hcas or ()):
        rows = [f"NIC{position}"]
        rows += [
            f"DD{n}" for n, dd in enumerate(snapshot.data_directs or ()) if hca.name in dd.hcas
        ]
        for gpu in snapshot.gpus:
            known = [
                distance
                for row in rows
                if (distance := distances.get(frozenset((gpu.name, row)))) is not None
            ]
            if known:
                found[gpu.index, position] = min(known)
    return found


def nearest_hcas(snapshot: Snapshot) -> Mapping[int, NearestHcas]:
    """Return the nearest HCAs by GPU index, by nvidia-smi's levels.

    A GPU of unknown distance to all is left out.
    """
    distances = hca_closeness(snapshot)
    nearest = {}
    for gpu in snapshot.gpus:
        known = [
            (distance, hca)
            for position, hca in enumerate(snapshot.hcas or ())
            if (distance := distances.get((gpu.index, position))) is not None
        ]
        if known:
            best = min(distance for distance, _ in known)
            hcas = tuple(hca for distance, hca in known if distance == best)
            nearest[gpu.index] = NearestHcas(closeness=best, hcas=hcas)
    return nearest


def socket_of_node(snapshot: Snapshot) -> Mapping[int, int]:
    """Return the socket of each NUMA node that has CPUs; empty when sockets are unknown."""
    sockets = snapshot.cpu.sockets if snapshot.cpu else ()
    return {
        node.id: socket.id
        for node in snapshot.numa_nodes or ()
        for socket in sockets
        if len(node.cpus) and node.cpus <= socket.cpus
    }


# Rails: which HCA of every node belongs to one leaf of the fabric, as far as a node can tell.
#
# Clusters wire the HCA of the first GPU of each node to one switch, that of the second to the
# next, and so on. The cables cannot be seen from a node, only that each GPU has an HCA of its
# own; where that is not so, the group is named and nothing is claimed.

Distances = Mapping[tuple[int, int], Closeness]
"""By GPU index and HCA position."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rail:
    """GPUs and HCAs that are nearest to each other.

    Attributes:
        number: its place among all rails by lowest GPU, from 0; ``None`` where it is a group.
        gpus: indices, ascending.
        hcas: by position.
        closeness: of the nearest of its pairs.
        is_certain: one GPU, one HCA, and every distance that decides it is known. False for a
            group: several HCAs equally near (often the ports of one card), several GPUs that
            share one, or both.
    """

    number: int | None
    gpus: tuple[int, ...]
    hcas: tuple[Hca, ...]
    closeness: Closeness
    is_certain: bool


def rails(snapshot: Snapshot) -> tuple[Rail, ...]:
    """Return the rails by lowest GPU index.

    A GPU and an HCA belong together when neither has anything nearer, by nvidia-smi's levels
    and with the Data Direct functions counted. So an HCA for storage, farther from every GPU
    than that GPU's own, is on no rail; nor is a GPU all of whose HCAs are nearer to others.
    """
    distances = hca_closeness(snapshot)
    return tuple(
        _rail(number, gpus, positions, distances, snapshot)
        for number, (gpus, positions) in enumerate(_groups(_mutual(distances)))
    )


def _rail(
    number: int,
    gpus: tuple[int, ...],
    positions: tuple[int, ...],
    distances: Distances,
    snapshot: Snapshot,
) -> Rail:
    hcas = snapshot.hcas or ()
    closeness = min(distances[at] for at in product(gpus, positions) if at in distances)
    rivals = [
        (gpu, hca)
        for gpu, (position, hca) in product(snapshot.gpus, enumerate(hcas))
        if (gpu.index in gpus or position in positions) and (gpu.index, position) not in distances
    ]
    is_certain = len(gpus) == len(positions) == 1 and not any(
        _could_be_nearer(gpu, hca, closeness) for gpu, hca in rivals
    )
    return Rail(
        number=number if is_certain else None,
        gpus=gpus,
        hcas=tuple(hcas[position] for position in positions),
        closeness=closeness,
        is_certain=is_certain,
    )


def _mutual(distances: Distances) -> list[tuple[int, int]]:
    of_gpu: dict[int, Closeness] = {}
    of_hca: dict[int, Closeness] = {}
    for (gpu, hca), distance in distances.items():
        of_gpu[gpu] = min(distance, of_gpu.get(gpu, distance))
        of_hca[hca] = min(distance, of_hca.get(hca, distance))
    return [
        (gpu, hca)
        for (gpu, hca), distance in distances.items()
        if distance == of_gpu[gpu] == of_hca[hca]
    ]


def _groups(
    pairs: Iterable[tuple[int, int]],
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return the connected groups of *pairs*, by lowest GPU."""
    groups: list[tuple[set[int], set[int]]] = []
    for gpu, hca in pairs:
        touched = [group for group in groups if gpu in group[0] or hca in group[1]]
        merged = ({gpu}.union(*(g for g, _ in touched)), {hca}.union(*(h for _, h in touched)))
        groups = [*(group for group in groups if group not in touched), merged]
    return sorted((tuple(sorted(gpus)), tuple(sorted(hcas))) for gpus, hcas in groups)


def _could_be_nearer(gpu: Gpu, hca: Hca, than: Closeness) -> bool:
    """Return whether a pair of unknown distance might be as near as *than*.

    Where both have a place in the tree, a shared switch would show; only PHB, NODE and SYS
    can then be in doubt.
    """
    return gpu.path is None or hca.path is None or than >= Closeness.PHB
