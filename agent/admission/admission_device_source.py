"""The Device Manager of a node, put together from its snapshot."""

from collections.abc import Iterable, Mapping
from functools import reduce
from operator import or_

from agent.admission.device_manager import Devices
from agent.admission.errors import Missing, check_nodes
from agent.admission.hints import mask_of
from agent.admission.state import Holders, held_devices
from agent.model.kubelet_state import DeviceState
from agent.model.snapshot import Snapshot

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
