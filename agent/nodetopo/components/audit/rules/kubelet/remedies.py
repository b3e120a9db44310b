"""Kubelet settings as remedies change them: a rule can judge the state that they lead to."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from nodetopo.checks.rule import Cure
from nodetopo.components.audit.rules.kubelet.inputs import amount, reserved_cpus, starting, version
from nodetopo.model.kubelet import KubeletSettings, ReservedMemory
from nodetopo.model.kubelet_state import CpuState, KubeletState, MemoryBlock, MemoryState
from nodetopo.model.kubernetes import MIB, Release, release
from nodetopo.model.numa import CpuSet
from nodetopo.model.snapshot import Snapshot

Change = Callable[[Snapshot, KubeletSettings], Mapping[str, Any]]
"""Returns the fields of :class:`KubeletSettings` that a remedy sets, with their values."""

_NODES_WITHOUT_OPTION = 8
"""pkg/kubelet/cm/topologymanager/topology_manager.go, defaultMaxAllowableNUMANodes."""

_SYSTEM_MEMORY = "2Gi"
"""Memory for a node with only the kubelet and the driver; an arbitrary choice for the rules."""


def restarted_with(change: Change | None = None, *, drained: bool = False, **values: Any) -> Cure:
    """Return the cure that sets *values*, and what *change* returns, and restarts the kubelet.

    With *drained* the node is drained and the managers' state files are deleted before.
    """

    def cure(snapshot: Snapshot) -> Snapshot:
        before = starting(snapshot)
        if before is None:
            return snapshot
        after = replace(before, **values, **(change(snapshot, before) if change else {}))
        on_disk = snapshot.kubelet_on_disk and after
        cured = replace(snapshot, kubelet=after, kubelet_on_disk=on_disk)
        return _with_new_state(cured, after) if drained else cured

    return cure


def first(*cures: Cure) -> Cure:
    """Return the cure that applies *cures* one after the other."""

    def cure(snapshot: Snapshot) -> Snapshot:
        for remedy in cures:
            snapshot = remedy(snapshot)
        return snapshot

    return cure


def updated(since: Release) -> Cure:
    """Return the cure that updates a kubelet older than *since*."""

    def cure(snapshot: Snapshot) -> Snapshot:
        number = release(version(snapshot))
        if number is None or number >= since:
            return snapshot
        text = f"v{since[0]}.{since[1]}.0"
        kubelet, on_disk = (
            settings and replace(settings, version=text)
            for settings in (snapshot.kubelet, snapshot.kubelet_on_disk)
        )
        return replace(snapshot, kubelet=kubelet, kubelet_on_disk=on_disk)

    return cure


def cpu_option(name: str) -> Change:
    """Return the change that turns an option of the CPU Manager on."""
    return lambda _, before: {
        "cpu_manager_options": {**(before.cpu_manager_options or {}), name: "true"}
    }


def without_topology_option(name: str) -> Change:
    """Return the change that takes an option of the Topology Manager out."""
    return lambda _, before: {
        "topology_manager_options": {
            key: value
            for key, value in (before.topology_manager_options or {}).items()
            if key != name
        }
    }


def all_nodes_allowed(snapshot: Snapshot, before: KubeletSettings) -> Mapping[str, Any]:
    """Let the Topology Manager have as many NUMA nodes as there are, 8 need no option."""
    options, count = before.topology_manager_options or {}, len(snapshot.numa_nodes or ())
    if count <= _NODES_WITHOUT_OPTION:
        return {}
    return {"topology_manager_options": {**options, "max-allowable-numa-nodes": str(count)}}


def without_huge_pages(_: Snapshot, before: KubeletSettings) -> Mapping[str, Any]:
    """Take the huge pages out of reservedMemory."""
    entries = before.reserved_memory or ()
    kept = (
        replace(
            entry, limits={kind: text for kind, text in entry.limits.items() if kind == "memory"}
        )
        for entry in entries
    )
    return {"reserved_memory": tuple(entry for entry in kept if entry.limits)}


def whole_cores_reserved(snapshot: Snapshot, before: KubeletSettings) -> Mapping[str, Any]:
    """Reserve all threads of each core of which CPUs are reserved, or one core of each node."""
    cores = snapshot.cpu.cores if snapshot.cpu else ()
    reservation = reserved_cpus(before)
    kept = [core for core in cores if reservation and core & reservation]
    return _reserving(kept) if kept else spread(snapshot, before)


def spread(snapshot: Snapshot, before: KubeletSettings) -> Mapping[str, Any]:
    """Reserve the first core of each NUMA node that has CPUs."""
    cores = snapshot.cpu.cores if snapshot.cpu else ()
    nodes = [node.cpus for node in snapshot.numa_nodes or () if len(node.cpus)]
    firsts = [next((core for core in cores if core <= node), None) for node in nodes]
    found = [core for core in firsts if core is not None]
    return _reserving(found) if found else {"reserved_system_cpus": before.reserved_system_cpus}


def _reserving(cores: Iterable[CpuSet]) -> Mapping[str, Any]:
    cpus = CpuSet.of(cpu for core in cores for cpu in core)
    return {
        "reserved_system_cpus": str(cpus),
        "system_reserved_cgroup": "",
        "kube_reserved_cgroup": "",
    }


def memory_reserved(_: Snapshot, before: KubeletSettings) -> Mapping[str, Any]:
    """Reserve memory for the system, with the Memory Manager's reservation on NUMA node 0."""
    system = {**(before.system_reserved or {})}
    system.setdefault("memory", _SYSTEM_MEMORY)
    eviction = {**(before.eviction_hard or {}), "memory.available": "100Mi"}
    held = (system["memory"], (before.kube_reserved or {}).get("memory", "0"), "100Mi")
    size = sum(amount(text) or 0 for text in held)
    return {
        "system_reserved": system,
        "eviction_hard": eviction,
        "reserved_memory": (ReservedMemory(numa_node=0, limits={"memory": str(size)}),),
    }


def _with_new_state(snapshot: Snapshot, after: KubeletSettings) -> Snapshot:
    """Return *snapshot* with the state files that a kubelet writes at its first start."""
    state = snapshot.kubelet_state or KubeletState()
    cpu, memory = state.cpu, state.memory
    if after.cpu_manager_policy is not None and snapshot.cpu is not None:
        is_static = after.cpu_manager_policy == "static"
        shared = snapshot.cpu.online if is_static else None
        reservation = reserved_cpus(after)
        options = after.cpu_manager_options or {}
        if shared is not None and reservation and "strict-cpu-reservation" in options:
            shared = CpuSet(shared.cpus - reservation.cpus)
        cpu = CpuState(policy=after.cpu_manager_policy, default=shared, entries={})
    if after.memory_manager_policy is not None:
        blocks = _blocks(snapshot, after) if after.memory_manager_policy == "Static" else ()
        memory = MemoryState(policy=after.memory_manager_policy, blocks=blocks, entries={})
    return replace(snapshot, kubelet_state=replace(state, cpu=cpu, memory=memory))


def _blocks(snapshot: Snapshot, after: KubeletSettings) -> tuple[MemoryBlock, ...]:
    """Return the memory of each NUMA node, of which no pod holds any; empty if it is not known."""
    nodes = snapshot.numa_nodes or ()
    if any(node.memory_mib is None for node in nodes):
        return ()
    held = {
        entry.numa_node: amount(entry.limits.get("memory", "0")) or 0
        for entry in after.reserved_memory or ()
    }
    return tuple(
        MemoryBlock(
            numa_node=node.id,
            kind="memory",
            total=node.memory_mib * MIB,
            system_reserved=held.get(node.id, 0),
            allocatable=node.memory_mib * MIB - held.get(node.id, 0),
            reserved=0,
            free=node.memory_mib * MIB - held.get(node.id, 0),
            cells=(node.id,),
        )
        for node in nodes
        if node.memory_mib is not None
    )
