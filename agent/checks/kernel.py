"""Rules on settings of the kernel and of the CPUs."""

from agent.checks import kernel_frequency, kernel_interrupts, kernel_isolation, kernel_memory
from agent.checks.rule import Rule

RULES: tuple[Rule, ...] = (
    *kernel_memory.RULES,
    *kernel_frequency.RULES,
    *kernel_isolation.RULES,
    *kernel_interrupts.RULES,
)
