"""Which HCAs a GPU should talk through, and which GPUs a NUMA node owns."""

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


def nearest_hcas(snapshot: Snapshot) -> Mapping[int, NearestHcas]:
    """Return the nearest HCAs by GPU index; a GPU of unknown distance to all is left out."""
    distances = pci_closeness(snapshot)
    nearest = {}
    for gpu in snapshot.gpus:
        known = [
            (distance, hca)
            for position, hca in enumerate(snapshot.hcas or ())
            if (distance := distances.get(frozenset((gpu.name, f"NIC{position}")))) is not None
        ]
        if known:
            best = min(distance for distance, _ in known)
            hcas = tuple(hca for distance, hca in known if distance == best)
            nearest[gpu.index] = NearestHcas(closeness=best, hcas=hcas)
    return nearest


def gpus_by_numa_node(snapshot: Snapshot) -> Mapping[int | None, tuple[int, ...]]:
    """Return GPU indices by NUMA node, ascending; those of unknown node under ``None``."""
    nodes = sorted({gpu.numa_node for gpu in snapshot.gpus}, key=lambda node: (node is None, node))
    return {
        node: tuple(gpu.index for gpu in snapshot.gpus if gpu.numa_node == node) for node in nodes
    }


def socket_of_node(snapshot: Snapshot) -> Mapping[int, int]:
    """Return the socket of each NUMA node that has CPUs; empty when sockets are unknown."""
    sockets = snapshot.cpu.sockets if snapshot.cpu else ()
    return {
        node.id: socket.id
        for node in snapshot.numa_nodes or ()
        for socket in sockets
        if len(node.cpus) and node.cpus <= socket.cpus
    }
