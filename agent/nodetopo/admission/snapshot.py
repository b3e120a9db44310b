"""The managers of a node as its snapshot has them, before any pod is admitted."""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from nodetopo.admission.cpu_manager import CpuManager, cpu_manager_of
from nodetopo.admission.device_manager import Devices, devices_of
from nodetopo.admission.errors import Missing, Refusal
from nodetopo.admission.memory_manager import MemoryManager, memory_manager_of
from nodetopo.admission.merge import CLOSEST, MOST_NODES, NONE, POLICIES, SCOPES, TopologyManager
from nodetopo.admission.requests import amount_text, is_memory, unit_of
from nodetopo.admission.state import ActivePods, active_pods, choice, flag, number
from nodetopo.model.kubelet import KubeletSettings
from nodetopo.model.pod import Pod, at_once, summed
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.node_sets import MAX_NODE

_NODE_LIMIT = 8
"""``max-allowable-numa-nodes`` where it is not stated (1.36 topology_manager.go)."""

_FIRST = ("cpu", "memory")
"""Resources that are checked first; the others follow in no fixed order, here by name."""

_Part = TypeVar("_Part")


class Room(Struct, frozen=True, kw_only=True):
    """The requests that fit the node in sum, which the kubelet checks last.

    Source: kubernetes 1.36 pkg/kubelet/lifecycle/predicate.go and
    pkg/scheduler/framework/plugins/noderesources/fit.go (fitsRequest).
    """

    allocatable: Mapping[str, int]  # resource → amount, CPU in millicores
    requested: Mapping[str, int]  # of all pods together


class NodeManagers(Struct, frozen=True, kw_only=True):
    """The managers of one kubelet, changed by each pod that is admitted."""

    topology: TopologyManager | None  # None under policy `none`
    scope: str  # `container` or `pod`
    # cpus, memory: None under the manager's policy `none`
    cpus: CpuManager | None
    memory: MemoryManager | None
    devices: Mapping[str, Devices] = field(default_factory=dict)  # by resource
    room: Room | None = None

    def copy(self) -> "NodeManagers":
        """Return a copy to admit one pod on, which has no init containers to reuse from yet."""
        return replace(
            self,
            cpus=self.cpus and self.cpus.copy(),
            memory=self.memory and self.memory.copy(),
            devices={name: devices.copy() for name, devices in self.devices.items()},
        )

    def left(self, resource: str) -> int | None:
        """Return how much of *resource* pods can still request; ``None`` where it is not checked.

        A resource with a slash in its name that the node does not have is not checked.
        """
        if self.room is None:
            return None
        used = self.room.requested.get(resource, 0)
        if resource in self.room.allocatable:
            devices = self.devices.get(resource)
            taken = len(devices.taken) if devices else 0
            return max(self.room.allocatable[resource], taken) - used
        return -used if resource in _FIRST or is_memory(resource) else None

    def with_requests(self, pod: Pod) -> "NodeManagers":
        """Return the managers with the requests of *pod* counted in."""
        if self.room is None:
            return self
        requests = _requests(pod)
        others = sorted(name for name in requests if name not in _FIRST)
        for name in (*(it for it in _FIRST if it in requests), *others):
            rest = self.left(name)
            if rest is not None and requests[name] and requests[name] > rest:
                used = self.room.requested.get(name, 0)
                problem = f"Node didn't have enough resource: {name}, requested: {requests[name]}"
                message = f"{problem}, used: {used}, capacity: {rest + used}"
                wanted, capacity = amount_text(name, requests[name]), amount_text(name, rest + used)
                words = (
                    f"the pod requests {wanted}{unit_of(name, requests[name])}, and pods that run "
                    f"here request {amount_text(name, used)} of {capacity}"
                )
                raise Refusal(f"OutOf{name}", message, words)
        room = replace(self.room, requested=summed(self.room.requested, requests))
        return replace(self, room=room)


def managers_of(snapshot: Snapshot, pods: Iterable[Pod]) -> NodeManagers:
    """Return the managers of the node before any of *pods* is admitted."""
    pods = tuple(pods)
    settings = snapshot.kubelet
    if settings is None:
        raise Missing("the kubelet's settings")
    active = active_pods(snapshot, pods)
    requested = (name for pod in pods for it in pod.containers for name in it.limits or {})
    device_resources = frozenset(name for name in requested if "/" in name)
    missing: list[str] = []

    def known(part: Callable[[], _Part]) -> _Part | None:
        try:
            return part()
        except Missing as error:
            missing.extend(error.args)
            return None

    topology = known(lambda: _topology_manager(snapshot, settings))
    scope = known(
        lambda: (
            SCOPES[0]
            if settings.topology_manager_policy == NONE
            else choice(settings.topology_manager_scope, "topologyManagerScope", SCOPES)
        )
    )
    cpus = known(lambda: cpu_manager_of(snapshot, settings, active))
    memory = known(lambda: memory_manager_of(snapshot, settings, active))
    devices = known(lambda: devices_of(snapshot, active, device_resources))
    if missing or scope is None or devices is None:
        raise Missing(*missing)
    return NodeManagers(
        topology=topology,
        scope=scope,
        cpus=cpus,
        memory=memory,
        devices=devices,
        room=_room(snapshot, active),
    )


def _topology_manager(snapshot: Snapshot, settings: KubeletSettings) -> TopologyManager | None:
    policy = choice(settings.topology_manager_policy, "topologyManagerPolicy", POLICIES)
    nodes = tuple(sorted(snapshot.numa_nodes or (), key=lambda node: node.id))
    if not nodes:
        raise Missing("NUMA nodes")
    if policy == NONE:
        return None
    options, ids = settings.topology_manager_options, [node.id for node in nodes]
    limit = number(options, MOST_NODES, _NODE_LIMIT)
    if len(ids) > limit:
        problem = f"unsupported on machines with more than {limit} NUMA Nodes"
        remedy = f"{MOST_NODES} in topologyManagerPolicyOptions allows them"
        raise Missing(f"a kubelet that starts: {problem}, and this one has {len(ids)}; {remedy}")
    if max(ids) > MAX_NODE:
        raise Missing(f"a kubelet that starts: NUMA node {max(ids)} is beyond {MAX_NODE}")
    closest = flag(options, CLOSEST)
    if closest and any(node.distances is None for node in nodes):
        raise Missing("distances of NUMA nodes, which prefer-closest-numa-nodes goes by")
    if closest and any(len(node.distances or ()) <= max(ids) for node in nodes):
        problem = "the kubelet ends with a panic at prefer-closest-numa-nodes and NUMA nodes"
        raise Missing(f"{problem} {', '.join(map(str, ids))}, whose numbers have gaps")
    return TopologyManager(policy=policy, nodes=nodes, prefer_closest=closest)


def _room(snapshot: Snapshot, active: ActivePods) -> Room | None:
    status = snapshot.node_status
    if status is None or status.allocatable is None or active.pods is None:
        return None
    if any(it.requests is None for pod in active.pods for it in pod.containers):
        return None
    total: Mapping[str, int] = {}
    for pod in active.pods:
        total = summed(total, _requests(pod))
    return Room(allocatable=status.allocatable, requested=total)


def _requests(pod: Pod) -> dict[str, int]:
    """Return what *pod* requests at once; its pod-level resources replace its containers'."""
    return {**at_once(pod, lambda container: container.requests or {}), **(pod.requests or {})}
