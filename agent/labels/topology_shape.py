"""The shape of a node: one value for all nodes that are built alike."""

import hashlib
import json
from itertools import combinations

from agent.labels.label import LabelEntry
from agent.labels.rdma import job_hcas
from agent.model.snapshot import Snapshot
from agent.topology.affinity import hca_closeness
from agent.topology.links import nvlinks_between
from agent.topology.matrix import pci_closeness

_HEX_DIGITS = 16
"""64 bits: a thousand shapes in one cluster share a value with odds of 3 in 10^14."""


def _shape(snapshot: Snapshot) -> str | None:
    if not _is_known(snapshot):
        return None
    # Compact and with sorted keys, so that the digest depends on nothing but the facts.
    canonical = json.dumps(_facts(snapshot), separators=(",", ":"), sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:_HEX_DIGITS]


def _is_known(snapshot: Snapshot) -> bool:
    """Return whether nothing is missing that, once read, would give another value."""
    if not snapshot.gpus or None in (snapshot.pci_gpus, snapshot.hcas, snapshot.numa_nodes):
        return False
    if any(issue.probe == "nvml" for issue in snapshot.issues):
        return False
    is_whole = all(gpu.product is not None and not gpu.is_lost for gpu in snapshot.gpus)
    return is_whole and None not in nvlinks_between(snapshot).values()


def _facts(snapshot: Snapshot) -> dict[str, object]:
    """Return what is the same on every node of one build: places, never names or serials.

    GPUs come in NVML's order and HCAs in that of their addresses; the kernel's own order of
    HCAs varies from boot to boot. MIG mode is left out; where the driver hides the NVLinks of
    GPUs in that mode, it still tells.
    """
    gpus = [gpu.index for gpu in snapshot.gpus]
    distances = pci_closeness(snapshot)
    links = nvlinks_between(snapshot)
    hcas = snapshot.hcas or ()
    near = hca_closeness(snapshot)
    positions = sorted(job_hcas(snapshot), key=lambda position: hcas[position].pci_order)
    return {
        "gpus": [(gpu.product, gpu.numa_node) for gpu in snapshot.gpus],
        "nvlinks": [links[pair] for pair in combinations(gpus, 2)],
        "distances": [
            distances.get(frozenset((a.name, b.name))) for a, b in combinations(snapshot.gpus, 2)
        ],
        "hcas": [
            (hcas[position].numa_node, [near.get((gpu, position)) for gpu in gpus])
            for position in positions
        ],
        "numa": sum(len(node.cpus) > 0 for node in snapshot.numa_nodes or ()),
    }


ENTRIES: tuple[LabelEntry, ...] = (
    LabelEntry(
        key="gpu.topology/shape",
        meaning="Equal on nodes that are built alike: GPU models, NVLinks, PCIe distances, NUMA "
        "nodes and places of the HCAs. 16 hex digits; a dead NVLink makes another, and MIG may.",
        source="all of these, hashed",
        cardinality="one per machine type",
        value=_shape,
    ),
)
