"""Rules on what pods with GPUs ask for beside their QoS class."""

from agent.checks import (
    pods_bypass,
    pods_fit,
    pods_identity,
    pods_nccl,
    pods_rdma,
    pods_shm,
)
from agent.checks.rule import Rule

RULES: tuple[Rule, ...] = (
    *pods_nccl.RULES,
    *pods_rdma.RULES,
    pods_shm.RULE,
    pods_identity.RULE,
    *pods_bypass.RULES,
    *pods_fit.RULES,
)
