"""All rules on pods, by code."""

from nodetopo.checks.rule import Rule
from nodetopo.components.audit.rules.pods import claims, isolation, nccl, rdma, resources

RULES: tuple[Rule, ...] = (
    *nccl.RULES,
    *rdma.RULES,
    resources.shared_memory,
    *isolation.RULES,
    resources.capacity,
    resources.offered_resources,
    rdma.roce_networks,
    claims.cpus_beside_claims,
)
