"""Rules on the Topology Manager's policy and scope against the pods that want GPUs."""

from collections.abc import Callable

from agent.checks.gpu_pods import GPU, uses_gpus
from agent.checks.inputs import Inputs, nothing_to_align
from agent.checks.kubelet.demand import demands, missing_demands, most_on_one_node, places, wanting
from agent.checks.kubelet.inputs import missing_settings_and_nodes, place, running, unless
from agent.checks.kubelet.kubelet_widths import missing_widths, uneven
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.kubelet import KubeletSettings
from agent.model.pod import ContainerKind, Pod
from agent.model.snapshot import Snapshot

_POLICY = "topologyManagerPolicy"
_SCOPE = "topologyManagerScope"
_SINGLE = "single-numa-node"
_RESTRICTED = "restricted"
_ALIGNING = ("best-effort", _RESTRICTED, _SINGLE)
_DOCS = "https://kubernetes.io/docs/tasks/administer-cluster/topology-manager/"


def _skips(*policies: str) -> Callable[[Snapshot], str | None]:
    """Skip nodes with nothing to align, and those with another policy than *policies*."""
    other = unless(running, _POLICY, *policies)
    return lambda snapshot: nothing_to_align(snapshot) or other(snapshot)


def _in_force(snapshot: Snapshot, *policies: str) -> KubeletSettings | None:
    settings = running(snapshot)
    is_one = settings is not None and settings.topology_manager_policy in policies
    return settings if is_one else None


def _needs_fit(snapshot: Snapshot) -> Inputs:
    return missing_settings_and_nodes(running, _POLICY, _SCOPE)(snapshot) + missing_demands(
        snapshot
    )


def _too_large(snapshot: Snapshot) -> tuple[Finding, ...]:
    settings = _in_force(snapshot, _SINGLE)
    if settings is None:
        return ()
    return tuple(
        Finding(
            subject=demand.subject,
            observed=f"{count} {name}",
            expected=f"at most {most}, as many as one NUMA node has",
        )
        for pod in wanting(snapshot)
        for demand in demands(pod, settings)
        for name, count in demand.gpus.items()
        if 0 < (most := most_on_one_node(places(snapshot, name) or ())) < count
    )


def _needs_places(snapshot: Snapshot) -> Inputs:
    absent = missing_settings_and_nodes(running, _POLICY)(snapshot)
    return absent + ((f"NUMA nodes of {GPU}",) if places(snapshot, GPU) is None else ())


def _room(snapshot: Snapshot) -> tuple[Finding, ...]:
    settings, spots = _in_force(snapshot, _SINGLE), places(snapshot, GPU)
    if settings is None or not spots or (most := most_on_one_node(spots)) == len(spots):
        return ()
    observed = f"{_SINGLE}: at most {most} of {len(spots)} {GPU}"
    expected = "best-effort or restricted, if jobs are to span NUMA nodes"
    return (Finding(subject=place(settings, _POLICY), observed=observed, expected=expected),)


def _needs_widths(snapshot: Snapshot) -> Inputs:
    settings = missing_settings_and_nodes(
        running, _POLICY, _SCOPE, "cpuManagerPolicy", "memoryManagerPolicy"
    )
    memory = missing_widths(snapshot, running(snapshot))
    return settings(snapshot) + missing_demands(snapshot) + memory


def _uneven(snapshot: Snapshot) -> tuple[Finding, ...]:
    settings = _in_force(snapshot, _RESTRICTED)
    return () if settings is None else tuple(uneven(snapshot, settings))


def _needs_scope(snapshot: Snapshot) -> Inputs:
    settings = missing_settings_and_nodes(running, _POLICY, _SCOPE)(snapshot)
    in_force = running(snapshot)
    is_whole = in_force is not None and in_force.topology_manager_scope == "pod"
    return settings if is_whole else settings + missing_demands(snapshot)


def _apart(snapshot: Snapshot) -> tuple[Finding, ...]:
    settings = _in_force(snapshot, *_ALIGNING)
    if settings is None or settings.topology_manager_scope != "container":
        return ()
    return tuple(
        Finding(
            subject=f"{pod.namespace}/{pod.name}",
            observed=f"GPUs in containers {', '.join(names)}",
            expected=f"scope pod instead of container in {place(settings, _SCOPE)}",
        )
        for pod in wanting(snapshot)
        if len(names := _beside(pod)) > 1
    )


def _beside(pod: Pod) -> tuple[str, ...]:
    """Name the containers with GPUs that run at the same time."""
    return tuple(
        container.name
        for container in pod.containers
        if container.kind is not ContainerKind.INIT and uses_gpus(container)
    )


RULES: tuple[Rule, ...] = (
    Rule(
        code="KUB-005",
        claim="every pod's GPUs fit on one NUMA node where policy single-numa-node demands it",
        why="Under single-numa-node the kubelet rejects every pod that asks for more GPUs than one "
        "NUMA node has: it fails with TopologyAffinityError as often as it is made anew.",
        area=Area.KUBELET,
        suite=Suite.AUDIT,
        severity=Severity.ERROR,
        needs=_needs_fit,
        check=_too_large,
        skips=_skips(_SINGLE),
        remedy="set topologyManagerPolicy: best-effort or restricted on nodes for such jobs and "
        "restart the kubelet, or let them ask for fewer GPUs in each container",
        reference=f"{_DOCS}#policy-single-numa-node",
    ),
    Rule(
        code="KUB-006",
        claim="one container can have all GPUs of the node",
        why="Under single-numa-node a container gets the GPUs of one NUMA node at most, however "
        "many are free.",
        area=Area.KUBELET,
        suite=Suite.AUDIT,
        severity=Severity.INFO,
        needs=_needs_places,
        check=_room,
        skips=_skips(*_ALIGNING),
        remedy="keep single-numa-node only where no job asks for more GPUs than one NUMA node has",
        reference=f"{_DOCS}#policy-single-numa-node",
    ),
    Rule(
        code="KUB-007",
        claim="under policy restricted each pod's GPUs, CPUs and memory need as many NUMA nodes",
        why="restricted admits only what every resource prefers, and each prefers the fewest NUMA "
        "nodes that could hold it: 8 GPUs of two nodes beside 4 CPUs of one are always rejected.",
        area=Area.KUBELET,
        suite=Suite.AUDIT,
        severity=Severity.ERROR,
        needs=_needs_widths,
        check=_uneven,
        skips=_skips(_RESTRICTED),
        remedy="let the pod ask for so many CPUs and so much memory that they need the NUMA nodes "
        "that its GPUs need, or set topologyManagerPolicy: best-effort and restart the kubelet",
        reference=f"{_DOCS}#policy-restricted",
    ),
    Rule(
        code="KUB-008",
        claim="containers of one pod get GPUs of the same NUMA nodes",
        why="With scope container each container is placed by itself, so two containers of one pod "
        "may get GPUs of different NUMA nodes.",
        area=Area.KUBELET,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=_needs_scope,
        check=_apart,
        skips=_skips(*_ALIGNING),
        remedy="set topologyManagerScope: pod and restart the kubelet, or put all GPUs of the pod "
        "into one container",
        reference=f"{_DOCS}#topology-manager-scopes",
    ),
)
