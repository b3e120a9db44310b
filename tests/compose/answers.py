"""What a composed node answers over the network, which no file of it tells.

The Node object, the kubelet's ``/configz``, ``/metrics`` and PodResources, and what the agent's
account may do: with the DaemonSet's RBAC and its component configz. No pod runs.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from nodetopo.model.kubelet import CONFIGZ, KubeletMetrics, KubeletSettings
from nodetopo.model.kubernetes import quantity
from nodetopo.model.node import NodeOffer, NodeStatus, PlacedDevice
from nodetopo.model.numa import CpuSet
from nodetopo.model.pod import AssignedMemory
from nodetopo.model.snapshot import Snapshot
from tests.compose.kubelet_state import healthy_ids, huge_page_kind, resources

VERSION = "v1.37.1"
RUNTIME = "containerd://2.1.4"
RIGHTS = {
    "get nodes/proxy": False,
    "create nodes/proxy": False,
    "get nodes/configz": True,
    "get nodes/metrics": True,
}
_WRITERS = {"nvidia.com/gpu.count": ("nodetopo",), "nvidia.com/gpu.product": ("nodetopo",)}
_MILLI = 1000
"""Millicores in a CPU."""


def with_answers(found: Snapshot) -> Snapshot:
    """Return *found*, which its files told, with what the node answers."""
    on_disk = found.kubelet_on_disk
    assert on_disk is not None
    on_disk = replace(on_disk, version=VERSION)
    return replace(
        found,
        kubelet=_configz(on_disk),
        kubelet_on_disk=on_disk,
        kubelet_metrics=KubeletMetrics(rejections={}, topology_errors=0, slow_allocations={}),
        node_status=_node_status(found, on_disk),
        agent_rights=RIGHTS,
        offer=_offer(found, on_disk),
        pods=(),
        published=(),
    )


def without_answers(snapshot: Snapshot) -> Snapshot:
    """Return of *snapshot* what its files tell: :func:`with_answers` undone."""
    on_disk = snapshot.kubelet_on_disk
    assert on_disk is not None
    on_disk = replace(on_disk, version=None)
    return replace(
        snapshot,
        kubelet=on_disk,
        kubelet_on_disk=on_disk,
        kubelet_metrics=None,
        node_status=None,
        agent_rights=None,
        offer=None,
        pods=None,
        published=None,
    )


def _configz(on_disk: KubeletSettings) -> KubeletSettings:
    return replace(
        on_disk,
        source=CONFIGZ,
        origins=None,
        changed_since_start=None,
        unloaded_drop_ins=None,
        odd_keys=None,
    )


def _node_status(found: Snapshot, settings: KubeletSettings) -> NodeStatus:
    nodes, cpu = found.numa_nodes or (), found.cpu
    assert cpu is not None
    memory = sum(node.memory_mib or 0 for node in nodes) << 20
    huge_pages = {huge_page_kind(one.size_kib): 0 for node in nodes for one in node.hugepages}
    devices = {it.name: len(it.devices) for it in resources(found)}
    usable = {it.name: len(healthy_ids(found, it)) for it in resources(found)}
    capacity = {"cpu": len(cpu.online) * _MILLI, "memory": memory, "pods": 110, **huge_pages}
    kept = settings.system_reserved or {}
    left = {
        "cpu": capacity["cpu"] - quantity(kept.get("cpu", "0"), per_unit=_MILLI),
        "memory": memory - _kept_memory(settings),
    }
    return NodeStatus(
        kubelet_version=VERSION,
        container_runtime=RUNTIME,
        capacity={**capacity, **devices},
        allocatable={**capacity, **left, **usable},
        labels={},
        label_writers=_WRITERS,
    )


def _kept_memory(settings: KubeletSettings) -> int:
    """Return what pods are not given, in bytes: reserved, or below the eviction threshold."""
    eviction = (settings.eviction_hard or {}).get("memory.available", "0")
    return quantity((settings.system_reserved or {}).get("memory", "0")) + quantity(eviction)


def _offer(found: Snapshot, settings: KubeletSettings) -> NodeOffer:
    devices = (
        PlacedDevice(resource=it.name, id=device.id, numa_nodes=device.numa_nodes)
        for it in resources(found)
        for device in it.devices
        if device.id in healthy_ids(found, it)
    )
    return NodeOffer(
        devices=tuple(sorted(devices, key=lambda it: (it.resource, it.id))),
        cpus=_exclusive(found, settings),
        memory=tuple(sorted(_memory(found), key=lambda it: (it.kind, it.numa_nodes))),
    )


def _exclusive(found: Snapshot, settings: KubeletSettings) -> CpuSet:
    if settings.cpu_manager_policy != "static" or found.cpu is None:
        return CpuSet()
    reserved = CpuSet.parse(settings.reserved_system_cpus or "")
    return CpuSet(found.cpu.online.cpus - reserved.cpus)


def _memory(found: Snapshot) -> Iterator[AssignedMemory]:
    """Yield the blocks that have something (1.36 memorymanager policy_static.go)."""
    state = found.kubelet_state.memory if found.kubelet_state else None
    for block in state.blocks if state else ():
        if block.allocatable:
            yield AssignedMemory(
                kind=block.kind, size_bytes=block.allocatable, numa_nodes=(block.numa_node,)
            )
