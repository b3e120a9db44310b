"""The Topology Manager's view of a pod, and the places of the devices that it would get."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache, reduce
from operator import or_

from msgspec import Struct

from nodetopo.checks.rule import Finding, Missing
from nodetopo.components.audit.rules.gpu_pods import (
    GPU,
    container_name,
    is_gpu_resource,
    missing_pods,
    pod_name,
)
from nodetopo.components.audit.rules.kubelet.inputs import is_on, place
from nodetopo.components.audit.rules.pods.inputs import is_rdma
from nodetopo.model.kubelet import KubeletSettings
from nodetopo.model.kubernetes import MILLICORES, size_text
from nodetopo.model.pod import Container, Pod, at_once
from nodetopo.model.qos import HUGE_PAGES, QosClass, asks_as_a_pod, class_of
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.node_sets import NO_SET, Family, TooManyError, mask_of, near_any

CPU = "cpu"
MEMORY = "memory"

Places = tuple[tuple[int, ...], ...]
"""The NUMA nodes of each device of a resource."""


class Demand(Struct, frozen=True, kw_only=True):
    """Resources placed together: a container's, or with scope ``pod`` the pod's.

    Attributes:
        amounts: resources for GPUs and RDMA; for pods with exclusive CPUs and memory also ``cpu``
            in whole CPUs, ``memory`` and huge pages in bytes.
    """

    subject: str
    amounts: Mapping[str, int]

    @property
    def gpus(self) -> Mapping[str, int]:
        """The GPU resources among them."""
        return {name: count for name, count in self.amounts.items() if is_gpu_resource(name)}

    @property
    def rdma(self) -> Mapping[str, int]:
        """The resources for RDMA among them."""
        return {name: count for name, count in self.amounts.items() if is_rdma(name)}


def wanting(snapshot: Snapshot) -> Iterator[Pod]:
    """Yield the pods of this node that have not ended, and those rejected for their NUMA nodes."""
    for pod in snapshot.pods or ():
        is_rejected = pod.status_reason == "TopologyAffinityError"
        if pod.phase not in ("Succeeded", "Failed") or is_rejected:
            yield pod


def missing_demands(snapshot: Snapshot) -> Iterator[Missing]:
    """Name the pods, resources of containers, and NUMA nodes of GPUs that are not known."""
    if snapshot.pods is None:
        yield from missing_pods(snapshot)
        return
    wanted: set[str] = set()
    for pod in wanting(snapshot):
        for container in pod.containers:
            asked = _asked(container)
            if asked is None:
                yield Missing(f"resources of container {container.name} in {pod_name(pod)}")
                continue
            wanted |= {name for name, count in asked.items() if count > 0 and is_gpu_resource(name)}
    for name in sorted(wanted):
        if places(snapshot, name) is None:
            yield Missing(f"NUMA nodes of {name}")


def demands(pod: Pod, settings: KubeletSettings) -> tuple[Demand, ...]:
    """Return the demands of *pod* that are placed at once, in its containers' order, if known."""
    # The CPU and Memory Managers pass over pods with resources of their own
    # (1.36 pkg/kubelet/cm/cpumanager/policy_static.go, memorymanager/policy_static.go).
    is_pinned = not asks_as_a_pod(pod) and class_of(pod) == QosClass.GUARANTEED

    def amounts(container: Container) -> Mapping[str, int]:
        asked = _asked(container) or {}
        counted = {
            name: n
            for name, n in asked.items()
            if n > 0 and (is_gpu_resource(name) or is_rdma(name))
        }
        if is_pinned:
            counted |= {
                name: size
                for name, size in asked.items()
                if size > 0 and (name == MEMORY or name.startswith(HUGE_PAGES))
            }
            cpus, rest = divmod(asked.get(CPU, 0), MILLICORES)
            if not rest:
                counted[CPU] = cpus
        return counted

    if settings.topology_manager_scope == "pod":
        return (Demand(subject=pod_name(pod), amounts=at_once(pod, amounts)),)
    return tuple(
        Demand(subject=container_name(pod, container), amounts=amounts(container))
        for container in pod.containers
    )


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
    # Each GPU is assumed to be one device, without asking the kubelet.
    status = snapshot.node_status
    count = None if status is None or status.capacity is None else status.capacity.get(GPU)
    is_cut = any(gpu.is_divided for gpu in snapshot.gpus)
    if resource != GPU or is_cut or count not in (None, len(snapshot.gpus)):
        return None
    places = tuple((gpu.numa_node,) for gpu in snapshot.gpus if gpu.numa_node is not None)
    return places if len(places) == len(snapshot.gpus) else None


def width(spots: Places, amount: int) -> int | None:
    """Return how many NUMA nodes *amount* devices need at least; ``None`` if no set has them."""
    return _near(spots, amount).narrowest


def preferred(spots: Places, amount: int) -> Family:
    """Return the sets of NUMA nodes that the kubelet prefers for *amount* devices.

    These are the smallest sets with enough devices on an empty node, if any.
    """
    near = _near(spots, amount).nonempty
    return near.of_size(near.narrowest or 0)


@lru_cache(maxsize=64)  # many pods ask for as many
def _near(spots: Places, amount: int) -> Family:
    """Return the sets of NUMA nodes that have *amount* devices; none where they are too many."""
    counts = Counter(map(mask_of, spots))
    try:
        return near_any(counts, amount, reduce(or_, counts, 0))
    except TooManyError:
        return NO_SET


def most_on_one_node(spots: Places) -> int:
    """Return how many devices one NUMA node has at most."""
    return max(Counter(node for spot in spots for node in set(spot)).values(), default=0)


# How many NUMA nodes each resource of a pod needs, which must agree under policy restricted.
#
# The Topology Manager prefers for each resource the fewest NUMA nodes that could hold the request
# on an empty machine, and ``restricted`` admits only what all resources prefer together, so GPUs
# that need two nodes beside CPUs that need one are refused for ever
# (1.36 pkg/kubelet/cm/topologymanager/policy.go, mergePermutation).


def uneven(snapshot: Snapshot, settings: KubeletSettings) -> Iterator[Finding]:
    """Yield each demand whose resources need different numbers of NUMA nodes."""
    for pod in wanting(snapshot):
        for demand in demands(pod, settings):
            widths = _widths(snapshot, settings, demand)
            if len(set(widths.values())) > 1:
                yield Finding(
                    subject=demand.subject,
                    observed="; ".join(
                        f"{amount} on {nodes} NUMA node{'s' if nodes > 1 else ''}"
                        for amount, nodes in widths.items()
                    ),
                    expected=f"as many NUMA nodes for each, or another "
                    f"{place(settings, 'topologyManagerPolicy')}",
                )


def missing_widths(snapshot: Snapshot, settings: KubeletSettings) -> Iterator[Missing]:
    """Name the missing Memory Manager state if a pod with GPUs gets reserved memory."""
    if settings.memory_manager_policy != "Static" or _allocatable_memory(snapshot):
        return
    for pod in wanting(snapshot):
        for demand in demands(pod, settings):
            if demand.gpus and MEMORY in demand.amounts:
                yield Missing("memory_manager_state")
                return


def _widths(snapshot: Snapshot, settings: KubeletSettings, demand: Demand) -> Mapping[str, int]:
    """Return the NUMA nodes that each resource needs, by the text of its amount; GPUs first."""
    widths = {
        f"{count} {name}": width(places(snapshot, name) or (), count)
        for name, count in demand.gpus.items()
    }
    if all(nodes is None for nodes in widths.values()):
        return {}
    # With align-by-socket all nodes of a socket are preferred too.
    by_socket = is_on(settings.cpu_manager_options, "align-by-socket")
    cpus = demand.amounts.get(CPU, 0)
    if settings.cpu_manager_policy == "static" and not by_socket and cpus:
        sizes = [len(node.cpus) for node in snapshot.numa_nodes or ()]
        widths[f"{cpus} CPUs"] = _fewest(sizes, cpus)
    # Memory and huge pages are placed together, by all their amounts at once.
    has_huge_pages = any(name.startswith(HUGE_PAGES) for name in demand.amounts)
    if settings.memory_manager_policy == "Static" and not has_huge_pages:
        size, memory = demand.amounts.get(MEMORY, 0), _allocatable_memory(snapshot)
        if size and memory:
            widths[f"{size_text(size)} of memory"] = _fewest(memory, size)
    return {amount: nodes for amount, nodes in widths.items() if nodes is not None}


def _allocatable_memory(snapshot: Snapshot) -> tuple[int, ...]:
    """Return each NUMA node's bytes for pods; empty if unknown."""
    state = snapshot.kubelet_state.memory if snapshot.kubelet_state else None
    blocks = state.blocks if state else ()
    return tuple(block.allocatable for block in blocks if block.kind == MEMORY)


def _fewest(held: Iterable[int], amount: int) -> int | None:
    """Return how many of the largest of *held* make up *amount*; ``None`` if not even all do."""
    total = 0
    for count, size in enumerate(sorted(held, reverse=True), start=1):
        total += size
        if total >= amount:
            return count
    return None
