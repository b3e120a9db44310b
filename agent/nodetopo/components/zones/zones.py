"""The NUMA nodes of a machine as zones: capacity, allocatable and available resources."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from msgspec import Struct

from nodetopo.model.dra import ClaimedDevice
from nodetopo.model.node import NodeOffer, PodHolding, unshared
from nodetopo.model.numa import CpuSet, NumaNode
from nodetopo.model.pod import AssignedMemory
from nodetopo.topology.published import uuids_of

CPU = "cpu"


MEMORY = "memory"


MAX_ID = 63
"""The highest NUMA node of a zone. The kubelet's masks have 64 bits (kubernetes 1.36
pkg/kubelet/cm/topologymanager/bitmask/bitmask.go), and the number 64 itself is beyond a table in
which scheduler-plugins v0.32.7 looks it up (pkg/noderesourcetopology/pluginhelpers.go,
createNUMANodeList): its scheduler ends."""


class ZoneResource(Struct, frozen=True, kw_only=True):
    """Amounts of one resource in one zone, in whole CPUs, bytes or devices."""

    name: str
    capacity: int  # of the hardware; for devices, those that the kubelet counts as healthy
    allocatable: int  # for pods
    available: int  # the part of it that no pod has


class Zone(Struct, frozen=True, kw_only=True):
    """One NUMA node."""

    id: int
    resources: tuple[ZoneResource, ...]  # by name; others are not known to be bound to this node
    # ACPI SLIT distances to other zones and itself, by their ids; empty where unknown.
    costs: Mapping[int, int]


def is_shown(numa_node: int) -> bool:
    """Return whether the kubelet and schedulers can number the node, so that it has a zone."""
    return 0 <= numa_node <= MAX_ID


def zone_name(numa_node: int) -> str:
    """Return how schedulers name the zone: they read the number behind the dash."""
    return f"node-{numa_node}"


def zones(
    numa_nodes: Sequence[NumaNode],
    offer: NodeOffer,
    pods: Iterable[PodHolding],
    uuids: Callable[[ClaimedDevice], Collection[str]] = uuids_of,
) -> tuple[Zone, ...]:
    """Return the zones, ascending, of a machine with the resources *offer* and *pods*.

    A NUMA node with neither CPUs nor allocatable resources is not a zone: a GB200 tray has 32 of
    them, and a scheduler that tries every combination of zones would not finish.

    A GPU held by a ResourceClaim is not free for device plugins either: *uuids* returns the UUIDs
    of a claimed device, by default from its CDI names.

    A device near several nodes counts in each, also in the available amounts: the kubelet aligns
    with any of them (kubernetes 1.36 pkg/kubelet/cm/devicemanager/topology_hints.go).
    """
    held = tuple(pods)
    given = {(device.resource, device.id) for pod in held for device in pod.devices}
    claimed = {uuid for pod in held for device in pod.claimed for uuid in uuids(device)}
    taken = frozenset(cpu for pod in held for cpu in pod.cpus)

    # Allocatable and available amounts by NUMA node and resource.
    amounts: dict[int, dict[str, tuple[int, int]]] = {}
    for device in offer.devices:
        for node in device.numa_nodes:
            here = amounts.setdefault(node, {})
            total, free = here.get(device.resource, (0, 0))
            is_claimed = unshared(device.id) in claimed
            is_free = (device.resource, device.id) not in given and not is_claimed
            here[device.resource] = total + 1, free + is_free
    for (node, kind), sizes in _memory(offer.memory, held).items():
        amounts.setdefault(node, {})[kind] = sizes

    by_id = {node.id: node for node in numa_nodes}
    with_cpus = {node.id for node in numa_nodes if len(node.cpus)}
    shown = sorted(filter(is_shown, with_cpus | amounts.keys()))
    online = sorted(by_id)
    result = []
    for number in shown:
        numa_node = by_id.get(number, NumaNode(id=number, cpus=CpuSet()))
        resources = [
            ZoneResource(
                name=name,
                capacity=max(_capacity(name, numa_node), total),
                allocatable=total,
                available=free,
            )
            for name, (total, free) in amounts.get(number, {}).items()
        ]
        if len(offer.cpus) and len(numa_node.cpus):
            here_cpus = numa_node.cpus & offer.cpus
            resources.append(
                ZoneResource(
                    name=CPU,
                    capacity=len(numa_node.cpus),
                    allocatable=len(here_cpus),
                    available=len(here_cpus.cpus - taken),
                )
            )
        # The kernel prints distances to the nodes that are online, by ascending number, which may
        # have holes: Documentation/ABI/stable/sysfs-devices-node.
        distances = numa_node.distances or ()
        costs = dict(zip(online, distances, strict=False))
        result.append(
            Zone(
                id=number,
                resources=tuple(sorted(resources, key=lambda resource: resource.name)),
                costs={node: costs[node] for node in costs if node in shown}
                if len(distances) == len(online)
                else {},
            )
        )
    return tuple(result)


def _memory(
    offered: Iterable[AssignedMemory], pods: Iterable[PodHolding]
) -> Mapping[tuple[int, str], tuple[int, int]]:
    """Return allocatable and available bytes by NUMA node and kind.

    Pods take from their nodes as the Memory Manager does: the lowest node empties first. The nodes
    of pods that span several are shared only with pods of the same nodes, so that the order of the
    pods does not matter (kubernetes 1.36 pkg/kubelet/cm/memorymanager/policy_static.go,
    updateMachineState and the check of cross-NUMA groups).
    """
    sizes: dict[tuple[int, str], int] = {}
    for piece in offered:
        for node in piece.numa_nodes:
            sizes[node, piece.kind] = sizes.get((node, piece.kind), 0) + piece.size_bytes
    left = dict(sizes)
    for piece in (piece for pod in pods for piece in pod.memory):
        wanted = piece.size_bytes
        for node in piece.numa_nodes:
            taken = min(wanted, left.get((node, piece.kind), 0))
            if taken:
                left[node, piece.kind] -= taken
                wanted -= taken
    return {key: (size, left[key]) for key, size in sizes.items()}


def _capacity(name: str, node: NumaNode) -> int:
    """Return the bytes of memory or huge pages *name* that *node* has; 0 for anything else."""
    if name == MEMORY:
        return (node.memory_mib or 0) << 20
    return sum(
        pages.total * pages.size_kib << 10
        for pages in node.hugepages
        if hugepages_name(pages.size_kib) == name
    )


def hugepages_name(size_kib: int) -> str:
    """Return the resource for huge pages of *size_kib*: ``hugepages-2Mi``, ``hugepages-1Gi``.

    Kubernetes names them by the canonical quantity (k8s.io/api core/v1, ResourceHugePagesPrefix).
    """
    for suffix, factor in (("Gi", 1 << 20), ("Mi", 1 << 10)):
        if size_kib % factor == 0:
            return f"hugepages-{size_kib // factor}{suffix}"
    return f"hugepages-{size_kib}Ki"


# What the kubelet offers and has given, without the gap of a restart.
#
# For seconds after its start its plugins have to register again, and it lists its pods as it learns
# of them from the API server: a kubelet 1.36.3 answered for half a second that it offers everything
# and has given nothing. A scheduler that read this would place pods onto GPUs that are taken.

ABSENCE_S = 60.0
"""Seconds after which a missing resource counts as gone. Plugins register again within seconds, and
pods are listed as soon as the API server answers; the kubelet itself counts the devices of a plugin
that went away for five minutes more (kubernetes 1.36 pkg/kubelet/cm/devicemanager/types.go,
endpointStopGracePeriod)."""


_Name = tuple[str, str]
"""Namespace and name of a pod."""


class SteadyOffer:
    """Remembers a node's last offer."""

    def __init__(self) -> None:
        self._last: NodeOffer | None = None
        self._missing_since: dict[str, float] = {}

    def take(self, offer: NodeOffer, now: float) -> NodeOffer:
        """Return *offer*, made at *now* (seconds), with the resources it lacks as they were before.

        A resource that only shrinks, as by an unhealthy GPU, counts at once.
        """
        lost = frozenset[str]() if self._last is None else self._last.resources - offer.resources
        self._missing_since = {name: self._missing_since.get(name, now) for name in lost}
        bridged = {name for name, since in self._missing_since.items() if now - since < ABSENCE_S}
        if self._last is not None:
            before = self._last
            devices = [device for device in before.devices if device.resource in bridged]
            offer = NodeOffer(
                devices=(*offer.devices, *devices),
                cpus=before.cpus if CPU in bridged else offer.cpus,
                memory=(
                    *offer.memory,
                    *(block for block in before.memory if block.kind in bridged),
                ),
            )
        self._last = offer
        return offer


class SteadyPods:
    """Remembers the pods of a node across a restart of its kubelet."""

    def __init__(self) -> None:
        self._start: object = None
        self._last: dict[_Name, PodHolding] = {}
        self._awaited: dict[_Name, PodHolding] = {}
        self._until = 0.0

    def take(self, held: Sequence[PodHolding], start: object, now: float) -> tuple[PodHolding, ...]:
        """Return *held* and the pods that the kubelet, started as *start*, has not listed yet.

        Those are the pods from before its start, until *now* (seconds) is long after it. A pod
        that was listed since counts only while it is listed.
        """
        if start != self._start:
            self._start, self._until = start, now + ABSENCE_S
            self._awaited = self._last
        listed = {_name(pod): pod for pod in held}
        waits = now < self._until
        self._awaited = {
            name: pod for name, pod in self._awaited.items() if waits and name not in listed
        }
        self._last = self._awaited | listed
        return tuple(sorted((*held, *self._awaited.values()), key=_name))


def _name(pod: PodHolding) -> _Name:
    return pod.namespace, pod.name
