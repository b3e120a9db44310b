"""One pod through a node's managers, container by container, as the kubelet admits it.

Order and semantics of kubernetes 1.36 pkg/kubelet/cm/topologymanager (scope*.go): devices, CPUs,
memory; then the sums of pkg/kubelet/lifecycle/predicate.go. What is refused leaves no trace.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from agent.admission import requests as asks
from agent.admission.cpu_manager import Cpus
from agent.admission.device_manager import Devices, Preference
from agent.admission.errors import Refusal
from agent.admission.hints import Hint, Hints
from agent.admission.memory_manager import Memory
from agent.admission.merge import Merger
from agent.admission.requests import is_memory
from agent.model.kubelet_state import HeldMemory
from agent.model.kubernetes import MILLICORES
from agent.model.numa import CpuSet
from agent.model.pod import Container, ContainerKind, Pod, at_once, started, summed

# One node as its Topology Manager knows it, changed by each pod that is admitted.


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What pods may ask for in sum, which the kubelet checks last.

    Attributes:
        allocatable: resource → amount, CPU in millicores.
        requested: the same, of all pods together.
    """

    allocatable: Mapping[str, int]
    requested: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """The managers of one kubelet.

    Attributes:
        merger: ``None`` under policy ``none``.
        scope: ``container`` or ``pod``.
        cpus, memory: ``None`` where the manager's policy is none.
        devices: by resource.
        room: ``None`` where it is not known.
    """

    merger: Merger | None
    scope: str
    cpus: Cpus | None
    memory: Memory | None
    devices: Mapping[str, Devices] = field(default_factory=dict)
    room: Room | None = None

    def copy(self) -> "Node":
        """Return a copy to admit one pod on, with nothing to reuse from the pod before."""
        copy = replace(
            self,
            cpus=self.cpus and self.cpus.copy(),
            memory=self.memory and self.memory.copy(),
            devices={name: one.copy() for name, one in self.devices.items()},
        )
        copy.forget_reusable()
        return copy

    def forget_reusable(self) -> None:
        """Begin a pod: nothing is left of init containers."""
        if self.cpus is not None:
            self.cpus.reusable = frozenset()
        if self.memory is not None:
            self.memory.reusable = {}
        for one in self.devices.values():
            one.reusable = frozenset()


# What the kubelet checks after alignment: that all requests together fit the node.
#
# Source: kubernetes 1.36 pkg/kubelet/lifecycle/predicate.go and
# pkg/scheduler/framework/plugins/noderesources/fit.go (fitsRequest). A resource with a slash in its
# name that the node does not have is passed over.

_FIRST = ("cpu", "memory")
"""What is checked first; the rest follows in no fixed order, by name here."""


def requested(pod: Pod) -> dict[str, int]:
    """Return what *pod* asks for at once; what it states as a whole replaces its containers'."""
    return {**at_once(pod, lambda one: one.requests or {}), **(pod.requests or {})}


def check_room(node: Node, pod: Pod) -> Node:
    """Return *node* with the requests of *pod* counted in.

    Raises:
        Refusal: they do not fit.
    """
    room = node.room
    if room is None:
        return node
    asked = requested(pod)
    others = sorted(name for name in asked if name not in _FIRST)
    for name in (*(one for one in _FIRST if one in asked), *others):
        rest = left(node, name)
        if rest is not None and asked[name] and asked[name] > rest:
            used = room.requested.get(name, 0)
            words = f"Node didn't have enough resource: {name}, requested: {asked[name]}"
            raise Refusal(f"OutOf{name}", f"{words}, used: {used}, capacity: {rest + used}")
    return replace(node, room=replace(room, requested=summed(room.requested, asked)))


def left(node: Node, name: str) -> int | None:
    """Return how much of a resource pods can still request; ``None`` where nothing checks it."""
    room = node.room
    if room is None:
        return None
    used = room.requested.get(name, 0)
    if name in room.allocatable:
        devices = node.devices.get(name)
        return max(room.allocatable[name], len(devices.taken) if devices else 0) - used
    return -used if name in _FIRST or is_memory(name) else None


_UNALIGNED = Hint(None, preferred=False)


@dataclass(slots=True, kw_only=True)
class Share:
    """What became of one container; a part that the kubelet did not come to is empty.

    Attributes:
        asked: what the hints are for, by resource, in the unit of requests. In scope ``pod`` it is
            what the whole pod asks for at once.
        hints: of all managers, by resource; in scope ``pod`` the pod's.
        merged: what they came to; ``None`` under policy ``none``.
    """

    container: Container
    exclusive_cpus: int
    asked: Mapping[str, int] = field(default_factory=dict)
    hints: Hints = field(default_factory=dict)
    merged: Hint | None = None
    cpus: CpuSet = field(default_factory=CpuSet)
    devices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    memory: tuple[HeldMemory, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A pod's way through the managers.

    Attributes:
        node: as it is afterwards.
        refusal: ``None`` for an admitted pod.
    """

    node: Node
    shares: tuple[Share, ...]
    refusal: Refusal | None = None


def pass_through(node: Node, pod: Pod, uid: str, prefer: Preference) -> Passage:
    """Admit *pod* on *node*, which stays as it is."""
    after = node.copy()
    shares = tuple(
        Share(
            container=one,
            exclusive_cpus=asks.whole_cpus(pod, one) if node.cpus is not None else 0,
        )
        for one in started(pod)
    )
    try:
        _admit(after, pod, uid, shares, prefer)
        after = check_room(after, pod)
    except Refusal as refusal:
        return Passage(node=node, shares=shares, refusal=refusal)
    return Passage(node=after, shares=shares)


def _admit(node: Node, pod: Pod, uid: str, shares: tuple[Share, ...], prefer: Preference) -> None:
    whole = node.scope == "pod"
    if whole and node.merger is not None:
        _merge(node, _of_pod(node, pod), shares)
    for share in shares:
        if not whole and node.merger is not None:
            _merge(node, _of_container(node, pod, share), (share,))
        _give_devices(node, uid, share, prefer)
        _give_cpus(node, uid, share)
        _give_memory(node, pod, uid, share)


def _merge(node: Node, asked: "_Asked", shares: tuple[Share, ...]) -> None:
    assert node.merger is not None
    told = asked.hints(node)
    merged, is_admitted = node.merger.merge(told)
    for share in shares:
        share.asked = {
            **asked.devices,
            "cpu": asked.cpus * MILLICORES,
            **asked.memory,
        }
        share.hints = {name: hints for one in told for name, hints in one.items()}
        share.merged = merged
    if not is_admitted:
        raise Refusal.topology()


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the managers are asked for at once."""

    devices: Mapping[str, int]
    cpus: int
    memory: Mapping[str, int]

    def hints(self, node: Node) -> tuple[Hints, ...]:
        """Return the hints of each manager, in the kubelet's order."""
        return (
            {name: node.devices[name].hints(amount) for name, amount in self.devices.items()},
            node.cpus.hints(self.cpus) if node.cpus is not None and self.cpus else {},
            node.memory.hints(self.memory) if node.memory is not None else {},
        )


def _of_container(node: Node, pod: Pod, share: Share) -> _Asked:
    is_memory = node.memory is not None and asks.is_pinned(pod)
    return _Asked(
        asks.devices(share.container, node.devices),
        share.exclusive_cpus,
        asks.pinned_memory(share.container) if is_memory else {},
    )


def _of_pod(node: Node, pod: Pod) -> _Asked:
    is_memory = node.memory is not None and asks.is_pinned(pod)
    return _Asked(
        asks.pod_devices(pod, node.devices),
        asks.pod_cpus(pod) if node.cpus is not None else 0,
        asks.pod_memory(pod) if is_memory else {},
    )


def _give_devices(node: Node, uid: str, share: Share, prefer: Preference) -> None:
    mask = (share.merged or _UNALIGNED).mask
    given: dict[str, tuple[str, ...]] = {}
    for name, wanted in asks.devices(share.container, node.devices).items():
        one = node.devices[name]
        ids = one.give(uid, share.container.name, wanted, mask, prefer)
        is_init = share.container.kind is ContainerKind.INIT
        one.reusable = one.reusable | ids if is_init else one.reusable - ids
        given[name] = tuple(sorted(ids))
    share.devices = given


def _give_cpus(node: Node, uid: str, share: Share) -> None:
    cpus = node.cpus
    if cpus is None or not share.exclusive_cpus:
        return
    mask = (share.merged or _UNALIGNED).mask
    given = cpus.give(uid, share.container.name, share.exclusive_cpus, mask)
    is_init = share.container.kind is ContainerKind.INIT
    cpus.reusable = cpus.reusable | given if is_init else cpus.reusable - given
    share.cpus = CpuSet(given)


def _give_memory(node: Node, pod: Pod, uid: str, share: Share) -> None:
    if node.memory is None or not asks.is_pinned(pod):
        return
    share.memory = node.memory.give(
        uid,
        share.container.name,
        asks.pinned_memory(share.container),
        share.merged or _UNALIGNED,
        is_init=share.container.kind is ContainerKind.INIT,
    )
