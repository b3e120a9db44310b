"""All rules in the order of a report, and how to find one by its code or area."""

from collections.abc import Iterable
from dataclasses import replace

from nodetopo.checks.rule import Area, Rule, Suite, by_code, suggestion
from nodetopo.components.audit.alignment import rules as alignment
from nodetopo.components.audit.rules import (
    complexes,
    gpu,
    gpudirect,
    kernel,
    mig,
    numa,
    nvlink,
    pcie,
    plugin,
    plugin_rdma,
    qos,
    rdma,
    rdma_cards,
    runtime,
)
from nodetopo.components.audit.rules.kubelet import known_bugs, policies
from nodetopo.components.audit.rules.pods import catalogue
from nodetopo.errors import InputError

RULES: tuple[Rule, ...] = tuple(
    replace(rule, caution=known_bugs.caution)
    for rule in (
        *gpu.RULES,
        *mig.RULES,
        *nvlink.RULES,
        *pcie.RULES,
        *complexes.PCIE,
        *numa.RULES,
        *rdma.RULES,
        *rdma_cards.RULES,
        *gpudirect.RULES,
        *complexes.GPUDIRECT,
        *kernel.RULES,
        *runtime.RULES,
        *policies.RULES,
        *plugin.RULES,
        *plugin_rdma.RULES,
        *qos.RULES,
        *catalogue.RULES,
        *alignment.RULES,
    )
)
HEALTH: tuple[Rule, ...] = tuple(rule for rule in RULES if rule.suite is Suite.HEALTH)
AUDIT: tuple[Rule, ...] = tuple(rule for rule in RULES if rule.suite is Suite.AUDIT)


def rule(code: str) -> Rule:
    """Return the rule with *code*, in either case.

    Raises:
        InputError: there is none.
    """
    return by_code(code, RULES)


def select(rules: Iterable[Rule], only: Iterable[str]) -> tuple[Rule, ...]:
    """Return the *rules* selected by *only*, by area (``kubelet``) or by code.

    Raises:
        InputError: a name is neither.
    """
    names = {_area_or_code(name.strip()) for name in only}
    return tuple(rule for rule in rules if names & {rule.area.value, rule.code})


def _area_or_code(name: str) -> str:
    areas = tuple(area.value for area in Area)
    if name.lower() in areas:
        return name.lower()
    if name.upper() in {rule.code for rule in RULES}:
        return name.upper()
    hint = suggestion(name.lower(), areas)
    cure = f"{hint}subjects are codes and: {', '.join(areas)}"
    raise InputError(f"unknown subject {name!r}", cure)
