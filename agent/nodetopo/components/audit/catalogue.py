"""All rules in the order of their page, and how to find one by its code or area."""

import dataclasses
from collections.abc import Iterable

from nodetopo.checks.rule import PAGE, Area, Rule, Suite, by_code, suggestion
from nodetopo.components.audit.alignment import pairs
from nodetopo.components.audit.alignment import rules as alignment
from nodetopo.components.audit.rules import (
    complexes,
    gpu,
    gpudirect,
    kernel,
    kernel_memory,
    mig,
    numa,
    nvlink,
    nvlink_fabric,
    pcie,
    pcie_paths,
    plugin,
    plugin_rdma,
    qos,
    rdma,
    rdma_cards,
    rdma_ports,
    runtime,
    runtime_cdi,
    runtime_hand_over,
    runtime_toolkit,
)
from nodetopo.components.audit.rules.kubelet import (
    cpu_manager,
    files,
    known_bugs,
    memory_manager,
    options,
    policies,
    topology_manager,
)
from nodetopo.components.audit.rules.kubelet import runtime as kubelet_runtime
from nodetopo.components.audit.rules.pods import claims, isolation, nccl, resources
from nodetopo.components.audit.rules.pods import rdma as pods_rdma
from nodetopo.errors import InputError
from nodetopo.pages import checks

_MODULES = (
    *(alignment, pairs, complexes, gpu, gpudirect, kernel, kernel_memory, mig, numa),
    *(nvlink, nvlink_fabric, pcie, pcie_paths, plugin, plugin_rdma, qos),
    *(rdma, rdma_cards, rdma_ports, runtime, runtime_cdi, runtime_hand_over, runtime_toolkit),
    *(cpu_manager, files, known_bugs, memory_manager, options, policies, topology_manager),
    *(kubelet_runtime, claims, isolation, nccl, resources, pods_rdma),
)

_FOUND = {
    rule.code: dataclasses.replace(rule, caution=known_bugs.caution)
    for module in _MODULES
    for rule in vars(module).values()
    if isinstance(rule, Rule)
}

RULES: tuple[Rule, ...] = tuple(_FOUND[code] for code in checks(PAGE))
"""A KeyError here is an entry of the page without a rule in the modules above."""
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
