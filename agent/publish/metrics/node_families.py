"""Metrics of the node as a whole."""

from agent.publish.metrics.family import Family, Samples, single
from agent.publish.metrics.state import MetricsState


def _identity(state: MetricsState) -> Samples:
    node = state.snapshot
    if node is None:
        return {}
    facts = (node.node, node.driver_version, node.nvml_version, node.product_name)
    return {tuple(fact or "" for fact in facts): 1}


def _active_ports(state: MetricsState) -> Samples:
    hcas = (state.snapshot.hcas if state.snapshot else None) or ()
    return {(hca.name,): sum(port.state == "ACTIVE" for port in hca.ports) for hca in hcas}


NODE_FAMILIES = (
    Family(
        name="node_info",
        text="Names and versions of the node; empty where unknown",
        labels=("node", "driver", "nvml", "machine"),
        samples=_identity,
    ),
    Family(
        name="gpus",
        text="GPUs of the node",
        samples=lambda state: single(len(state.snapshot.gpus) if state.snapshot else None),
    ),
    Family(
        name="hca_ports_active",
        text="Ports of the RDMA adapter in state ACTIVE",
        labels=("hca",),
        samples=_active_ports,
    ),
)
