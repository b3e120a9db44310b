"""Bugs of kubelet releases that affect nodes with GPUs."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from nodetopo.checks.inputs import missing_gpus, missing_numa_nodes, no_gpus
from nodetopo.checks.rule import Finding, Judgement, Missing, Severity, rule
from nodetopo.components.audit.rules.gpu_pods import missing_pods
from nodetopo.components.audit.rules.kubelet.inputs import (
    is_on,
    lacking,
    reserved_cpus,
    running,
    starting,
    version,
)
from nodetopo.components.audit.rules.kubelet.remedies import first, restarted_with, updated
from nodetopo.model.kubelet import KubeletSettings
from nodetopo.model.kubernetes import Release, patch, release
from nodetopo.model.snapshot import Snapshot

MANY_NODES = 16
"""NUMA nodes up to which going through all their subsets (65,535) is quick."""

QUICK_SINCE: Release = (1, 36)
"""The first release with pull request 138244; 1.35.6 and 1.34.9 lack it."""

WHOLE_CORES_SINCE: Release = (1, 37)
"""The first release with pull request 129079; 1.36.3 lacks it."""

ACTIVE_PODS_SINCE: Release = (1, 34)
"""The first release that lists only pods that have not ended, unless ACTIVE_PODS is off."""

ACTIVE_PODS = "KubeletPodResourcesListUseActivePods"
"""A feature gate, which 1.39 is to remove."""

_NEWEST: Release = (1, 37)
"""The newest release whose sources were searched for these bugs."""


_RESTARTS: dict[Release, tuple[int, int]] = {(1, 25): (10, 13), (1, 26): (5, 8), (1, 27): (2, 5)}
"""First and last patch release that has #118559: pull request 116376 brought it, 118635 ended it
(1.27: pull request 119432, 1.26: 119706, 1.25: 119707; none of them is yet in 1.27.5, 1.26.8 and
1.25.13, pkg/kubelet/cm/devicemanager/manager.go)."""


class Bug(Struct, frozen=True, kw_only=True):
    """A bug of the kubelet.

    Attributes:
        has: whether a release has it, given its patch number (``None`` if unknown).
        strikes: whether it affects this node; decided from known facts only.
        effect: on the node.
        cure: the release to use, or the setting to avoid.
        issue: its number at kubernetes/kubernetes; ``None`` for a bug without one.
        page: of our documentation that describes it, where there is no issue.
        evidence: its effect on running pods; ``None`` without one, or if unknown.
    """

    has: Callable[[Release, int | None], bool]
    strikes: Callable[[Snapshot], bool]
    effect: str
    cure: str
    issue: int | None = None
    page: str | None = None
    evidence: Callable[[Snapshot], str | None] = lambda _: None

    @property
    def source(self) -> str:
        """Where to read about it."""
        return str(self.page) if self.issue is None else f"kubernetes issue {self.issue}"


def _ends_pods(number: Release, patch_number: int | None) -> bool:
    first, last = _RESTARTS.get(number, (1, 0))
    return patch_number is not None and first <= patch_number <= last


def _gives_twice(number: Release, _: int | None) -> bool:
    """Return whether a release can, and lists only pods that have not ended.

    By pkg/kubelet/cm/devicemanager/manager.go of 1.34.1, 1.36.3 and 1.37.1. Older kubelets list
    ended pods with devices that others have since.
    """
    return ACTIVE_PODS_SINCE <= number <= _NEWEST


def _given_twice(snapshot: Snapshot) -> str | None:
    """Return a device that the kubelet lists in two pods, and these; ``None``: none is seen."""
    settings = running(snapshot)
    if settings is not None and (settings.feature_gates or {}).get(ACTIVE_PODS) is False:
        return None
    holders: dict[tuple[str, str], list[str]] = {}
    for pod in snapshot.pods or ():
        held = {
            (devices.resource, name)
            for container in pod.containers
            for devices in container.devices or ()
            for name in devices.ids
        }
        for device in held:
            holders.setdefault(device, []).append(f"{pod.namespace}/{pod.name}")
    shared = sorted((device, pods) for device, pods in holders.items() if len(pods) > 1)
    if not shared:
        return None
    ((resource, name), pods), others = shared[0], len(shared) - 1
    more = f", and {others} more" if others else ""
    return f"pods {' and '.join(pods)} have {resource} {name}{more}"


def _aligns_many_nodes(snapshot: Snapshot) -> bool:
    settings = running(snapshot)
    is_aligned = settings is not None and settings.topology_manager_policy not in (None, "none")
    return is_aligned and len(snapshot.numa_nodes or ()) > MANY_NODES


def _pins_memory_of_many_nodes(snapshot: Snapshot) -> bool:
    """Return whether it does; without a Topology Manager too, by a default hint for each pod."""
    settings = running(snapshot)
    is_static = settings is not None and settings.memory_manager_policy == "Static"
    return is_static and len(snapshot.numa_nodes or ()) > MANY_NODES


def _checks_whole_cores(snapshot: Snapshot) -> bool:
    """Return whether the kubelet will start with full-pcpus-only."""
    settings = starting(snapshot)
    if settings is None or settings.cpu_manager_policy != "static":
        return False
    return bool(snapshot.gpus) and is_on(settings.cpu_manager_options, "full-pcpus-only")


def _lost_container(snapshot: Snapshot) -> str | None:
    """Return the container with the most exclusive CPUs, if the next restart rejects it."""
    state = snapshot.kubelet_state.cpu if snapshot.kubelet_state else None
    free = _free_in_whole_cores(snapshot)
    if state is None or free is None:
        return None
    held = [
        (len(cpus), f"container {name} of pod {uid}")
        for uid, containers in (state.entries or {}).items()
        for name, cpus in containers.items()
    ]
    count, container = max(held, default=(0, ""))
    return f"{container} has {count}, and {free} are free" if count > free else None


def _free_in_whole_cores(snapshot: Snapshot) -> int | None:
    """Return the CPU count that 1.36.3 pkg/kubelet/cm/cpumanager/policy_static.go compares with.

    It is GetAvailablePhysicalCPUs: the shared CPUs except those on a reserved core.
    """
    settings = starting(snapshot)
    state = snapshot.kubelet_state.cpu if snapshot.kubelet_state else None
    if settings is None or state is None or state.default is None or snapshot.cpu is None:
        return None
    reservation = reserved_cpus(settings)
    if reservation is None:
        return None
    on_cores = {cpu for core in snapshot.cpu.cores if core & reservation for cpu in core}
    return len(state.default.cpus - reservation.cpus - on_cores)


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
        # 1.32.7 to 1.37.0 pkg/kubelet/cm/memorymanager/policy_static.go, calculateHints, which
        # getDefaultHint calls where the Topology Manager has no hint.
        has=lambda number, _: number <= _NEWEST,
        strikes=_pins_memory_of_many_nodes,
        effect="goes through all subsets of the NUMA nodes for each Guaranteed pod, and stalls",
        cure="memoryManagerPolicy None on nodes with this many NUMA nodes",
        issue=135541,
    ),
    Bug(
        has=lambda number, _: number < WHOLE_CORES_SINCE,
        strikes=_checks_whole_cores,
        effect="rejects running pods when it restarts, if a container has more exclusive CPUs "
        "than are then free in whole cores",
        cure="1.37 or newer, a build with pull request 129079, or the node drained before each "
        "restart of the kubelet",
        issue=129078,
        evidence=_lost_container,
    ),
    Bug(
        has=_gives_twice,
        strikes=lambda snapshot: _given_twice(snapshot) is not None,
        effect="gives a device to two pods, if its pods are listed while it allocates",
        cure="each device with one pod: delete the pods that share one, but for one of them",
        page="docs/internals/kubelet-list.md",
        evidence=_given_twice,
    ),
)


def caution(before: Snapshot, after: Snapshot) -> str | None:
    """Return the bugs that a change of the node from *before* to *after* exposes.

    An unknown release may have every bug. ``None`` without bugs.
    """
    old, text = set(_possible(before)), version(after)
    subject = "a kubelet with this bug" if release(text) is None else f"kubelet {text}"
    texts = [
        f"{subject} then {bug.effect} ({bug.source}), safe is {bug.cure}"
        for bug in _possible(after)
        if bug not in old
    ]
    return f"but {'; '.join(texts)}" if texts else None


def _possible(snapshot: Snapshot) -> Iterator[Bug]:
    text = version(snapshot)
    number = release(text)
    for bug in BUGS:
        if bug.strikes(snapshot) and (number is None or bug.has(number, patch(text))):
            yield bug


def _unpinned(snapshot: Snapshot, _: KubeletSettings) -> Mapping[str, Any]:
    return {"memory_manager_policy": "None"} if _pins_memory_of_many_nodes(snapshot) else {}


@rule(
    "KUB-021",
    # A distribution's build can have the fix without a newer number.
    Severity.WARNING,
    unless=no_gpus,
    cure=first(updated(WHOLE_CORES_SINCE), restarted_with(_unpinned)),
)
def known_bugs(snapshot: Snapshot) -> Judgement:
    """Compare the kubelet's release with the bugs that matter on this node."""
    policies = ("topologyManagerPolicy", "memoryManagerPolicy", "cpuManagerPolicy")
    yield from missing_gpus(snapshot)
    yield from missing_numa_nodes(snapshot)
    yield from lacking(snapshot, running(snapshot), *policies)
    next_settings = starting(snapshot)
    if next_settings is not None and next_settings.cpu_manager_policy == "static":
        yield from lacking(snapshot, next_settings, "cpuManagerPolicyOptions")
    text = version(snapshot)
    number = release(text)
    if number is None or _gives_twice(number, None):
        yield from missing_pods(snapshot)
    if number is None:
        yield Missing("version of the kubelet")
        return
    for bug in BUGS:
        if bug.has(number, patch(text)) and bug.strikes(snapshot):
            evidence = bug.evidence(snapshot)
            now = "" if evidence is None else f"; now {evidence}"
            observed = f"{bug.effect} ({bug.source}){now}"
            yield Finding(subject=f"kubelet {text}", observed=observed, expected=bug.cure)
