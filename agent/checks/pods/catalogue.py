"""All rules on pods, by code."""

from agent.checks.pods import claims, isolation, nccl, rdma, resources
from agent.checks.rule import Rule

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
