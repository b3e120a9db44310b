"""The node of the tests of admission: two NUMA nodes, on each 8 cores, 32 GiB and 4 GPUs."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from nodetopo.admission.admit import PodAdmission, admit
from nodetopo.model.kubelet import KubeletSettings
from nodetopo.model.kubelet_state import (
    CpuState,
    DeviceState,
    HeldDevices,
    KubeletState,
    MemoryBlock,
    MemoryState,
)
from nodetopo.model.node import NodeOffer, PlacedDevice
from nodetopo.model.numa import CpuSet, CpuTopology, NumaNode, Socket
from nodetopo.model.pod import Container, ContainerKind, Pod
from nodetopo.model.snapshot import Snapshot

GIB = 1 << 30
GPU = "nvidia.com/gpu"
RESERVED = "0,16"
"""The first core."""
_GPUS = tuple(
    PlacedDevice(resource=GPU, id=f"GPU-{number}", numa_nodes=(number // 4,)) for number in range(8)
)


def kubelet(**changes: Any) -> KubeletSettings:
    """Return settings under which everything is aligned, with *changes*."""
    settings = KubeletSettings(
        source="test",
        version="v1.36.3",
        topology_manager_policy="restricted",
        topology_manager_scope="container",
        topology_manager_options={},
        cpu_manager_policy="static",
        cpu_manager_options={},
        memory_manager_policy="Static",
        reserved_system_cpus=RESERVED,
        system_reserved={},
        kube_reserved={},
        feature_gates={},
    )
    return replace(settings, **changes)


def node(**changes: Any) -> Snapshot:
    """Return the empty node; *changes* are those of its kubelet's settings."""
    cores = tuple(CpuSet.of((number, number + 16)) for number in range(16))
    halves = tuple(
        CpuSet.of(cpu for core in part for cpu in core) for part in (cores[:8], cores[8:])
    )
    return Snapshot(
        numa_nodes=tuple(
            NumaNode(
                id=number, cpus=half, memory_mib=32 << 10, distances=(10, 21)[:: 1 - 2 * number]
            )
            for number, half in enumerate(halves)
        ),
        cpu=CpuTopology(
            online=halves[0] | halves[1],
            sockets=tuple(Socket(id=number, cpus=half) for number, half in enumerate(halves)),
            cores=cores,
            l3_groups=halves,
        ),
        kubelet=kubelet(**changes),
        kubelet_state=KubeletState(
            cpu=CpuState(policy="static", default=halves[0] | halves[1], entries={}),
            memory=MemoryState(policy="Static", blocks=tuple(map(_block, (0, 1))), entries={}),
            devices=DeviceState(registered={GPU: tuple(it.id for it in _GPUS)}),
        ),
        pods=(),
        offer=NodeOffer(devices=_GPUS),
    )


def _block(number: int) -> MemoryBlock:
    reserved = (1 - number) * GIB
    free = 32 * GIB - reserved
    return MemoryBlock(
        numa_node=number,
        kind="memory",
        total=32 * GIB,
        system_reserved=reserved,
        allocatable=free,
        reserved=0,
        free=free,
        cells=(number,),
    )


def pod(name: str = "job", *containers: Container) -> Pod:
    """Return a pod of *containers*."""
    return Pod(namespace="ml", name=name, uid=f"uid-{name}", containers=containers)


def container(
    name: str = "work",
    *,
    gpus: int = 0,
    cpus: float = 0,
    gib: float = 0,
    kind: ContainerKind = ContainerKind.APP,
    more: Mapping[str, int] | None = None,
) -> Container:
    """Return a container that asks for so much, limits as requests; nothing of what is 0."""
    amounts = {"cpu": round(cpus * 1000), "memory": round(gib * GIB), GPU: gpus, **(more or {})}
    stated = {key: amount for key, amount in amounts.items() if amount}
    return Container(name=name, kind=kind, requests=stated, limits=stated)


def ask(snapshot: Snapshot, *containers: Container) -> PodAdmission:
    """Return what becomes of a pod of *containers*."""
    return admit(snapshot, [pod("job", *containers)]).pods[0]


def with_gpus_held(snapshot: Snapshot, *numbers: int, uid: str = "uid-other") -> Snapshot:
    """Return *snapshot* with a running pod that has the GPUs of these numbers, and nothing else."""
    ids = {str(half): tuple(f"GPU-{it}" for it in numbers if it // 4 == half) for half in (0, 1)}
    held = HeldDevices(pod_uid=uid, container="work", resource=GPU, ids=ids)
    assert snapshot.kubelet_state is not None
    assert snapshot.kubelet_state.devices is not None
    devices = snapshot.kubelet_state.devices
    other = Pod(namespace="ml", name="other", uid=uid, containers=(container(gpus=len(numbers)),))
    return replace(
        snapshot,
        kubelet_state=replace(
            snapshot.kubelet_state, devices=replace(devices, held=(*devices.held, held))
        ),
        pods=(*(snapshot.pods or ()), other),
    )


def with_devices(snapshot: Snapshot, devices: tuple[PlacedDevice, ...]) -> Snapshot:
    """Return *snapshot* with other devices on offer."""
    registered: dict[str, tuple[str, ...]] = {}
    for one in devices:
        registered[one.resource] = (*registered.get(one.resource, ()), one.id)
    assert snapshot.kubelet_state is not None
    state = replace(snapshot.kubelet_state, devices=DeviceState(registered=registered))
    return replace(snapshot, kubelet_state=state, offer=NodeOffer(devices=devices))
