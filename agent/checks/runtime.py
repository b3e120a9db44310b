"""Rules on container runtimes, NVIDIA's container toolkit and CDI."""

from agent.checks import runtime_cdi, runtime_cgroup, runtime_limits, runtime_toolkit
from agent.checks.rule import Rule

RULES: tuple[Rule, ...] = (
    *runtime_cgroup.RULES,
    *runtime_cdi.RULES,
    *runtime_limits.RULES,
    *runtime_toolkit.RULES,
)
