"""Which HCAs are nearest to a GPU by nvidia-smi's levels, and which socket holds a NUMA node."""

from collections.abc import Mapping
from dataclasses import dataclass

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
