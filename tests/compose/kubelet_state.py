"""What a composed kubelet has written down, idle: state files of its managers, its checkpoint."""

import json
from collections.abc import Iterator

from nodetopo.deviceplugin.resources import MigStrategy, Resource, Rules, offer
from nodetopo.model.kubelet import KubeletSettings
from nodetopo.model.kubelet_state import (
    OUR_SOCKETS,
    CpuState,
    DeviceState,
    KubeletState,
    MemoryBlock,
    MemoryState,
)
from nodetopo.model.kubernetes import quantity
from nodetopo.model.numa import CpuSet, NumaNode
from nodetopo.model.snapshot import Snapshot
from nodetopo.tools.capture.archive import Entry
from tests.compose.entries import file

_STRICT = "strict-cpu-reservation"
_UNITS = ((1 << 20, "Gi"), (1 << 10, "Mi"), (1, "Ki"))


def resources(snapshot: Snapshot) -> tuple[Resource, ...]:
    """Return what our plugin offers here: with MIG devices each profile by its own name."""
    has_mig = any(gpu.is_divided for gpu in snapshot.gpus)
    rules = Rules(mig=MigStrategy.MIXED if has_mig else MigStrategy.NONE)
    return offer(snapshot, rules, {}).resources


def healthy_ids(snapshot: Snapshot, resource: Resource) -> tuple[str, ...]:
    """Return the devices of *resource* that are healthy: no recovery action is open."""
    broken = {gpu.id for gpu in snapshot.gpus if gpu.recovery_action}
    ids = (device.id for device in resource.devices)
    return tuple(sorted(id_ for id_ in ids if resource.gpus[id_] not in broken))


def shared_cpus(snapshot: Snapshot) -> CpuSet | None:
    """Return the CPUs of pods without CPUs of their own; ``None`` under policy ``none``."""
    settings, cpu = snapshot.kubelet, snapshot.cpu
    assert settings is not None
    assert cpu is not None
    if settings.cpu_manager_policy != "static":
        return None
    is_strict = (settings.cpu_manager_options or {}).get(_STRICT) == "true"
    kept = CpuSet.parse(settings.reserved_system_cpus or "") if is_strict else CpuSet()
    return CpuSet(cpu.online.cpus - kept.cpus)


def kubelet_state(snapshot: Snapshot) -> KubeletState:
    """Return what the kubelet of *snapshot* writes while no pod runs."""
    settings = snapshot.kubelet
    assert settings is not None
    offered = resources(snapshot)
    return KubeletState(
        cpu=CpuState(
            policy=settings.cpu_manager_policy or "",
            default=shared_cpus(snapshot),
            entries={},
        ),
        memory=MemoryState(
            policy=settings.memory_manager_policy or "",
            blocks=tuple(_blocks(snapshot, settings)),
            entries={},
        ),
        devices=DeviceState(
            registered={it.name: healthy_ids(snapshot, it) for it in _by_name(offered)}
        ),
        plugin_sockets=tuple(
            f"{OUR_SOCKETS}{it.name.rpartition('/')[2]}-7-{at:08x}.sock"
            for at, it in enumerate(_by_name(offered), 0x5EED)
        ),
    )


def _by_name(offered: tuple[Resource, ...]) -> list[Resource]:
    return sorted(offered, key=lambda it: it.name)


def _blocks(snapshot: Snapshot, settings: KubeletSettings) -> Iterator[MemoryBlock]:
    if settings.memory_manager_policy != "Static":
        return
    kept = {entry.numa_node: entry.limits for entry in settings.reserved_memory or ()}
    for node in snapshot.numa_nodes or ():
        sizes = sorted((*_huge_pages(node), ("memory", (node.memory_mib or 0) << 20)))
        for kind, total in sizes:
            reserved = quantity(kept.get(node.id, {}).get(kind, "0"))
            yield MemoryBlock(
                numa_node=node.id,
                kind=kind,
                total=total,
                system_reserved=reserved,
                allocatable=total - reserved,
                reserved=0,
                free=total - reserved,
                cells=(node.id,),
            )


def _huge_pages(node: NumaNode) -> Iterator[tuple[str, int]]:
    for pages in node.hugepages:
        yield huge_page_kind(pages.size_kib), pages.total * pages.size_kib << 10


def huge_page_kind(size_kib: int) -> str:
    """Return the resource of pages of a size: ``hugepages-2Mi``."""
    size, unit = next((kib, unit) for kib, unit in _UNITS if size_kib % kib == 0)
    return f"hugepages-{size_kib // size}{unit}"


def entries(state: KubeletState) -> Iterator[Entry]:
    """Yield the files of kubernetes 1.36; their checksums are not verified by readers."""
    assert state.cpu is not None
    assert state.memory is not None
    assert state.devices is not None
    root = "var/lib/kubelet"
    cpus = {"policyName": state.cpu.policy, "defaultCpuSet": str(state.cpu.default or "")}
    yield file(f"{root}/cpu_manager_state", _json({**cpus, "entries": {}, "checksum": 1}))
    memory = {"policyName": state.memory.policy, "machineState": _machine_state(state.memory)}
    yield file(f"{root}/memory_manager_state", _json({**memory, "entries": {}, "checksum": 1}))
    devices = {"PodDeviceEntries": None, "RegisteredDevices": state.devices.registered}
    plugins = f"{root}/device-plugins"
    checkpoint = _json({"Data": devices, "Checksum": 1})
    yield file(f"{plugins}/kubelet_internal_checkpoint", checkpoint)
    # Files in place of sockets: the reader goes by their names.
    for name in ("kubelet.sock", *(state.plugin_sockets or ())):
        yield Entry(path=f"{plugins}/{name}", content=b"")


def _machine_state(state: MemoryState) -> dict[str, object]:
    nodes: dict[str, dict[str, object]] = {}
    for block in state.blocks:
        nodes.setdefault(str(block.numa_node), {})[block.kind] = {
            "total": block.total,
            "systemReserved": block.system_reserved,
            "allocatable": block.allocatable,
            "reserved": block.reserved,
            "free": block.free,
        }
    return {
        node: {"numberOfAssignments": 0, "memoryMap": table, "cells": [int(node)]}
        for node, table in nodes.items()
    }


def _json(document: object) -> str:
    return json.dumps(document, separators=(",", ":"))
