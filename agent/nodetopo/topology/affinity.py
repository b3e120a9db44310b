"""Which HCAs are nearest to a GPU by nvidia-smi's levels, and which socket holds a NUMA node."""

from collections.abc import Collection, Iterable, Mapping
from itertools import product

from msgspec import Struct

from nodetopo.model.hca import Hca
from nodetopo.model.nvlink import Closeness
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.matrix import pci_closeness


class NearestHcas(Struct, frozen=True, kw_only=True):
    """The HCAs nearest to one GPU and their distance; several where they tie."""

    closeness: Closeness
    hcas: tuple[Hca, ...]


def hca_closeness(snapshot: Snapshot) -> Mapping[tuple[int, int], Closeness]:
    """Return the distance by (GPU index, HCA position), where it is known.

    An HCA with a Data Direct function is as near as the nearer of the two, since data takes that
    path (``nvidia-smi topo -m``: the row ``DD<n>``) whatever the HCA's own row says.
    """
    distances = pci_closeness(snapshot, of_gpus=True)
    nearest = {}
    names = [(gpu.index, gpu.name) for gpu in snapshot.gpus]
    for position, hca in enumerate(snapshot.hcas or ()):
        rows = [f"NIC{position}"]
        rows += [
            f"DD{n}" for n, dd in enumerate(snapshot.data_directs or ()) if hca.name in dd.hcas
        ]
        for index, name in names:
            known = [
                distance
                for row in rows
                if (distance := distances.get(frozenset((name, row)))) is not None
            ]
            if known:
                nearest[index, position] = min(known)
    return nearest


def nearest_hcas(
    snapshot: Snapshot, among: Collection[Hca] | None = None
) -> Mapping[int, NearestHcas]:
    """Return the nearest HCAs by GPU index, by nvidia-smi's levels; ``None`` means among all.

    A GPU of unknown distance to all is left out.
    """
    distances = hca_closeness(snapshot)
    nearest = {}
    for gpu in snapshot.gpus:
        known = [
            (distance, hca)
            for position, hca in enumerate(snapshot.hcas or ())
            if (distance := distances.get((gpu.index, position))) is not None
            and (among is None or hca in among)
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


def nodes_alike(snapshot: Snapshot) -> Mapping[int, tuple[int, ...]]:
    """Return the other NUMA nodes nearest to each node, on the same socket.

    A node without CPUs counts as of the same socket. Nodes whose distances are unknown are missing.
    Drivers list them alongside a device's own node (KEP-6072; k8s.io/dynamic-resource-allocation
    v0.37 ``deviceattribute``).
    """
    sockets = socket_of_node(snapshot)
    ids = sorted(node.id for node in snapshot.numa_nodes or ())
    found = {}
    for node in snapshot.numa_nodes or ():
        if node.distances is None or len(node.distances) != len(ids):
            continue
        others = {it: at for it, at in zip(ids, node.distances, strict=True) if it != node.id}
        own = sockets.get(node.id)
        found[node.id] = tuple(
            it
            for it, distance in others.items()
            if distance == min(others.values()) and (own is None or sockets.get(it, own) == own)
        )
    return found


class Rail(Struct, frozen=True, kw_only=True):
    """GPUs and HCAs that are nearest to each other."""

    number: int | None  # by lowest GPU, from 0; None for a group
    gpus: tuple[int, ...]  # indices, ascending
    hcas: tuple[Hca, ...]  # by position
    closeness: Closeness  # of its nearest pair
    # One GPU, one HCA, and every distance that decides it is known. False for a group: several HCAs
    # equally near (often the ports of one card), several GPUs that share an HCA, or both.
    is_certain: bool


def rails(snapshot: Snapshot) -> tuple[Rail, ...]:
    """Return the rails by lowest GPU index.

    Clusters wire the first GPU's HCA of each node to one leaf switch, the second GPU's to the next,
    and so on. A node does not see the cables, only whether each GPU has a separate HCA; if not, the
    group is named and no rail is claimed.

    A GPU and an HCA belong together when neither has anything nearer, by nvidia-smi's levels and
    with the Data Direct functions counted. So an HCA for storage, farther from every GPU than that
    GPU's own, is on no rail; nor is a GPU all of whose HCAs are nearer to others.
    """
    distances = hca_closeness(snapshot)
    of_gpu: dict[int, Closeness] = {}
    of_hca: dict[int, Closeness] = {}
    for (index, position), distance in distances.items():
        of_gpu[index] = min(distance, of_gpu.get(index, distance))
        of_hca[position] = min(distance, of_hca.get(position, distance))
    nearest = [
        at for at, distance in distances.items() if distance == of_gpu[at[0]] == of_hca[at[1]]
    ]
    hcas = snapshot.hcas or ()
    result = []
    for number, (gpus, positions) in enumerate(_groups(nearest)):
        closeness = min(distances[at] for at in product(gpus, positions) if at in distances)
        is_certain = len(gpus) == len(positions) == 1
        for gpu, (position, hca) in product(snapshot.gpus, enumerate(hcas)):
            is_of_group = gpu.index in gpus or position in positions
            if is_of_group and (gpu.index, position) not in distances:
                # A pair of unknown distance might be as near. Where both have a place in the
                # tree, a shared switch would show; only PHB, NODE and SYS can be in doubt.
                is_in_doubt = gpu.path is None or hca.path is None or closeness >= Closeness.PHB
                is_certain = is_certain and not is_in_doubt
        rail = Rail(
            number=number if is_certain else None,
            gpus=gpus,
            hcas=tuple(hcas[position] for position in positions),
            closeness=closeness,
            is_certain=is_certain,
        )
        result.append(rail)
    return tuple(result)


def rail_numbers(snapshot: Snapshot) -> dict[str, int]:
    """Return the number of the rail of each HCA that is certainly on one, by name."""
    return {
        hca.name: rail.number
        for rail in rails(snapshot)
        if rail.number is not None
        for hca in rail.hcas
    }


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
