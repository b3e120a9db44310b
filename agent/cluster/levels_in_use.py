"""Which levels to judge where nobody names a topology."""

from collections.abc import Iterator, Sequence

from agent.cluster.levels import candidates, nvlink_keys
from agent.cluster.levels_clash import shared_values
from agent.cluster.node import ClusterNode
from agent.cluster.nvlink_nodes import without_nvlink
from agent.cluster.topology import Topology

FROM_LABELS = "labels of the nodes"
"""Name of a topology that nobody wrote down."""

WITH_NVLINK, WITHOUT_NVLINK = f"{FROM_LABELS} with NVLink", f"{FROM_LABELS} without NVLink"
"""Names of the two that are judged where only some machines have NVLink."""


def levels_in_use(
    nodes: Sequence[ClusterNode],
    prefix: str,
    named: Sequence[str] = (),
    found: Sequence[Topology] = (),
) -> tuple[Topology, ...]:
    """Return the topologies to judge: of *named* keys, else those *found*, else of the labels.

    From labels: every level that an export may choose and that any node has, but for broader
    ones that would cut an NVLink domain in two, which an export leaves out as well. Machines
    that are meant to have no NVLink are a pool of their own: nobody can give them its levels.
    """
    if named:
        return (Topology(name="--levels", levels=tuple(named)),)
    return tuple(found) or tuple(_from_labels(nodes, prefix))


def is_from_labels(topology: Topology) -> bool:
    """Return whether nobody wrote *topology* down."""
    return topology.name in {FROM_LABELS, WITH_NVLINK, WITHOUT_NVLINK}


def _from_labels(nodes: Sequence[ClusterNode], prefix: str) -> Iterator[Topology]:
    apart = without_nvlink(nodes, prefix)
    without = [node for node in nodes if node.name in apart]
    rest = [node for node in nodes if node.name not in apart]
    if not without or not rest:
        yield Topology(name=FROM_LABELS, levels=_offered(nodes, prefix))
        return
    joined = frozenset(node.name for node in rest)
    yield Topology(name=WITH_NVLINK, levels=_offered(rest, prefix), only=joined)
    yield Topology(name=WITHOUT_NVLINK, levels=_offered(without, prefix), only=apart)


def _offered(nodes: Sequence[ClusterNode], prefix: str) -> tuple[str, ...]:
    offered = [
        key for key in candidates(nodes, prefix) if any(key in node.labels for node in nodes)
    ]
    domain = nvlink_keys(prefix)[0]
    broad = offered[: offered.index(domain)] if domain in offered else []
    cutting = {key for key in broad if _cuts(nodes, key, domain)}
    return tuple(key for key in offered if key not in cutting)


def _cuts(nodes: Sequence[ClusterNode], key: str, domain: str) -> bool:
    both = [node for node in nodes if node.labels.get(key) and node.labels.get(domain)]
    return bool(shared_values(both, (key, domain)))
