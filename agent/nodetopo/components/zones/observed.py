"""The NUMA nodes of a pod's resources, as the annotation that KAI Scheduler reads.

Format and rules follow KAI's exporter (kai-scheduler/KAI-Scheduler v0.17.0,
pkg/npe/placement/placement.go). KAI subtracts these amounts from each zone's allocatable resources
(pkg/scheduler/plugins/numa/reconstruct.go), so they must be counted like the zones', and ignores a
pod whose placement names a zone that the node lacks (seed_placements.go).
"""

import json
from collections.abc import Sequence

from nodetopo.components.zones.zones import CPU, is_shown, zone_name
from nodetopo.model.node import PodHolding
from nodetopo.model.numa import NumaNode

ANNOTATION = "kai.scheduler/numa-placement-observed"


def observed_placement(pod: PodHolding, numa_nodes: Sequence[NumaNode]) -> str | None:
    """Return the annotation's value for *pod*; ``None`` without resources on a known node.

    JSON: zones ascending, each with the amounts that the pod holds there, as text in whole CPUs,
    bytes and devices. A device near several nodes counts in each, as in the kubelet's list and in
    the zones; memory over several nodes counts nowhere, as with KAI's exporter.
    """
    pieces = [(node, device.resource, 1) for device in pod.devices for node in device.numa_nodes]
    pieces += [
        (piece.numa_nodes[0], piece.kind, piece.size_bytes)
        for piece in pod.memory
        if len(piece.numa_nodes) == 1 and piece.size_bytes
    ]
    pieces += [(node.id, CPU, count) for node in numa_nodes if (count := len(node.cpus & pod.cpus))]
    amounts: dict[int, dict[str, int]] = {}
    for node_id, resource, amount in pieces:
        if is_shown(node_id):
            here = amounts.setdefault(node_id, {})
            here[resource] = here.get(resource, 0) + amount
    if not amounts:
        return None
    placement = [
        {
            "zone": zone_name(node_id),
            "amount": {name: str(amount) for name, amount in sorted(amounts[node_id].items())},
        }
        for node_id in sorted(amounts)
    ]
    return json.dumps(placement, separators=(",", ":"))
