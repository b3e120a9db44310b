"""The Device Manager: which NUMA nodes it proposes for devices, and which devices it gives.

Semantics of kubernetes 1.36 pkg/kubelet/cm/devicemanager (topology_hints.go, manager.go). It
judges a request by all devices that are installed, those that are taken and broken included.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_

from agent.admission.errors import Missing, Refusal, check_nodes
from agent.admission.hints import Hint, mask_of, masks, narrowness, nodes_of
from agent.admission.state import Holders, held_devices
from agent.model.kubelet_state import DeviceState
from agent.model.snapshot import Snapshot

Preference = Callable[[str, frozenset[str], frozenset[str], int], frozenset[str]]
"""What a device plugin answers to GetPreferredAllocation: of a resource, the devices available,
those that must be among the chosen, and how many."""


def lowest_first(
    _resource: str, available: frozenset[str], must_include: frozenset[str], size: int
) -> frozenset[str]:
    """Prefer the devices whose ids come first; for plugins whose preference is not known."""
    others = sorted(available - must_include)
    return must_include | frozenset(others[: max(size - len(must_include), 0)])


@dataclass(slots=True, kw_only=True)
class Devices:
    """The devices of one resource, and who has them.

    Attributes:
        machine: the set of all NUMA nodes.
        nodes: id → the set of its NUMA nodes, 0 where its plugin told none.
        healthy: ids.
        held: pod uid → container → ids.
        reusable: ids of init containers of the pod that is being admitted.
    """

    resource: str
    machine: int
    nodes: Mapping[str, int]
    healthy: frozenset[str]
    held: dict[str, dict[str, frozenset[str]]] = field(default_factory=dict)
    reusable: frozenset[str] = frozenset()

    def copy(self) -> "Devices":
        """Return a copy that can be changed on its own."""
        held = {uid: dict(containers) for uid, containers in self.held.items()}
        return replace(self, held=held)

    @property
    def available(self) -> frozenset[str]:
        """What can be given out now."""
        return self.healthy - self.taken

    @property
    def taken(self) -> frozenset[str]:
        """What pods have."""
        held = (ids for containers in self.held.values() for ids in containers.values())
        return frozenset().union(*held)

    @property
    def is_elsewhere(self) -> bool:
        """Whether all devices are near NUMA nodes that the machine does not have."""
        return all(nodes and not nodes & self.machine for nodes in self.nodes.values())

    def hints(self, wanted: int) -> tuple[Hint, ...] | None:
        """Return the NUMA nodes that *wanted* devices can come from."""
        if not any(self.nodes.values()):
            return None
        if len(self.available | self.reusable) < wanted:
            return ()
        reusable = [self.nodes.get(id_, 0) for id_ in self.reusable]
        reusable = [nodes for nodes in reusable if nodes]
        installed, free = self.installed, self.free
        narrowest = min(
            (mask.bit_count() for mask, count in installed.items() if count >= wanted),
            default=self._near.bit_count(),
        )
        found = (
            mask
            for mask, count in free.items()
            if len(reusable) + count >= wanted and all(nodes & mask for nodes in reusable)
        )
        ordered = sorted(found, key=narrowness)
        return tuple(Hint(mask, mask.bit_count() == narrowest) for mask in ordered)

    @property
    def installed(self) -> dict[int, int]:
        """How many devices are near every set of NUMA nodes."""
        return self._touching(self.nodes)

    @property
    def free(self) -> dict[int, int]:
        """How many of them can be given out now."""
        return self._touching(self.available)

    def give(
        self, uid: str, container: str, wanted: int, mask: int | None, prefer: Preference
    ) -> frozenset[str]:
        """Give *wanted* devices to a container, from the NUMA nodes of *mask* first.

        Raises:
            Refusal: they cannot be had.
        """
        if not self.healthy:
            words = "no healthy devices present; cannot allocate unhealthy devices"
            raise Refusal.unexpected(f"{words} {self.resource}")
        given = frozenset(sorted(self.reusable)[:wanted])
        if len(given) < wanted:
            given |= self._fresh(given, wanted, mask, prefer)
        if wanted:
            self.held.setdefault(uid, {})[container] = given
        return given

    @property
    def _near(self) -> int:
        """The NUMA nodes that have any of the devices, all where none has."""
        return reduce(or_, self.nodes.values(), 0) & self.machine or self.machine

    def _touching(self, ids: Iterable[str]) -> dict[int, int]:
        counts = Counter(self.nodes[id_] for id_ in ids)
        return {
            mask: sum(count for nodes, count in counts.items() if nodes & mask)
            for mask in masks(nodes_of(self._near))
        }

    def _fresh(
        self, reused: frozenset[str], wanted: int, mask: int | None, prefer: Preference
    ) -> frozenset[str]:
        """Return the devices to give beside those of init containers."""
        available, needed = self.available, wanted - len(reused)
        if len(available) < needed:
            words = f"requested number of devices unavailable for {self.resource}"
            counts = f"Requested: {needed}, Available: {len(available)}"
            raise Refusal.unexpected(f"{words}. {counts}")
        aligned = frozenset(id_ for id_ in available if mask and self.nodes[id_] & mask)
        if needed < len(aligned):
            chosen = prefer(self.resource, aligned | reused, reused, wanted) & aligned
            return _filled(chosen, needed, aligned)
        taken = reused | aligned
        if len(taken) == wanted:
            return aligned
        rest = available - aligned
        chosen = prefer(self.resource, available | taken, taken, wanted) & rest
        near = frozenset(id_ for id_ in rest if self.nodes[id_])
        return aligned | _filled(chosen, needed - len(aligned), near, rest)


def _filled(chosen: frozenset[str], size: int, *others: frozenset[str]) -> frozenset[str]:
    """Return *size* ids: of *chosen* if it has more, else all of it and the first of *others*."""
    ids = list(
        dict.fromkeys([*sorted(chosen), *(id_ for other in others for id_ in sorted(other))])
    )
    return frozenset(ids[:size])


# The Device Manager of a node, put together from its snapshot.

_NO_NODE = "-1"
"""The checkpoint's key for devices whose plugin told no NUMA node."""


_GPU = "nvidia.com/gpu"
"""The resource of whole GPUs, of which NVML tells too."""


def devices_of(snapshot: Snapshot, found: Holders, names: Iterable[str]) -> dict[str, Devices]:
    """Return the devices of those resources of *names* that a device plugin offers.

    PodResources tells of healthy devices and their NUMA nodes, the checkpoint who has which.
    A resource that neither knows is none of a device plugin, unless the node has it all the same:
    all its devices may be broken.

    Raises:
        Missing: something needed is not known.
    """
    wanted = sorted(names)
    if not wanted:
        return {}
    if snapshot.offer is None:
        raise Missing("the devices and their NUMA nodes, by PodResources")
    machine = mask_of(node.id for node in snapshot.numa_nodes or ())
    state = snapshot.kubelet_state.devices if snapshot.kubelet_state is not None else None
    resources = {name: _resource(snapshot, state, found, name, machine) for name in wanted}
    return {name: one for name, one in resources.items() if one is not None}


def _resource(
    snapshot: Snapshot, state: DeviceState | None, found: Holders, name: str, machine: int
) -> Devices | None:
    assert snapshot.offer is not None
    nodes = {it.id: mask_of(it.numa_nodes) for it in snapshot.offer.devices if it.resource == name}
    healthy = frozenset(nodes)
    held = _held(state, found, name)
    is_known = bool(nodes or held)
    nodes = {**_of_checkpoint(state, name), **nodes}
    broken = _broken(snapshot, name, frozenset(nodes))
    if not is_known and not broken and not _is_registered(snapshot, state, name):
        return None
    nodes.update(broken)
    check_nodes(reduce(or_, nodes.values(), 0).bit_count())
    return Devices(resource=name, machine=machine, nodes=nodes, healthy=healthy, held=held)


def _is_registered(snapshot: Snapshot, state: DeviceState | None, name: str) -> bool:
    """Return whether a plugin offers a resource of which no device is known."""
    if state is not None:
        return name in (state.registered or {})
    status = snapshot.node_status
    if status is None or status.capacity is None or status.capacity.get(name):
        raise Missing(f"whether a device plugin offers {name}, by the kubelet's checkpoint")
    return False


def _held(
    state: DeviceState | None, found: Holders, name: str
) -> dict[str, dict[str, frozenset[str]]]:
    if state is None:
        known = held_devices(found, name)
        if known is None:
            raise Missing("the devices that pods have, by the kubelet's checkpoint or PodResources")
        return known
    held: dict[str, dict[str, frozenset[str]]] = {}
    for one in state.held:
        if one.resource == name and found.counts(one.pod_uid):
            ids = frozenset(id_ for list_ in one.ids.values() for id_ in list_)
            held.setdefault(one.pod_uid, {})[one.container] = ids
    return held


def _of_checkpoint(state: DeviceState | None, name: str) -> dict[str, int]:
    """Return the NUMA nodes of devices that were given out, broken ones too."""
    found: dict[str, set[int]] = {}
    for one in state.held if state is not None else ():
        for node, ids in one.ids.items() if one.resource == name else ():
            for id_ in ids:
                nodes = found.setdefault(id_, set())
                if node != _NO_NODE and node.isdecimal():
                    nodes.add(int(node))
    return {id_: mask_of(nodes) for id_, nodes in found.items()}


def _broken(snapshot: Snapshot, name: str, known: frozenset[str]) -> Mapping[str, int]:
    """Return the GPUs that are capacity of the node and that nobody else tells of."""
    status = snapshot.node_status
    capacity = (status.capacity or {}).get(name, 0) if status is not None else 0
    gpus = {gpu.uuid: gpu.numa_node for gpu in snapshot.gpus if gpu.uuid is not None}
    lost = {uuid: node for uuid, node in gpus.items() if uuid not in known}
    is_of_gpus = known <= set(gpus) if known else name == _GPU
    if not is_of_gpus or capacity - len(known) != len(lost):
        return {}
    return {uuid: mask_of(() if node is None else (node,)) for uuid, node in lost.items()}
