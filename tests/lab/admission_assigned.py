"""The same node as PodResources tells of it, without a look at the kubelet's state files."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from nodetopo.model.numa import CpuSet
from nodetopo.model.pod import AssignedDevices, AssignedMemory, Container, ContainerKind, Pod
from nodetopo.model.snapshot import Snapshot
from tests.lab.admission_case import Case
from tests.lab.admission_kubelet import held_memory, snapshot


def is_told(state: Mapping[str, Any], pods: Sequence[Pod]) -> bool:
    """Return whether PodResources tells of all that *pods* hold, and of what others left behind.

    It leaves init containers out. A pod that is rejected after the kubelet pinned some memory for
    it can part a group of NUMA nodes that others still hold together, which only the state says;
    and a CPU that an init container left to other pods is shared again when its own pod ends,
    whoever has it by then.
    """
    if _has_twice(state):
        return False
    kinds = (one.kind for pod in pods for one in pod.containers)
    return ContainerKind.INIT not in kinds and all(
        sorted(found["cells"]) == sorted({int(node), *_together(state, int(node))})
        for node, found in (state["nodes"] or {}).items()
    )


def _has_twice(state: Mapping[str, Any]) -> bool:
    """Return whether the kubelet wrote down one CPU for two containers."""
    texts = (text for containers in state["cpus"].values() for text in containers.values())
    cpus = [cpu for text in texts for cpu in CpuSet.parse(text)]
    return len(cpus) > len(set(cpus))


def _together(state: Mapping[str, Any], node: int) -> set[int]:
    """Return the NUMA nodes of which somebody holds memory together with that of *node*."""
    blocks = (
        block
        for containers in held_memory(state).values()
        for held in containers.values()
        for block in held
    )
    return {one for block in blocks if node in block.numa_nodes for one in block.numa_nodes}


def told(case: Case, state: Mapping[str, Any], pods: Sequence[Pod]) -> Snapshot:
    """Return what our probes would read of the node without access to its files."""
    known = snapshot(case, state, pods)
    assert known.offer is not None
    return replace(
        known,
        kubelet_state=None,
        pods=tuple(_assigned(pod, state) for pod in pods),
        offer=replace(known.offer, cpus=_cpus(case), memory=_memory(state)),
    )


def _cpus(case: Case) -> CpuSet:
    """Return all CPUs but the reserved ones; none where only the kubelet knows which those are."""
    reserved = CpuSet.parse(case.reserved_cpus).cpus
    return CpuSet(case.machine.cpu.online.cpus - reserved if reserved else frozenset())


def _memory(state: Mapping[str, Any]) -> tuple[AssignedMemory, ...]:
    return tuple(
        AssignedMemory(kind=kind, size_bytes=table["allocatable"], numa_nodes=(int(node),))
        for node, found in (state["nodes"] or {}).items()
        for kind, table in found["memoryMap"].items()
        if table["allocatable"]
    )


def _assigned(pod: Pod, state: Mapping[str, Any]) -> Pod:
    uid = str(pod.uid)
    containers = tuple(_container(one, uid, state) for one in pod.containers)
    return replace(pod, containers=containers)


def _container(one: Container, uid: str, state: Mapping[str, Any]) -> Container:
    devices = state["devices"].get(uid, {}).get(one.name, {})
    memory = held_memory(state).get(uid, {}).get(one.name, ())
    return replace(
        one,
        cpus=CpuSet.parse(state["cpus"].get(uid, {}).get(one.name, "")),
        devices=tuple(
            AssignedDevices(resource=name, ids=tuple(sorted(ids))) for name, ids in devices.items()
        ),
        memory=tuple(
            AssignedMemory(kind=it.kind, size_bytes=it.size, numa_nodes=it.numa_nodes)
            for it in memory
        ),
    )
