"""What the Topology Manager sees of a pod, and where the devices are that it would get."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import combinations

from agent.checks.gpu_pods import GPU, is_gpu_resource, missing_pods
from agent.checks.inputs import Inputs
from agent.checks.kubelet.inputs import is_on, place
from agent.checks.rule import Finding
from agent.model.kubelet import KubeletSettings
from agent.model.kubernetes import MILLICORES
from agent.model.pod import Container, Pod, at_once
from agent.model.qos import HUGE_PAGES, QosClass, asks_as_a_pod, class_of
from agent.model.snapshot import Snapshot

CPU = "cpu"


MEMORY = "memory"


_POD_SCOPE = "pod"


_ENDED = ("Succeeded", "Failed")


_REJECTED = "TopologyAffinityError"


_MOST_NODES = 12
"""NUMA nodes with devices of one resource whose subsets are counted; real machines have 8."""


Places = tuple[tuple[int, ...], ...]
"""The NUMA nodes of each device of a resource."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What is placed at once: a container's resources, or with scope ``pod`` the pod's.

    Attributes:
        amounts: GPU resources; of pods that get CPUs and memory of their own also ``cpu`` in
            whole CPUs, ``memory`` and huge pages in bytes.
    """

    subject: str
    amounts: Mapping[str, int]

    @property
    def gpus(self) -> Mapping[str, int]:
        """The GPU resources among them."""
        return {name: count for name, count in self.amounts.items() if is_gpu_resource(name)}


def wanting(snapshot: Snapshot) -> Iterator[Pod]:
    """Yield the pods that want to be here, those that were refused for their nodes among them."""
    for pod in snapshot.pods or ():
        if pod.phase not in _ENDED or pod.status_reason == _REJECTED:
            yield pod


def missing_demands(snapshot: Snapshot) -> Inputs:
    """Need the pods, what their containers ask for, and where the GPUs are that they ask for."""
    if snapshot.pods is None:
        return missing_pods(snapshot)
    unclear = tuple(
        f"resources of container {container.name} in {pod.namespace}/{pod.name}"
        for pod in wanting(snapshot)
        for container in pod.containers
        if _asked(container) is None
    )
    wanted = {
        name
        for pod in wanting(snapshot)
        for container in pod.containers
        for name, count in (_asked(container) or {}).items()
        if count > 0 and is_gpu_resource(name)
    }
    return unclear + tuple(
        f"NUMA nodes of {name}" for name in sorted(wanted) if places(snapshot, name) is None
    )


def demands(pod: Pod, settings: KubeletSettings) -> tuple[Demand, ...]:
    """Return what is placed at once for *pod*, in its containers' order, if it is known."""
    # The CPU and Memory Managers pass over pods with resources of their own
    # (1.36 pkg/kubelet/cm/cpumanager/policy_static.go, memorymanager/policy_static.go).
    is_pinned = not asks_as_a_pod(pod) and class_of(pod) == QosClass.GUARANTEED
    seen = partial(_seen, is_pinned=is_pinned)
    name = f"{pod.namespace}/{pod.name}"
    if settings.topology_manager_scope == _POD_SCOPE:
        return (Demand(subject=name, amounts=at_once(pod, seen)),)
    return tuple(
        Demand(subject=f"{name} container {container.name}", amounts=seen(container))
        for container in pod.containers
    )


def _seen(container: Container, *, is_pinned: bool) -> Mapping[str, int]:
    asked = _asked(container) or {}
    seen = {name: count for name, count in asked.items() if is_gpu_resource(name) and count > 0}
    if not is_pinned:
        return seen
    kinds = {name: n for name, n in asked.items() if name == MEMORY or name.startswith(HUGE_PAGES)}
    cpus, rest = divmod(asked.get(CPU, 0), MILLICORES)
    return seen | {name: n for name, n in kinds.items() if n > 0} | ({} if rest else {CPU: cpus})


def _asked(container: Container) -> Mapping[str, int] | None:
    return container.requests if container.requests is not None else container.limits


def places(snapshot: Snapshot, resource: str) -> Places | None:
    """Return the NUMA nodes of each device that counts for *resource*; ``None`` if not known.

    Devices without a node never count (1.36 pkg/kubelet/cm/devicemanager/topology_hints.go);
    where none has one the result is empty, and the resource is not aligned.
    """
    if snapshot.offer is not None:
        devices = (device for device in snapshot.offer.devices if device.resource == resource)
        return tuple(device.numa_nodes for device in devices if device.numa_nodes)
    if resource != GPU or not _is_one_device_each(snapshot):
        return None
    nodes = [gpu.numa_node for gpu in snapshot.gpus]
    known = tuple((node,) for node in nodes if node is not None)
    return known if len(known) == len(nodes) else None


def _is_one_device_each(snapshot: Snapshot) -> bool:
    """Return whether each GPU is one device, as far as can be told without asking the kubelet."""
    status = snapshot.node_status
    count = None if status is None or status.capacity is None else status.capacity.get(GPU)
    is_cut = any(gpu.is_divided for gpu in snapshot.gpus)
    return not is_cut and count in (None, len(snapshot.gpus))


def width(spots: Places, amount: int) -> int | None:
    """Return how many NUMA nodes *amount* devices need at least; ``None`` if no set has them."""
    counts = Counter(spots)
    nodes = {node for spot in counts for node in spot}
    if len(nodes) > _MOST_NODES:
        return None
    for size in range(len(nodes) + 1):
        for chosen in map(frozenset, combinations(nodes, size)):
            if _count(counts, chosen) >= amount:
                return size
    return None


def most_on_one_node(spots: Places) -> int:
    """Return how many devices one NUMA node has at most."""
    return max(Counter(node for spot in spots for node in set(spot)).values(), default=0)


def _count(counts: Mapping[tuple[int, ...], int], chosen: frozenset[int]) -> int:
    return sum(count for spot, count in counts.items() if not chosen.isdisjoint(spot))


# How many NUMA nodes each resource of a pod needs, which must agree under policy restricted.
#
# The Topology Manager prefers for each resource the fewest NUMA nodes that could hold the request
# on an empty machine, and ``restricted`` admits only what all resources prefer together, so GPUs
# that need two nodes beside CPUs that need one are refused for ever
# (1.36 pkg/kubelet/cm/topologymanager/policy.go, mergePermutation).

_GIB = 1 << 30


def uneven(snapshot: Snapshot, settings: KubeletSettings) -> Iterator[Finding]:
    """Find each demand whose resources need different numbers of NUMA nodes."""
    for pod in wanting(snapshot):
        for demand in demands(pod, settings):
            widths = _widths(snapshot, settings, demand)
            if len(set(widths.values())) > 1:
                yield Finding(
                    subject=demand.subject,
                    observed="; ".join(_words(*pair) for pair in widths.items()),
                    expected=f"as many NUMA nodes for each, or another "
                    f"{place(settings, 'topologyManagerPolicy')}",
                )


def missing_widths(snapshot: Snapshot, settings: KubeletSettings | None) -> Inputs:
    """Need what memory each NUMA node can give, if a pod with GPUs needs it pinned."""
    if settings is None or settings.memory_manager_policy != "Static":
        return ()
    if _memory(snapshot) is not None:
        return ()
    pinned = any(
        demand.gpus and MEMORY in demand.amounts
        for pod in wanting(snapshot)
        for demand in demands(pod, settings)
    )
    return ("memory_manager_state",) if pinned else ()


def _widths(snapshot: Snapshot, settings: KubeletSettings, demand: Demand) -> Mapping[str, int]:
    """Return the NUMA nodes that each resource needs, as its amount reads; GPUs first."""
    widths = {
        f"{count} {name}": needed
        for name, count in demand.gpus.items()
        if (needed := width(places(snapshot, name) or (), count)) is not None
    }
    if not widths:
        return {}
    if _prefers_fewest(settings) and (cpus := demand.amounts.get(CPU, 0)):
        widths |= _known(f"{cpus} CPUs", _fewest(_cpus(snapshot), cpus))
    if settings.memory_manager_policy == "Static" and not _has_huge_pages(demand):
        size = demand.amounts.get(MEMORY, 0)
        held = _memory(snapshot)
        if size and held is not None:
            widths |= _known(f"{size / _GIB:.4g} GiB of memory", _fewest(held, size))
    return widths


def _prefers_fewest(settings: KubeletSettings) -> bool:
    # With align-by-socket all nodes of a socket are preferred too.
    by_socket = is_on(settings.cpu_manager_options, "align-by-socket")
    return settings.cpu_manager_policy == "static" and not by_socket


def _words(amount: str, nodes: int) -> str:
    return f"{amount} on {nodes} NUMA node{'s' if nodes > 1 else ''}"


def _known(amount: str, nodes: int | None) -> Mapping[str, int]:
    return {} if nodes is None else {amount: nodes}


def _has_huge_pages(demand: Demand) -> bool:
    # They and the memory are placed together, by all their amounts at once.
    return any(name.startswith(HUGE_PAGES) for name in demand.amounts)


def _cpus(snapshot: Snapshot) -> tuple[int, ...]:
    return tuple(len(node.cpus) for node in snapshot.numa_nodes or ())


def _memory(snapshot: Snapshot) -> tuple[int, ...] | None:
    state = snapshot.kubelet_state.memory if snapshot.kubelet_state else None
    blocks = state.blocks if state else ()
    return tuple(block.allocatable for block in blocks if block.kind == MEMORY) or None


def _fewest(held: Iterable[int], amount: int) -> int | None:
    """Return how many of the largest of *held* make up *amount*; ``None`` if not even all do."""
    total = 0
    for count, size in enumerate(sorted(held, reverse=True), start=1):
        total += size
        if total >= amount:
            return count
    return None
