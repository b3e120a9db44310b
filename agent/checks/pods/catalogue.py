"""Rules on what pods with GPUs ask for beside their QoS class."""

from agent.checks.pods import (
    isolation,
    nccl,
    rdma,
    resources,
)
from agent.checks.pods import (
    isolation as pods_bypass,
)
from agent.checks.pods import (
    resources as pods_shm,
)
from agent.checks.rule import Rule

RULES: tuple[Rule, ...] = (
    *nccl.RULES,
    *rdma.RULES,
    pods_shm.RULE,
    isolation.RULE,
    *pods_bypass.RULES,
    *resources.RULES,
)
