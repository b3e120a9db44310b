"""Rules on what pods with GPUs ask for beside their QoS class."""

from agent.checks.pods import isolation, nccl, pods_bypass, pods_shm, rdma, resources
from agent.checks.rule import Rule

RULES: tuple[Rule, ...] = (
    *nccl.RULES,
    *rdma.RULES,
    pods_shm.RULE,
    isolation.RULE,
    *pods_bypass.RULES,
    *resources.RULES,
)
