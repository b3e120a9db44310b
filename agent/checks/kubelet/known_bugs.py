"""Bugs of kubelet releases that affect nodes with GPUs."""

from collections.abc import Callable
from dataclasses import dataclass

from agent.checks.inputs import missing_gpus, missing_numa_nodes, no_gpus
from agent.checks.kubelet.inputs import lacking, running, version
from agent.checks.rule import Finding, Judgement, Missing, Rule, Severity, rule
from agent.model.kubernetes import Release, patch, release
from agent.model.snapshot import Snapshot

MANY_NODES = 16
"""NUMA nodes up to which going through all their subsets (65,535) is quick."""

QUICK_SINCE: Release = (1, 36)
"""The first release with pull request 138244; 1.35.3 and 1.34.1 lack it."""

_NEWEST: Release = (1, 37)
"""The newest release whose sources were searched for these bugs."""

_ISSUES = "https://github.com/kubernetes/kubernetes/issues"

_RESTARTS: dict[Release, tuple[int, int]] = {(1, 25): (10, 13), (1, 26): (5, 8), (1, 27): (2, 5)}
"""First and last patch release that has #118559: pull request 116376 brought it, 118635 ended it
(1.27: pull request 119432, 1.26: 119706, 1.25: 119707; none of them is yet in 1.27.5, 1.26.8 and
1.25.13, pkg/kubelet/cm/devicemanager/manager.go)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """A bug of the kubelet.

    Attributes:
        has: whether a release has it, given its patch number (``None`` if not known).
        strikes: whether it matters on this node; decided from known facts only.
        effect: what happens.
        cure: the release to use, or what to avoid.
        issue: its number at kubernetes/kubernetes.
    """

    has: Callable[[Release, int | None], bool]
    strikes: Callable[[Snapshot], bool]
    effect: str
    cure: str
    issue: int


def _ends_pods(number: Release, patch_number: int | None) -> bool:
    first, last = _RESTARTS.get(number, (1, 0))
    return patch_number is not None and first <= patch_number <= last


def _aligns_many_nodes(snapshot: Snapshot) -> bool:
    settings = running(snapshot)
    is_aligned = settings is not None and settings.topology_manager_policy not in (None, "none")
    return is_aligned and len(snapshot.numa_nodes or ()) > MANY_NODES


def _pins_memory_of_many_nodes(snapshot: Snapshot) -> bool:
    settings = running(snapshot)
    is_static = settings is not None and settings.memory_manager_policy == "Static"
    return is_static and _aligns_many_nodes(snapshot)


BUGS: tuple[Bug, ...] = (
    Bug(
        has=_ends_pods,
        strikes=lambda snapshot: bool(snapshot.gpus),
        effect="ends running pods with devices when it restarts",
        cure="1.25.14, 1.26.9, 1.27.6 or newer",
        issue=118559,
    ),
    Bug(
        has=lambda number, _: number < QUICK_SINCE,
        strikes=_aligns_many_nodes,
        effect="goes through all subsets of the NUMA nodes for each pod with devices, and stalls",
        cure="1.36 or newer, or a build with pull request 138244",
        issue=135541,
    ),
    Bug(
        # 1.32.7 to 1.37.0 pkg/kubelet/cm/memorymanager/policy_static.go, calculateHints.
        has=lambda number, _: number <= _NEWEST,
        strikes=_pins_memory_of_many_nodes,
        effect="goes through all subsets of the NUMA nodes for each Guaranteed pod, and stalls",
        cure="memoryManagerPolicy None on nodes with so many NUMA nodes",
        issue=135541,
    ),
)


@rule(
    "KUB-021",
    # A distribution's build may have the fix without a newer number.
    Severity.WARNING,
    unless=no_gpus,
    claim="the kubelet has no known bug that strikes this node",
    why="Some releases end pods with GPUs at a restart, or stall on machines with very many "
    "NUMA nodes such as GB200 with its GPUs' memory as nodes.",
    remedy="update the kubelet, or avoid what brings the bug about as the finding says",
    reference=f"{_ISSUES}/135541",
)
def known_bugs(snapshot: Snapshot) -> Judgement:
    """Compare the kubelet's release with the bugs that matter on this node."""
    policies = ("topologyManagerPolicy", "memoryManagerPolicy")
    yield from missing_gpus(snapshot)
    yield from missing_numa_nodes(snapshot)
    yield from lacking(snapshot, running(snapshot), *policies)
    text = version(snapshot)
    number = release(text)
    if number is None:
        yield Missing("version of the kubelet")
        return
    for bug in BUGS:
        if bug.strikes(snapshot) and bug.has(number, patch(text)):
            observed = f"{bug.effect} (kubernetes issue {bug.issue})"
            yield Finding(subject=f"kubelet {text}", observed=observed, expected=bug.cure)


RULES: tuple[Rule, ...] = (known_bugs,)
