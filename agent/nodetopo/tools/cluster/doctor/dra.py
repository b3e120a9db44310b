"""Rules about the devices that DRA drivers publish in the cluster (ResourceSlices)."""

from nodetopo.checks.rule import Finding, Missing, Severity
from nodetopo.model.dra import PublishedDevice
from nodetopo.tools.cluster.cluster import Cluster
from nodetopo.tools.cluster.doctor.rule import (
    ClusterArea,
    ClusterJudgement,
    cluster_rule,
)
from nodetopo.tools.cluster.node import folded
from nodetopo.topology.published import counted_gpu, may_have_gpus, pci_of

_ASK = "ask the API server, with the right to list resourceslices"


@cluster_rule("CLU-011", ClusterArea.DRA, Severity.ERROR)
def one_driver(cluster: Cluster) -> ClusterJudgement:
    """Look for PCI addresses that devices of several drivers have on one node."""
    if cluster.published is None:
        yield Missing("ResourceSlices", _ASK)
        return
    twice: dict[tuple[str, ...], list[str]] = {}
    for node, devices in cluster.published.items():
        drivers: dict[str, set[str]] = {}
        for device in devices:
            for address in _addresses(device):
                drivers.setdefault(address, set()).add(device.driver)
        both = {tuple(sorted(them)) for them in drivers.values() if len(them) > 1}
        for them in both:
            twice.setdefault(them, []).append(node)
    for them, nodes in sorted(twice.items()):
        yield Finding(
            subject=folded(nodes),
            observed=f"GPUs published by {' and '.join(them)}",
            expected="one driver",
        )


@cluster_rule("CLU-012", ClusterArea.DRA, Severity.WARNING)
def labelled_nodes(cluster: Cluster) -> ClusterJudgement:
    """Look for nodes with published GPUs, and without a label that names them."""
    if cluster.published is None:
        yield Missing("ResourceSlices", _ASK)
        return
    bare = [
        node
        for node, devices in cluster.published.items()
        if node in cluster.others and any(may_have_gpus(device.driver) for device in devices)
    ]
    if bare:
        yield Finding(
            subject=folded(sorted(bare)),
            observed="GPUs published by DRA, no GPU labels",
            expected="labels such as nvidia.com/gpu.product",
        )


@cluster_rule("CLU-013", ClusterArea.DRA, Severity.ERROR)
def complete_pools(cluster: Cluster) -> ClusterJudgement:
    """Look for pools with fewer slices than they say that they have."""
    if cluster.pools is None:
        yield Missing("ResourceSlices", _ASK)
        return
    lacking: dict[tuple[str, int, int], list[str]] = {}
    for pool in cluster.pools:
        if not pool.is_complete:
            key = (pool.driver, pool.slices, pool.expected or 0)
            lacking.setdefault(key, []).extend(pool.nodes or (pool.name,))
    for (driver, slices, expected), names in sorted(lacking.items()):
        yield Finding(
            subject=folded(names),
            observed=f"{slices} of {expected} slices of a pool of {driver}",
            expected="all of them",
        )


def _addresses(device: PublishedDevice) -> set[str]:
    """Return the PCI addresses of the GPUs behind *device*, none for a device of another kind."""
    if not may_have_gpus(device.driver):
        return set()
    own = pci_of(device)
    counted = (counted_gpu(counter) for counter in device.counters)
    return {str(it) for it in (own, *counted) if it is not None}
