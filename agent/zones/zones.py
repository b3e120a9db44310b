"""The NUMA nodes of a machine as zones: what each has, lets pods have, and has left."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from agent.model.node import NodeOffer, PlacedDevice, PodHolding
from agent.model.numa import CpuSet, NumaNode
from agent.model.pod import AssignedMemory

CPU = "cpu"


MEMORY = "memory"


MAX_ID = 63
"""The highest NUMA node that is told of. The kubelet's masks have 64 bits (kubernetes 1.36
pkg/kubelet/cm/topologymanager/bitmask/bitmask.go), and the number 64 itself is beyond a table in
which scheduler-plugins v0.32.7 looks it up (pkg/noderesourcetopology/pluginhelpers.go,
createNUMANodeList): its scheduler ends."""


_MIB = 1 << 20


_KIB = 1 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneResource:
    """Amounts of one resource in one zone, in whole CPUs, bytes or devices.

    Attributes:
        capacity: all that the hardware has; of devices, what the kubelet counts as healthy.
        allocatable: what pods may be given.
        available: what of that no pod has.
    """

    name: str
    capacity: int
    allocatable: int
    available: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Zone:
    """One NUMA node.

    Attributes:
        resources: by name; one that is not among them is not known to be bound to this node.
        costs: ACPI SLIT distances to other zones and itself, by their ids; empty where unknown.
    """

    id: int
    resources: tuple[ZoneResource, ...]
    costs: Mapping[int, int]


_Amounts = Mapping[int, tuple[ZoneResource, ...]]
"""Resources by NUMA node."""


def is_shown(numa_node: int) -> bool:
    """Tell whether the kubelet and schedulers can number the node, so that there is a zone."""
    return 0 <= numa_node <= MAX_ID


def zone_name(numa_node: int) -> str:
    """Return how schedulers name the zone: they read the number behind the dash."""
    return f"node-{numa_node}"


def zones(
    numa_nodes: Sequence[NumaNode], offer: NodeOffer, pods: Iterable[PodHolding]
) -> tuple[Zone, ...]:
    """Return the zones, ascending, of a machine that offers *offer* and gave *pods* of it.

    A NUMA node that has neither CPUs nor anything to give is no zone: a GB200 tray has 32 of
    them, and a scheduler that tries every combination of zones would not come to an end.

    A device that is near several nodes counts in each, in what is available too: the kubelet
    aligns with any of them (kubernetes 1.36 pkg/kubelet/cm/devicemanager/topology_hints.go).
    """
    held = tuple(pods)
    taken = frozenset(cpu for pod in held for cpu in pod.cpus)
    known = {node.id: node for node in numa_nodes}
    amounts = _joined(_devices(offer.devices, held), _memory(offer.memory, held))
    ids = {node.id for node in numa_nodes if len(node.cpus)} | amounts.keys()
    shown = tuple(sorted(filter(is_shown, ids)))
    return tuple(
        _zone(
            known.get(number, NumaNode(id=number, cpus=CpuSet())),
            (*_cpus(known.get(number), offer.cpus, taken), *amounts.get(number, ())),
            {node: cost for node, cost in _costs(number, numa_nodes).items() if node in shown},
        )
        for number in shown
    )


def _zone(node: NumaNode, amounts: Iterable[ZoneResource], costs: Mapping[int, int]) -> Zone:
    resources = sorted((_with_capacity(one, node) for one in amounts), key=lambda one: one.name)
    return Zone(id=node.id, resources=tuple(resources), costs=costs)


def _joined(*parts: _Amounts) -> _Amounts:
    nodes = frozenset[int]().union(*parts)
    return {node: tuple(one for part in parts for one in part.get(node, ())) for node in nodes}


def _cpus(node: NumaNode | None, offered: CpuSet, taken: frozenset[int]) -> Iterator[ZoneResource]:
    """Yield the CPUs of *node*, if it has any and the CPU Manager gives some away."""
    if node is None or not len(offered) or not len(node.cpus):
        return
    here = node.cpus & offered
    free = here.cpus - taken
    yield ZoneResource(
        name=CPU, capacity=len(node.cpus), allocatable=len(here), available=len(free)
    )


def _devices(offered: Iterable[PlacedDevice], pods: Iterable[PodHolding]) -> _Amounts:
    given = {(one.resource, one.id) for pod in pods for one in pod.devices}
    free: dict[tuple[int, str], list[bool]] = {}
    for one in offered:
        for node in one.numa_nodes:
            free.setdefault((node, one.resource), []).append((one.resource, one.id) not in given)
    return _by_node({key: (len(each), sum(each)) for key, each in free.items()})


def _memory(offered: Iterable[AssignedMemory], pods: Iterable[PodHolding]) -> _Amounts:
    sizes: dict[tuple[int, str], int] = {}
    for piece in offered:
        for node in piece.numa_nodes:
            sizes[node, piece.kind] = sizes.get((node, piece.kind), 0) + piece.size_bytes
    left = dict(sizes)
    for piece in (piece for pod in pods for piece in pod.memory):
        _take(left, piece)
    return _by_node({key: (size, left[key]) for key, size in sizes.items()})


def _by_node(found: Mapping[tuple[int, str], tuple[int, int]]) -> _Amounts:
    """Return allocatable and available amounts, by node and resource, as the nodes' resources."""
    amounts: dict[int, tuple[ZoneResource, ...]] = {}
    for (node, name), (allocatable, available) in found.items():
        one = ZoneResource(
            name=name, capacity=allocatable, allocatable=allocatable, available=available
        )
        amounts[node] = (*amounts.get(node, ()), one)
    return amounts


def _take(left: dict[tuple[int, str], int], piece: AssignedMemory) -> None:
    """Take *piece* from its nodes as the Memory Manager does: the lowest node empties first.

    The nodes of pods that span several are shared only with pods of the same nodes, so that the
    order of the pods does not matter (kubernetes 1.36 pkg/kubelet/cm/memorymanager/
    policy_static.go, updateMachineState and the check of cross-NUMA groups).
    """
    wanted = piece.size_bytes
    for node in piece.numa_nodes:
        taken = min(wanted, left.get((node, piece.kind), 0))
        if taken:
            left[node, piece.kind] -= taken
            wanted -= taken


def _with_capacity(found: ZoneResource, node: NumaNode) -> ZoneResource:
    """Return *found* with what the machine says that *node* has of it, if it says more."""
    size = (node.memory_mib or 0) * _MIB if found.name == MEMORY else _hugepages(found.name, node)
    return replace(found, capacity=max(size, found.capacity))


def _hugepages(name: str, node: NumaNode) -> int:
    return sum(
        pages.total * pages.size_kib * _KIB
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


def _costs(number: int, numa_nodes: Sequence[NumaNode]) -> Mapping[int, int]:
    # The kernel prints distances to the nodes that are online, by ascending number, which may
    # have holes: Documentation/ABI/stable/sysfs-devices-node.
    online = sorted(node.id for node in numa_nodes)
    told = next((node.distances for node in numa_nodes if node.id == number), None) or ()
    return dict(zip(online, told, strict=True)) if len(told) == len(online) else {}


# What the kubelet offers and gave, without the gap in which it was restarted.
#
# For those seconds its plugins have to come back, and it lists its pods bit by bit, beginning with
# none, as the API server tells it of them: a kubelet 1.36.3 answered for half a second that it
# offers everything and gave nothing. A scheduler that read so would place pods onto GPUs that are
# taken.

ABSENCE_S = 60.0
"""What is missing for so long is gone. Plugins register again within seconds, and pods are listed
as soon as the API server answers; the kubelet itself counts the devices of a plugin that went away
for five minutes more (kubernetes 1.36 pkg/kubelet/cm/devicemanager/types.go,
endpointStopGracePeriod)."""


_Name = tuple[str, str]
"""Namespace and name of a pod."""


class SteadyOffer:
    """Remembers what one node offered."""

    def __init__(self) -> None:
        self._last: NodeOffer | None = None
        self._missing_since: dict[str, float] = {}

    def take(self, offer: NodeOffer, now: float) -> NodeOffer:
        """Return *offer*, made at *now* (seconds), and as they were the resources it lacks.

        What only shrinks, such as by an unhealthy GPU, counts at once.
        """
        lost = frozenset[str]() if self._last is None else self._last.resources - offer.resources
        self._missing_since = {name: self._missing_since.get(name, now) for name in lost}
        bridged = {name for name, since in self._missing_since.items() if now - since < ABSENCE_S}
        self._last = offer if self._last is None else _steady_joined(offer, self._last, bridged)
        return self._last


class SteadyPods:
    """Remembers the pods of one node over a start of its kubelet."""

    def __init__(self) -> None:
        self._start: object = None
        self._last: dict[_Name, PodHolding] = {}
        self._awaited: dict[_Name, PodHolding] = {}
        self._until = 0.0

    def take(self, held: Sequence[PodHolding], start: object, now: float) -> tuple[PodHolding, ...]:
        """Return *held* and what the kubelet that started as *start* has not listed yet.

        That are the pods of before, until *now* (seconds) is long after that start; a pod that
        it listed once counts no longer than it is listed.
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


def _steady_joined(offer: NodeOffer, before: NodeOffer, names: Collection[str]) -> NodeOffer:
    """Return *offer* with the resources *names* as they were *before*."""
    return NodeOffer(
        devices=(*offer.devices, *(one for one in before.devices if one.resource in names)),
        cpus=before.cpus if CPU in names else offer.cpus,
        memory=(*offer.memory, *(one for one in before.memory if one.kind in names)),
    )
