"""Rules on the Topology Manager: policy and scope against pods, and numbers of NUMA nodes."""

from collections.abc import Iterable
from functools import reduce
from operator import and_

from msgspec.structs import replace

from nodetopo.checks.inputs import missing_numa_nodes, nothing_to_align
from nodetopo.checks.rule import Finding, Judgement, Missing, Severity, Skip, rule
from nodetopo.components.audit.rules.gpu_pods import GPU, uses_gpus
from nodetopo.components.audit.rules.kubelet.demand import (
    demands,
    missing_demands,
    missing_widths,
    most_on_one_node,
    places,
    preferred,
    uneven,
    wanting,
)
from nodetopo.components.audit.rules.kubelet.inputs import (
    is_on,
    kubelet_rule,
    missing_settings_and_nodes,
    need,
    other_value,
    place,
    running,
    version,
)
from nodetopo.components.audit.rules.kubelet.known_bugs import MANY_NODES, QUICK_SINCE
from nodetopo.components.audit.rules.kubelet.options import CLOSEST, LEAST_NODES, MAX_NODES, limit
from nodetopo.components.audit.rules.kubelet.remedies import (
    all_nodes_allowed,
    restarted_with,
    without_topology_option,
)
from nodetopo.model.kubelet import KubeletSettings
from nodetopo.model.kubernetes import release
from nodetopo.model.pod import ContainerKind
from nodetopo.model.snapshot import Snapshot

_POLICY = "topologyManagerPolicy"
_SCOPE = "topologyManagerScope"
_OPTIONS = "topologyManagerPolicyOptions"
_SINGLE = "single-numa-node"
_ALIGNING = ("best-effort", "restricted", _SINGLE)


@kubelet_rule(
    "KUB-005",
    Severity.ERROR,
    policy=(_POLICY, _SINGLE),
    needs=(_SCOPE, missing_numa_nodes, missing_demands),
    of=running,
    unless=(nothing_to_align,),
    cure=restarted_with(topology_manager_policy="best-effort"),
)
def fits_one_node(snapshot: Snapshot, settings: KubeletSettings) -> Judgement:
    """Compare the GPUs that pods request with the most that one NUMA node has."""
    for pod in wanting(snapshot):
        for demand in demands(pod, settings):
            for name, count in demand.gpus.items():
                most = most_on_one_node(places(snapshot, name) or ())
                if 0 < most < count:
                    yield Finding(
                        subject=demand.subject,
                        observed=f"{count} {name}",
                        expected=f"at most {most}, as many as one NUMA node has",
                    )


@kubelet_rule(
    "KUB-006",
    Severity.INFO,
    policy=(_POLICY, *_ALIGNING),
    needs=(
        missing_numa_nodes,
        need(f"NUMA nodes of {GPU}", lambda snapshot: places(snapshot, GPU) is not None),
    ),
    of=running,
    unless=(nothing_to_align,),
    cure=restarted_with(topology_manager_policy="best-effort"),
)
def all_gpus_in_one_container(snapshot: Snapshot, settings: KubeletSettings) -> Judgement:
    """Compare the GPUs of the best NUMA node with all GPUs."""
    spots = places(snapshot, GPU)
    if settings.topology_manager_policy != _SINGLE or not spots:
        return
    if (most := most_on_one_node(spots)) < len(spots):
        yield Finding(
            subject=place(settings, _POLICY),
            observed=f"{_SINGLE}: at most {most} of {len(spots)} {GPU}",
            expected="best-effort or restricted, if jobs are to span NUMA nodes",
        )


def _missing_widths(snapshot: Snapshot) -> Iterable[Missing]:
    settings = running(snapshot)
    return () if settings is None else missing_widths(snapshot, settings)


@kubelet_rule(
    "KUB-007",
    Severity.ERROR,
    policy=(_POLICY, "restricted"),
    needs=(
        _SCOPE,
        "cpuManagerPolicy",
        "memoryManagerPolicy",
        missing_numa_nodes,
        missing_demands,
        _missing_widths,
    ),
    of=running,
    unless=(nothing_to_align,),
    cure=restarted_with(topology_manager_policy="best-effort"),
)
def even_widths(snapshot: Snapshot, settings: KubeletSettings) -> Judgement:
    """Compare the numbers of NUMA nodes that each resource of a pod needs."""
    yield from uneven(snapshot, settings)


def _missing_demands_of_containers(snapshot: Snapshot) -> Iterable[Missing]:
    """Require the requests of pods unless the scope is known to be the pod."""
    settings = running(snapshot)
    is_pod = settings is not None and settings.topology_manager_scope == "pod"
    return () if is_pod else missing_demands(snapshot)


@kubelet_rule(
    "KUB-008",
    Severity.WARNING,
    policy=(_POLICY, *_ALIGNING),
    needs=(_SCOPE, missing_numa_nodes, _missing_demands_of_containers),
    of=running,
    unless=(nothing_to_align,),
    cure=restarted_with(topology_manager_scope="pod"),
)
def scope(snapshot: Snapshot, settings: KubeletSettings) -> Judgement:
    """Look for pods with GPUs in several containers that run at the same time."""
    for pod in wanting(snapshot) if settings.topology_manager_scope == "container" else ():
        names = [
            container.name
            for container in pod.containers
            if container.kind is not ContainerKind.INIT and uses_gpus(container)
        ]
        if len(names) > 1:
            yield Finding(
                subject=f"{pod.namespace}/{pod.name}",
                observed=f"GPUs in containers {', '.join(names)}",
                expected=f"scope pod instead of container in {place(settings, _SCOPE)}",
            )


@rule("KUB-032", Severity.ERROR, cure=restarted_with(topology_manager_policy="best-effort"))
def devices_together(snapshot: Snapshot) -> Judgement:
    """Compare the NUMA nodes that GPUs and RDMA devices of one demand prefer on an empty node."""
    settings = running(snapshot)
    if reason := _other_policy(snapshot, _SINGLE, "restricted"):
        yield Skip(reason)
        return
    both = [
        demand
        for pod in wanting(snapshot)
        for demand in (demands(pod, settings) if settings is not None else ())
        if demand.gpus and demand.rdma
    ]
    if settings is not None and not both and not any(missing_demands(snapshot)):
        yield Skip("no pod asks for GPUs and RDMA devices")
        return
    yield from missing_settings_and_nodes(snapshot, settings, _POLICY, _SCOPE)
    yield from missing_demands(snapshot)
    unplaced = {name for demand in both for name in demand.rdma if places(snapshot, name) is None}
    yield from (Missing(f"NUMA nodes of {name}") for name in sorted(unplaced))
    policy = None if settings is None else settings.topology_manager_policy
    for demand in both if policy in (_SINGLE, "restricted") else ():
        masks = {
            name: preferred(spots, count)
            for name, count in {**demand.gpus, **demand.rdma}.items()
            if (spots := places(snapshot, name))
        }
        if policy == _SINGLE:
            masks = {name: sets.of_size(1) for name, sets in masks.items()}
        has_hcas = bool(demand.rdma.keys() & masks.keys())
        # Too many GPUs for any NUMA node are KUB-005's.
        fits_gpus = all(masks.get(name, True) for name in demand.gpus)
        if has_hcas and fits_gpus and not reduce(and_, masks.values()):
            together = "one NUMA node with enough of each"
            if policy != _SINGLE:
                together = "the same NUMA nodes for each, as few as possible"
            yield Finding(
                subject=demand.subject,
                observed=", ".join(f"{demand.amounts[name]} {name}" for name in masks),
                expected=together,
            )


def _other_policy(snapshot: Snapshot, *policies: str) -> str | None:
    """Return why a rule on *policies* in force does not apply here."""
    return nothing_to_align(snapshot) or other_value(
        snapshot, running(snapshot), _POLICY, *policies
    )


def _fewer_nodes_or_more_allowed(snapshot: Snapshot) -> Snapshot:
    """Apply the remedy of KUB-018 that suits the machine and the kubelet."""
    if any(gpu.c2c and gpu.c2c.is_enabled for gpu in snapshot.gpus):
        left = tuple(node for node in snapshot.numa_nodes or () if len(node.cpus))
        gpus = tuple(replace(gpu, memory_numa_node=None) for gpu in snapshot.gpus)
        return replace(snapshot, numa_nodes=left, gpus=gpus)
    number = release(version(snapshot))
    is_quick = number is not None and number >= QUICK_SINCE
    if is_quick or len(snapshot.numa_nodes or ()) <= MANY_NODES:
        return restarted_with(all_nodes_allowed)(snapshot)
    return restarted_with(topology_manager_policy="none")(snapshot)


@kubelet_rule(
    "KUB-018",
    Severity.ERROR,
    policy=(_POLICY, *_ALIGNING),
    needs=(_OPTIONS, missing_numa_nodes),
    cure=_fewer_nodes_or_more_allowed,
)
def number_of_nodes(snapshot: Snapshot, settings: KubeletSettings) -> Judgement:
    """Compare the number of NUMA nodes with the limit."""
    nodes, options = snapshot.numa_nodes, settings.topology_manager_options
    if nodes is None or options is None:
        return
    allowed = limit(options[MAX_NODES]) if MAX_NODES in options else LEAST_NODES
    if allowed is not None and len(nodes) > allowed:
        yield Finding(
            subject=place(settings, _OPTIONS),
            observed=f"{len(nodes)} NUMA nodes, those without CPUs included",
            expected=f"at most {allowed}, or a {MAX_NODES} that allows them",
        )


@kubelet_rule(
    "KUB-019",
    Severity.ERROR,
    policy=(_POLICY, *_ALIGNING),
    needs=(_OPTIONS, missing_numa_nodes),
    cure=restarted_with(without_topology_option(CLOSEST)),
)
def gaps_between_nodes(snapshot: Snapshot, settings: KubeletSettings) -> Judgement:
    """Look for gaps in the numbers of the NUMA nodes."""
    nodes = [node.id for node in snapshot.numa_nodes or ()]
    if is_on(settings.topology_manager_options, CLOSEST) and nodes != [*range(len(nodes))]:
        yield Finding(
            subject=place(settings, _OPTIONS),
            observed=f"{CLOSEST} with NUMA nodes {', '.join(map(str, nodes))}",
            expected=f"NUMA nodes 0 to {len(nodes) - 1} without a gap, or no {CLOSEST}",
        )


MASK_BITS = 64
"""Bits of the Topology Manager's mask (pkg/kubelet/cm/topologymanager/bitmask/bitmask.go)."""


@kubelet_rule(
    "KUB-020",
    Severity.ERROR,
    policy=(_POLICY, *_ALIGNING),
    needs=(_OPTIONS, missing_numa_nodes),
    cure=restarted_with(topology_manager_policy="none"),
)
def numbers_of_nodes(snapshot: Snapshot, settings: KubeletSettings) -> Judgement:
    """Compare the numbers of the NUMA nodes with the bits of the mask."""
    is_known = settings.topology_manager_options is not None
    for node in (snapshot.numa_nodes or ()) if is_known else ():
        if node.id >= MASK_BITS:
            yield Finding(
                subject=f"NUMA node {node.id}",
                observed=f"{place(settings, _POLICY)} is {settings.topology_manager_policy}",
                expected=f"numbers below {MASK_BITS}, or topologyManagerPolicy none",
            )
