"""Rules on RDMA adapters: their ports, and how near to the GPUs they are."""

from agent.checks import (
    rdma_devices,
    rdma_errors,
    rdma_link,
    rdma_near,
    rdma_rate,
    rdma_requests,
    rdma_roce,
)
from agent.checks.inputs import (
    Inputs,
    first_of,
    gpu_label,
    has_no_gpus,
    has_one_numa_node,
    missing_gpus,
    missing_hcas,
    no_adapters,
    no_gpus,
    one_numa_node,
    own_adapters,
)
from agent.checks.rdma_ports import ACTIVE, missing_states
from agent.checks.rdma_spare import spare_adapters
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.gpu import Gpu
from agent.model.hca import HcaPort
from agent.model.snapshot import Snapshot

_REFERENCE = "https://www.kernel.org/doc/Documentation/ABI/stable/sysfs-class-infiniband"


def _inactive_ports(snapshot: Snapshot) -> tuple[Finding, ...]:
    spare = spare_adapters(snapshot)
    return tuple(
        Finding(
            subject=f"{hca.name} port {port.number}",
            observed=_observed(port),
            expected=ACTIVE,
        )
        for hca in own_adapters(snapshot)
        for port in hca.ports
        if port.state is not None and port.state != ACTIVE and hca.name not in spare
    )


def _observed(port: HcaPort) -> str:
    state = port.state or ""
    return state if port.physical_state is None else f"{state}, {port.physical_state}"


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
    return missing_gpus(snapshot) + missing_hcas(snapshot) + unknown


RULES: tuple[Rule, ...] = (
    Rule(
        code="RDM-001",
        claim="every HCA port is active",
        why="NCCL leaves out a port that is down, and the GPUs that stand nearest to it go "
        "through another's. Left out are virtual functions and subfunctions, which are down while "
        "no job uses them, and the free port of a card away from the GPUs whose other one is "
        "active.",
        area=Area.RDMA,
        suite=Suite.HEALTH,
        severity=Severity.ERROR,
        needs=missing_states,
        check=_inactive_ports,
        skips=first_of(no_adapters),
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
        skips=first_of(no_gpus, no_adapters, one_numa_node),
        remedy="move an HCA to a slot of that socket, or keep multi-node jobs off these GPUs",
        reference=_REFERENCE,
    ),
    rdma_link.RULE,
    rdma_rate.RULE,
    rdma_near.RULE,
    rdma_errors.RULE,
    *rdma_roce.RULES,
    rdma_devices.RULE,
    *rdma_requests.RULES,
)
