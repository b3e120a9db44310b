"""Rules on RDMA adapters: their ports, and how near to the GPUs they are."""

from agent.checks.inputs import (
    Inputs,
    because,
    gpu_label,
    has_no_gpus,
    has_one_numa_node,
    missing_gpus,
)
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.gpu import Gpu
from agent.model.hca import HcaPort
from agent.model.snapshot import Snapshot

ACTIVE = "ACTIVE"
"""The word of sysfs ``state`` for a port that carries traffic (ib_verbs.h ``ib_port_state``)."""

_REFERENCE = "https://www.kernel.org/doc/Documentation/ABI/stable/sysfs-class-infiniband"


def _inactive_ports(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            subject=f"{hca.name} port {port.number}",
            observed=_observed(port),
            expected=ACTIVE,
        )
        for hca in snapshot.hcas or ()
        for port in hca.ports
        if port.state is not None and port.state != ACTIVE
    )


def _observed(port: HcaPort) -> str:
    state = port.state or ""
    return state if port.physical_state is None else f"{state}, {port.physical_state}"


def _missing_hcas(snapshot: Snapshot) -> Inputs:
    return (f"HCAs{because(snapshot, 'rdma')}",) if snapshot.hcas is None else ()


def _missing_states(snapshot: Snapshot) -> Inputs:
    silent = [
        hca.name
        for hca in snapshot.hcas or ()
        if not hca.ports or any(port.state is None for port in hca.ports)
    ]
    return _missing_hcas(snapshot) + ((f"port states of {', '.join(silent)}",) if silent else ())


def _without_near_hca(snapshot: Snapshot) -> tuple[Finding, ...]:
    if not snapshot.hcas or _homeless_hcas(snapshot):
        return ()
    return tuple(
        Finding(
            subject=gpu_label(gpu),
            observed=f"no HCA on NUMA node {gpu.numa_node}",
            expected="at least one",
        )
        for gpu in _uncovered(snapshot)
    )


def _uncovered(snapshot: Snapshot) -> tuple[Gpu, ...]:
    """Return the GPUs on whose known NUMA node no HCA is known to be."""
    if has_one_numa_node(snapshot):
        return ()
    nodes = {hca.numa_node for hca in snapshot.hcas or ()}
    return tuple(
        gpu for gpu in snapshot.gpus if gpu.numa_node is not None and gpu.numa_node not in nodes
    )


def _homeless_hcas(snapshot: Snapshot) -> list[str]:
    return [hca.name for hca in snapshot.hcas or () if hca.numa_node is None]


def _missing_nodes(snapshot: Snapshot) -> Inputs:
    if has_no_gpus(snapshot) or has_one_numa_node(snapshot) or snapshot.hcas == ():
        return ()
    homeless = [gpu.name for gpu in snapshot.gpus if gpu.numa_node is None]
    if _uncovered(snapshot):  # else no HCA of unknown node can change the answer
        homeless += _homeless_hcas(snapshot)
    unknown = (f"NUMA node of {', '.join(homeless)}",) if homeless else ()
    return missing_gpus(snapshot) + _missing_hcas(snapshot) + unknown


RULES: tuple[Rule, ...] = (
    Rule(
        code="RDM-001",
        claim="every HCA port is active",
        why="NCCL leaves out a port that is down, and the GPUs that stand nearest to it go "
        "through another's.",
        area=Area.RDMA,
        suite=Suite.HEALTH,
        severity=Severity.ERROR,
        needs=_missing_states,
        check=_inactive_ports,
        remedy="check cable and transceiver, then the switch port; on InfiniBand check that a "
        "subnet manager runs",
        reference=_REFERENCE,
    ),
    Rule(
        code="RDM-002",
        claim="every GPU has an HCA on its own NUMA node",
        why="Traffic of a GPU without one crosses the link between the sockets.",
        area=Area.RDMA,
        suite=Suite.HEALTH,
        severity=Severity.WARNING,
        needs=_missing_nodes,
        check=_without_near_hca,
        remedy="move an HCA to a slot of that socket, or keep multi-node jobs off these GPUs",
        reference=_REFERENCE,
    ),
)
