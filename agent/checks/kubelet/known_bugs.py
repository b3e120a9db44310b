"""Rule on bugs of kubelet releases that strike nodes with GPUs."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from agent.checks.inputs import Inputs, missing_gpus, missing_numa_nodes, no_gpus
from agent.checks.kubelet.inputs import lacking, running, version
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.kubernetes import Release, patch, release
from agent.model.snapshot import Snapshot

_ISSUES = "https://github.com/kubernetes/kubernetes/issues"
MANY_NODES = 16
"""NUMA nodes up to which going through all their subsets (65,535) is quick."""

QUICK_SINCE: Release = (1, 36)
"""The first release with pull request 138244; 1.35.3 and 1.34.1 have it not."""

_NEWEST: Release = (1, 37)
"""The newest release whose sources were looked at for these bugs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """One bug.

    Attributes:
        has: whether a release, by its patch number (``None``: not known), has it.
        strikes: whether it matters on this node; only from known facts.
        effect: what happens.
        cure: the release to have, or what to avoid.
        issue: its number at kubernetes/kubernetes.
    """

    has: Callable[[Release, int | None], bool]
    strikes: Callable[[Snapshot], bool]
    effect: str
    cure: str
    issue: int


_RESTARTS: dict[Release, tuple[int, int]] = {(1, 25): (10, 13), (1, 26): (5, 8), (1, 27): (2, 5)}
"""First and last patch release that has #118559: pull request 116376 brought it, 118635 ended it
(1.27: pull request 119432, 1.26: 119706, 1.25: 119707; none of them is yet in 1.27.5, 1.26.8 and
1.25.13, pkg/kubelet/cm/devicemanager/manager.go)."""


def _ends_pods(found: Release, patched: int | None) -> bool:
    first, last = _RESTARTS.get(found, (1, 0))
    return patched is not None and first <= patched <= last


def _stalls_on_devices(found: Release, _patched: int | None) -> bool:
    return found < QUICK_SINCE


def _stalls_on_memory(found: Release, _patched: int | None) -> bool:
    # 1.32.7 to 1.37.0 pkg/kubelet/cm/memorymanager/policy_static.go, calculateHints.
    return found <= _NEWEST


def _has_many_nodes(snapshot: Snapshot) -> bool:
    settings = running(snapshot)
    is_aligned = settings is not None and settings.topology_manager_policy not in (None, "none")
    return is_aligned and len(snapshot.numa_nodes or ()) > MANY_NODES


def _pins_memory_of_many(snapshot: Snapshot) -> bool:
    settings = running(snapshot)
    is_static = settings is not None and settings.memory_manager_policy == "Static"
    return is_static and _has_many_nodes(snapshot)


BUGS: tuple[Bug, ...] = (
    Bug(
        has=_ends_pods,
        strikes=lambda snapshot: bool(snapshot.gpus),
        effect="ends running pods with devices when it restarts",
        cure="1.25.14, 1.26.9, 1.27.6 or newer",
        issue=118559,
    ),
    Bug(
        has=_stalls_on_devices,
        strikes=_has_many_nodes,
        effect="goes through all subsets of the NUMA nodes for each pod with devices, and stalls",
        cure="1.36 or newer, or a build with pull request 138244",
        issue=135541,
    ),
    Bug(
        has=_stalls_on_memory,
        strikes=_pins_memory_of_many,
        effect="goes through all subsets of the NUMA nodes for each Guaranteed pod, and stalls",
        cure="memoryManagerPolicy None on nodes with so many NUMA nodes",
        issue=135541,
    ),
)


def _needs(snapshot: Snapshot) -> Inputs:
    policies = ("topologyManagerPolicy", "memoryManagerPolicy")
    known = release(version(snapshot)) is not None
    return (
        missing_gpus(snapshot)
        + missing_numa_nodes(snapshot)
        + lacking(snapshot, running(snapshot), *policies)
        + (() if known else ("version of the kubelet",))
    )


def _known_bugs(snapshot: Snapshot) -> tuple[Finding, ...]:
    text = version(snapshot)
    found = release(text)
    return () if found is None else tuple(_found(snapshot, f"kubelet {text}", found, patch(text)))


def _found(
    snapshot: Snapshot, subject: str, found: Release, patched: int | None
) -> Iterator[Finding]:
    for bug in BUGS:
        if bug.strikes(snapshot) and bug.has(found, patched):
            observed = f"{bug.effect} (kubernetes issue {bug.issue})"
            yield Finding(subject=subject, observed=observed, expected=bug.cure)


RULES: tuple[Rule, ...] = (
    Rule(
        code="KUB-021",
        claim="the kubelet has no known bug that strikes this node",
        why="Some releases end pods with GPUs at a restart, or stall on machines with very many "
        "NUMA nodes such as GB200 with its GPUs' memory as nodes.",
        area=Area.KUBELET,
        suite=Suite.AUDIT,
        # A distribution's build may have the fix without a newer number.
        severity=Severity.WARNING,
        needs=_needs,
        check=_known_bugs,
        skips=no_gpus,
        remedy="update the kubelet, or avoid what brings the bug about as the finding says",
        reference=f"{_ISSUES}/135541",
    ),
)
