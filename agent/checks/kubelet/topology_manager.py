"""Rules on numbers of NUMA nodes that the kubelet's managers cannot bear."""

from collections.abc import Callable, Iterator, Mapping

from agent.checks.gpu_pods import GPU, uses_gpus
from agent.checks.inputs import Inputs, no_gpus, nothing_to_align
from agent.checks.kubelet.demand import (
    demands,
    missing_demands,
    missing_widths,
    most_on_one_node,
    places,
    uneven,
    wanting,
)
from agent.checks.kubelet.inputs import (
    is_on,
    missing_settings_and_nodes,
    place,
    running,
    starting,
    unless,
)
from agent.checks.kubelet.options import CLOSEST, LEAST_NODES, MAX_NODES, limit
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.kubelet import KubeletSettings
from agent.model.pod import ContainerKind, Pod
from agent.model.snapshot import Snapshot

# Rules on the Topology Manager's policy and scope against the pods that want GPUs.

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


JOBS_RULES: tuple[Rule, ...] = (
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


_OPTIONS = "topologyManagerPolicyOptions"


_POLICIES = ("best-effort", "restricted", "single-numa-node")


_MASK_BITS = 64
"""Bits of the Topology Manager's mask (pkg/kubelet/cm/topologymanager/bitmask/bitmask.go)."""


_SOURCE = "https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/kubelet/cm/topologymanager"


_Check = Callable[[KubeletSettings, tuple[int, ...]], Iterator[Finding]]


_not_aligning = unless(starting, _POLICY, *_POLICIES)


_needs: Callable[[Snapshot], Inputs] = missing_settings_and_nodes(starting, _POLICY, _OPTIONS)


def _where_aligned(find: _Check) -> Callable[[Snapshot], tuple[Finding, ...]]:
    """Let *find* judge the ids of all NUMA nodes, where the Topology Manager has a policy."""

    def check(snapshot: Snapshot) -> tuple[Finding, ...]:
        settings = starting(snapshot)
        is_known = settings is not None and settings.topology_manager_options is not None
        if not is_known or settings is None or snapshot.numa_nodes is None:
            return ()
        if settings.topology_manager_policy not in _POLICIES or no_gpus(snapshot) is not None:
            return ()
        return tuple(find(settings, tuple(node.id for node in snapshot.numa_nodes)))

    return check


def _too_many(settings: KubeletSettings, nodes: tuple[int, ...]) -> Iterator[Finding]:
    allowed = _allowed(settings.topology_manager_options or {})
    if allowed is not None and len(nodes) > allowed:
        yield Finding(
            subject=place(settings, _OPTIONS),
            observed=f"{len(nodes)} NUMA nodes, those without CPUs included",
            expected=f"at most {allowed}, or a {MAX_NODES} that allows them",
        )


def _allowed(options: Mapping[str, str]) -> int | None:
    return limit(options[MAX_NODES]) if MAX_NODES in options else LEAST_NODES


def _sparse(settings: KubeletSettings, nodes: tuple[int, ...]) -> Iterator[Finding]:
    if not is_on(settings.topology_manager_options, CLOSEST):
        return
    if nodes != tuple(range(len(nodes))):
        yield Finding(
            subject=place(settings, _OPTIONS),
            observed=f"{CLOSEST} with NUMA nodes {', '.join(map(str, nodes))}",
            expected=f"NUMA nodes 0 to {len(nodes) - 1} without a gap, or no {CLOSEST}",
        )


def _too_high(settings: KubeletSettings, nodes: tuple[int, ...]) -> Iterator[Finding]:
    for node in nodes:
        if node >= _MASK_BITS:
            yield Finding(
                subject=f"NUMA node {node}",
                observed=f"{place(settings, _POLICY)} is {settings.topology_manager_policy}",
                expected=f"numbers below {_MASK_BITS}, or topologyManagerPolicy none",
            )


RULES: tuple[Rule, ...] = (
    Rule(
        code="KUB-018",
        claim="the Topology Manager accepts the number of NUMA nodes",
        why="On a machine with more NUMA nodes than it allows, 8 without the option, the kubelet "
        "does not start. The memory of coherent GPUs (GH200, GB200) makes NUMA nodes too.",
        area=Area.KUBELET,
        suite=Suite.AUDIT,
        severity=Severity.ERROR,
        needs=_needs,
        check=_where_aligned(_too_many),
        skips=_not_aligning,
        remedy="set topologyManagerPolicyOptions: {max-allowable-numa-nodes: ...} to the number "
        "of NUMA nodes; with coherent GPUs rather switch the driver to CDMM mode "
        "(NVreg_CoherentGPUMemoryMode=driver), in which their memory makes no NUMA nodes",
        reference="https://kubernetes.io/docs/tasks/administer-cluster/topology-manager/"
        "#policy-option-max-allowable-numa-nodes",
    ),
    Rule(
        code="KUB-019",
        claim="prefer-closest-numa-nodes meets NUMA nodes without gaps in their numbers",
        why="The kubelet looks distances up by a node's number in a list without gaps, and "
        "panics at the first pod that it aligns.",
        area=Area.KUBELET,
        suite=Suite.AUDIT,
        severity=Severity.ERROR,
        needs=_needs,
        check=_where_aligned(_sparse),
        skips=_not_aligning,
        remedy="take prefer-closest-numa-nodes out of topologyManagerPolicyOptions and restart "
        "the kubelet",
        reference=f"{_SOURCE}/numa_info.go",
    ),
    Rule(
        code="KUB-020",
        claim="every NUMA node's number fits the Topology Manager's mask",
        why="The mask has 64 bits; with a higher number the kubelet has no mask of all nodes "
        "and fails as soon as it aligns a pod.",
        area=Area.KUBELET,
        suite=Suite.AUDIT,
        severity=Severity.ERROR,
        needs=_needs,
        check=_where_aligned(_too_high),
        skips=_not_aligning,
        remedy="number the nodes lower in the firmware's setup or the driver's mode (CDMM on "
        "coherent GPUs), or set topologyManagerPolicy: none",
        reference=f"{_SOURCE}/bitmask/bitmask.go",
    ),
)
