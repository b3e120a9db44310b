"""A small rack on which every rule of the doctor passes, and what becomes of one rule."""

from collections.abc import Iterable
from functools import cache

from msgspec.structs import replace

from nodetopo.checks.engine import Result
from nodetopo.tools.cluster.cluster import Cluster, Gang, Topology
from nodetopo.tools.cluster.doctor.catalogue import RULES, examine
from nodetopo.tools.cluster.node import ClusterNode
from tests.tools.cluster.labelled import DOMAIN, HOSTNAME, PARTITION, ZONE, labelled, tray

LEVELS = (ZONE, DOMAIN, PARTITION, HOSTNAME)
IN_A = {ZONE: "a"}


def owned(node: ClusterNode) -> ClusterNode:
    """Return *node* with all its labels written by us."""
    return replace(node, owners=dict.fromkeys(node.labels, ("nodetopo",)))


@cache
def nodes() -> tuple[ClusterNode, ...]:
    """Return two partitions of two trays each, and a DGX."""
    trays = [tray(f"n{number}", number // 2, more=IN_A) for number in range(4)]
    return tuple(map(owned, (*trays, labelled("n4", "dgx-h100", IN_A))))


def cluster(
    of: Iterable[ClusterNode],
    *,
    levels: tuple[str, ...] = LEVELS,
    gangs: tuple[Gang, ...] | None = (),
) -> Cluster:
    """Return the cluster of these nodes, with one topology."""
    topology = Topology(name="KAI Topology it", levels=levels)
    return Cluster(
        nodes=tuple(of),
        prefix="gpu.topology/",
        topologies=(topology,),
        gangs=gangs,
        published={},
        pools=(),
    )


def result(code: str, of: Cluster) -> Result:
    """Return what becomes of the rule *code*."""
    (found,) = examine(of, [rule for rule in RULES if rule.code == code]).results
    return found


def observed(code: str, of: Cluster) -> list[tuple[str, str]]:
    """Return what the rule *code* finds: subject and what was seen."""
    return [(one.subject, one.observed) for one in result(code, of).findings]
