"""The Device Manager: which NUMA nodes it proposes for devices, and which devices it gives.

Semantics of kubernetes 1.36 pkg/kubelet/cm/devicemanager (topology_hints.go, manager.go). The
width of a request follows from all installed devices, those that are taken or broken included.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from operator import or_

from msgspec import Struct, field
from msgspec.structs import replace

from nodetopo.admission.errors import MOST_WALKED, Missing, Refusal, check_walk
from nodetopo.admission.hints import Choices
from nodetopo.admission.state import ActivePods
from nodetopo.model.digits import is_digits
from nodetopo.model.kubelet_state import DeviceState
from nodetopo.model.kubernetes import GPU_RESOURCE, Release, release
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.node_sets import NO_SET, mask_of, near_any

Preference = Callable[[str, frozenset[str], frozenset[str], int], frozenset[str]]
"""Returns a device plugin's answer to GetPreferredAllocation, given the resource, its available
devices, the required ones, and the number."""

OWN_NODES_SINCE: Release = (1, 36)
"""From which on hints are of NUMA nodes that have devices of the resource, and no longer of all
nodes of the machine (kubernetes pull request 138244; 1.36.0 has it, 1.35.6 and 1.34.9 do not)."""

_NO_NODE = "-1"
"""The checkpoint's key for devices whose plugin named no NUMA node."""


def lowest_first(
    _resource: str, available: frozenset[str], must_include: frozenset[str], size: int
) -> frozenset[str]:
    """Prefer the devices whose ids come first; for plugins whose preference is not known."""
    others = sorted(available - must_include)
    return must_include | frozenset(others[: max(size - len(must_include), 0)])


class Devices(Struct, kw_only=True):
    """The devices of one resource, and who has them."""

    resource: str
    machine: int  # all NUMA nodes, as a set
    nodes: Mapping[str, int]  # id → set of NUMA nodes, 0 where its plugin named none
    healthy: frozenset[str]  # ids
    # Pod uid → container → ids.
    held: dict[str, dict[str, frozenset[str]]] = field(default_factory=dict)
    reusable: frozenset[str] = frozenset()  # ids of init containers of the pod being admitted
    kubelet: Release | None = None  # if unknown, 1.36 is assumed on machines of few NUMA nodes

    def copy(self) -> "Devices":
        """Return an independent copy to admit the next pod on."""
        held = {uid: dict(containers) for uid, containers in self.held.items()}
        return replace(self, held=held, reusable=frozenset())

    @property
    def available(self) -> frozenset[str]:
        return self.healthy - self.taken

    @property
    def taken(self) -> frozenset[str]:
        held = (ids for containers in self.held.values() for ids in containers.values())
        return frozenset().union(*held)

    @property
    def is_elsewhere(self) -> bool:
        """Whether all devices are near NUMA nodes that the machine lacks."""
        return all(nodes and not nodes & self.machine for nodes in self.nodes.values())

    @property
    def installed(self) -> Counter[int]:
        """The number of devices near each set of NUMA nodes that a device names."""
        return Counter(self.nodes.values())

    @property
    def free(self) -> Counter[int]:
        """The number of those that can be given now."""
        return Counter(self.nodes[id_] for id_ in self.available)

    def hints(self, wanted: int) -> Choices | None:
        """Return the NUMA nodes that *wanted* devices can come from."""
        if not any(self.nodes.values()):
            return None
        if len(self.available | self.reusable) < wanted:
            return Choices(NO_SET, NO_SET)
        every = self._walked()
        reusable = [nodes for id_ in self.reusable if (nodes := self.nodes.get(id_, 0))]
        large = near_any(self.installed, wanted, every).nonempty
        narrowest = every.bit_count() if large.narrowest is None else large.narrowest
        fitting = near_any(self.free, wanted - len(reusable), every).nonempty
        for nodes in frozenset(reusable):
            fitting &= near_any({nodes: 1}, 1, every)
        return Choices(fitting, fitting.of_size(narrowest))

    def give(
        self,
        uid: str,
        container: str,
        wanted: int,
        mask: int | None,
        prefer: Preference,
        *,
        is_init: bool,
    ) -> frozenset[str]:
        """Give *wanted* devices to a container, from the NUMA nodes of *mask* first."""
        if not self.healthy:
            problem = "no healthy devices present; cannot allocate unhealthy devices"
            raise Refusal.unexpected(f"{problem} {self.resource}")
        given = frozenset(sorted(self.reusable)[:wanted])
        if len(given) < wanted:
            given |= self._choose(given, wanted, mask, prefer)
        if wanted:
            self.held.setdefault(uid, {})[container] = given
        self.reusable = self.reusable | given if is_init else self.reusable - given
        return given

    def _choose(
        self, reused: frozenset[str], wanted: int, mask: int | None, prefer: Preference
    ) -> frozenset[str]:
        """Return the devices to give alongside those *reused* from init containers."""
        available, needed = self.available, wanted - len(reused)
        if len(available) < needed:
            problem = f"requested number of devices unavailable for {self.resource}"
            counts = f"Requested: {needed}, Available: {len(available)}"
            raise Refusal.unexpected(f"{problem}. {counts}")
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

    def _walked(self) -> int:
        """Return the NUMA nodes whose sets the kubelet tries."""
        own = reduce(or_, self.nodes.values(), 0) & self.machine or self.machine
        is_old = self.kubelet is not None and self.kubelet < OWN_NODES_SINCE
        nodes = self.machine if is_old else own
        since = "kubelets from 1.36 on take only nodes that have devices"
        check_walk(nodes.bit_count(), f"Device Manager for {self.resource}", since)
        if self.kubelet is None and self.machine.bit_count() > MOST_WALKED:
            problem = "which up to 1.35 does not come to an end with devices on"
            raise Missing(f"the kubelet's version, {problem} {self.machine.bit_count()} NUMA nodes")
        return nodes


def _filled(chosen: frozenset[str], size: int, *others: frozenset[str]) -> frozenset[str]:
    """Return *size* ids: of *chosen* first, then of each of *others*, each in order."""
    ids = dict.fromkeys(id_ for part in (chosen, *others) for id_ in sorted(part))
    return frozenset(list(ids)[:size])


def devices_of(
    snapshot: Snapshot, active: ActivePods, resources: Iterable[str]
) -> dict[str, Devices]:
    """Return the devices of those *resources* that a device plugin offers.

    PodResources has the healthy devices and their NUMA nodes, the checkpoint who holds which. A
    resource that neither knows is not a device plugin's, unless the node has it all the same: all
    its devices might be broken.
    """
    wanted = sorted(resources)
    if not wanted:
        return {}
    if snapshot.offer is None:
        raise Missing("the devices and their NUMA nodes, by PodResources")
    machine = mask_of(node.id for node in snapshot.numa_nodes or ())
    state = snapshot.kubelet_state.devices if snapshot.kubelet_state is not None else None
    offered: dict[str, Devices] = {}
    for name in wanted:
        nodes = {
            it.id: mask_of(it.numa_nodes) for it in snapshot.offer.devices if it.resource == name
        }
        healthy = frozenset(nodes)
        held = _held(state, active, name)
        is_known = bool(nodes or held)
        nodes = {**_nodes_of_checkpoint(state, name), **nodes}
        broken = _broken_gpus(snapshot, name, frozenset(nodes))
        if not is_known and not broken and not _is_registered(snapshot, state, name):
            continue
        nodes.update(broken)
        offered[name] = Devices(
            resource=name,
            machine=machine,
            nodes=nodes,
            healthy=healthy,
            held=held,
            kubelet=release(snapshot.kubelet_version),
        )
    return offered


def _held(
    state: DeviceState | None, active: ActivePods, name: str
) -> dict[str, dict[str, frozenset[str]]]:
    if state is None:
        reported = active.devices(name)
        if reported is None:
            raise Missing("the devices that pods have, by the kubelet's checkpoint or PodResources")
        return reported
    held: dict[str, dict[str, frozenset[str]]] = {}
    for entry in state.held:
        if entry.resource == name and active.counts(entry.pod_uid):
            ids = frozenset(id_ for of_node in entry.ids.values() for id_ in of_node)
            held.setdefault(entry.pod_uid, {})[entry.container] = ids
    return held


def _nodes_of_checkpoint(state: DeviceState | None, name: str) -> dict[str, int]:
    """Return the NUMA nodes of devices that were given, broken ones too."""
    nodes_by_id: dict[str, set[int]] = {}
    for entry in state.held if state is not None else ():
        for node, ids in entry.ids.items() if entry.resource == name else ():
            for id_ in ids:
                nodes = nodes_by_id.setdefault(id_, set())
                if node != _NO_NODE and is_digits(node):
                    nodes.add(int(node))
    return {id_: mask_of(nodes) for id_, nodes in nodes_by_id.items()}


def _broken_gpus(snapshot: Snapshot, name: str, known: frozenset[str]) -> Mapping[str, int]:
    """Return the GPUs that count into the node's capacity and that only NVML knows."""
    status = snapshot.node_status
    capacity = (status.capacity or {}).get(name, 0) if status is not None else 0
    gpus = {gpu.uuid: gpu.numa_node for gpu in snapshot.gpus if gpu.uuid is not None}
    others = {uuid: node for uuid, node in gpus.items() if uuid not in known}
    is_of_gpus = known <= set(gpus) if known else name == GPU_RESOURCE
    if not is_of_gpus or capacity - len(known) != len(others):
        return {}
    return {uuid: mask_of(() if node is None else (node,)) for uuid, node in others.items()}


def _is_registered(snapshot: Snapshot, state: DeviceState | None, name: str) -> bool:
    """Return whether a plugin offers a resource of which no device is known."""
    if state is not None:
        return name in (state.registered or {})
    status = snapshot.node_status
    if status is None or status.capacity is None or status.capacity.get(name):
        raise Missing(f"whether a device plugin offers {name}, by the kubelet's checkpoint")
    return False
