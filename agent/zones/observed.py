"""Which NUMA nodes a pod's resources are on, as KAI Scheduler reads it off the pod.

Format and rules are those of KAI's own exporter (kai-scheduler/KAI-Scheduler v0.17.0,
pkg/npe/placement/placement.go). KAI takes what is told here from what each zone lets pods have
(pkg/scheduler/plugins/numa/reconstruct.go), so that it must count as the zones count, and takes
nothing at all of a pod whose placement names a zone that the node has not (seed_placements.go).
"""

import json
from collections.abc import Iterable, Iterator, Sequence

from agent.model.node import PodHolding
from agent.model.numa import NumaNode
from agent.zones.zones import CPU, is_shown, zone_name

ANNOTATION = "kai.scheduler/numa-placement-observed"


def observed_placement(pod: PodHolding, numa_nodes: Sequence[NumaNode]) -> str | None:
    """Return the annotation's value for *pod*; ``None`` where nothing of it is on a known node.

    JSON: zones ascending, each with the amounts that the pod holds there, as text in whole CPUs,
    bytes and devices. A device that is near several nodes counts in each, as the kubelet lists it
    and as it counts in the zones; memory over several nodes counts nowhere, as with KAI's exporter.
    """
    amounts: dict[int, dict[str, int]] = {}
    for node, resource, amount in _pieces(pod, numa_nodes):
        if not is_shown(node):
            continue
        here = amounts.setdefault(node, {})
        here[resource] = here.get(resource, 0) + amount
    if not amounts:
        return None
    placement = [
        {
            "zone": zone_name(node),
            "amount": {name: str(amount) for name, amount in sorted(amounts[node].items())},
        }
        for node in sorted(amounts)
    ]
    return json.dumps(placement, separators=(",", ":"))


def _pieces(pod: PodHolding, numa_nodes: Iterable[NumaNode]) -> Iterator[tuple[int, str, int]]:
    """Yield node, resource and amount of all that can be told of NUMA nodes."""
    for device in pod.devices:
        for node in device.numa_nodes:
            yield node, device.resource, 1
    for piece in pod.memory:
        if len(piece.numa_nodes) == 1 and piece.size_bytes:
            yield piece.numa_nodes[0], piece.kind, piece.size_bytes
    for one in numa_nodes:
        if here := len(one.cpus & pod.cpus):
            yield one.id, CPU, here
