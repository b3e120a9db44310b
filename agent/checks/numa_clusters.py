"""A remark on CPUs that are divided into more NUMA nodes than there are sockets."""

from collections import Counter

from agent.checks.inputs import (
    Inputs,
    because,
    first_of,
    missing_numa_nodes,
    no_gpus,
    one_numa_node,
)
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.snapshot import Snapshot
from agent.topology.affinity import socket_of_node


def _divided(snapshot: Snapshot) -> tuple[Finding, ...]:
    counts = Counter(socket_of_node(snapshot).values())
    return tuple(
        Finding(
            subject=f"socket {socket}",
            observed=f"{count} NUMA nodes",
            expected="one",
        )
        for socket, count in sorted(counts.items())
        if count > 1
    )


def _missing(snapshot: Snapshot) -> Inputs:
    is_known = snapshot.cpu is not None and bool(snapshot.cpu.sockets)
    sockets = () if is_known else (f"CPU sockets{because(snapshot, 'cpu')}",)
    return missing_numa_nodes(snapshot) + sockets


RULE = Rule(
    code="NUM-004",
    claim="every socket is one NUMA node",
    why="With sub-NUMA clusters (SNC) or several nodes per socket (NPS) a job of several GPUs "
    "seldom fits one NUMA node, and single-numa-node rejects it.",
    area=Area.NUMA,
    suite=Suite.AUDIT,
    severity=Severity.INFO,
    needs=_missing,
    check=_divided,
    skips=first_of(no_gpus, one_numa_node),
    remedy="set SNC off or NPS1 in the firmware, unless jobs of one GPU profit from near memory",
    reference="https://kubernetes.io/docs/tasks/administer-cluster/topology-manager/",
)
