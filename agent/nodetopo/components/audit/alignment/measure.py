"""Measured alignment: the real placement of every running container with GPUs or HCAs."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from nodetopo.components.audit.alignment.devices import DevicePlaces, HeldGpu, HeldHca, NvlinkSets
from nodetopo.components.audit.alignment.record import (
    Apart,
    Cpus,
    Memory,
    MissingInput,
    Part,
    PodAlignment,
    cpus_of,
    memory_of,
)
from nodetopo.components.audit.alignment.verdict import Explaining, Machine
from nodetopo.components.audit.rules.gpu_pods import container_name, uses_gpus
from nodetopo.model.pod import Container, ContainerKind, Pod
from nodetopo.model.snapshot import Snapshot

FINISHED = ("Succeeded", "Failed")
"""Phases in which a pod holds no resources."""

RUNNING = "Running"

MAX_ROWS = 1024
"""Containers that are measured; a kubelet runs 110 pods by default."""

MAX_DEVICES = 16_384
"""Most devices of all containers; our plugin offers at most 10,000 of a resource, replicas
included.
"""


def measured(snapshot: Snapshot) -> tuple[PodAlignment, ...]:
    """Return a row for each running container that holds GPUs or HCAs, in the pods' order.

    A container of a running pod that requests GPUs, but without devices in the kubelet's report,
    has a row without devices. Containers of manifests have none.
    """
    places = DevicePlaces(snapshot)
    machine = Machine(snapshot, places, NvlinkSets(snapshot))
    rows: list[PodAlignment] = []
    devices = 0
    for pod in snapshot.pods or ():
        if pod.phase in FINISHED:
            continue
        for container in pod.containers:
            devices += sum(len(each.ids) for each in container.devices or ())
            devices += len(container.claimed or ())
            if len(rows) >= MAX_ROWS or devices > MAX_DEVICES:
                name = container_name(pod, container)
                what = f"{name} and all after it, which are too many to look at"
                return (*rows, _unknown(pod, container, what))
            held = _Held(
                places.gpus(container),
                places.hcas(container),
                cpus_of(pod, container, snapshot),
                memory_of(pod, container, snapshot),
            )
            is_up = pod.phase == RUNNING and container.kind is not ContainerKind.INIT
            if held.gpus or held.hcas:
                rows.append(_row(machine, Explaining(pod, container, snapshot, places), held))
            elif is_up and container.devices is None and uses_gpus(container) is True:
                what = f"the devices of {container_name(pod, container)}"
                rows.append(_unknown(pod, container, what))
    return tuple(rows)


def _unknown(pod: Pod, container: Container, what: str) -> PodAlignment:
    return PodAlignment(
        namespace=pod.namespace,
        pod=pod.name,
        container=container.name,
        uid=pod.uid,
        missing=(MissingInput(part=None, what=what),),
    )


class _Held(Struct, frozen=True):
    """The devices, CPUs and memory of a container."""

    gpus: Sequence[HeldGpu]
    hcas: Sequence[HeldHca]
    cpus: Cpus
    memory: Memory


def _row(machine: Machine, why: Explaining, held: _Held) -> PodAlignment:
    whole = [gpu.gpu.index for gpu in held.gpus if gpu.gpu is not None and gpu.is_whole]
    gpu_nodes = _nodes(held.gpus, machine.snapshot)
    hca_nodes = _nodes(held.hcas, machine.snapshot)
    apart: list[Apart | None] = []
    missing = list(_missing(why, held))
    near = gpu_nodes if held.gpus else hca_nodes
    if near is not None:
        cpus = machine.cpus_apart(near, held.cpus, why)
        hcas = machine.hcas_apart(near, held.hcas, why) if held.gpus else None
        if hcas is not None and (unclear := _open(why, held)):
            missing.append(unclear)
            hcas = None
        apart = [
            machine.gpus_apart(held.gpus, why) if held.gpus else None,
            cpus,
            machine.memory_apart(near, held.memory, cpus, why),
            hcas,
        ]
    return PodAlignment(
        namespace=why.pod.namespace,
        pod=why.pod.name,
        container=why.container.name,
        uid=why.pod.uid,
        gpus=tuple(gpu.name for gpu in held.gpus),
        gpu_nodes=gpu_nodes,
        cpus=held.cpus.cpus,
        has_own_cpus=held.cpus.are_own,
        cpu_nodes=held.cpus.nodes,
        is_memory_bound=held.memory.is_bound,
        memory_nodes=held.memory.nodes,
        hcas=tuple(hca.name for hca in held.hcas),
        hca_nodes=hca_nodes,
        nvlink=machine.nvlinks.span(whole) if len(whole) == len(held.gpus) else None,
        apart=tuple(part for part in apart if part is not None),
        missing=tuple(missing),
    )


def _open(why: Explaining, held: _Held) -> MissingInput | None:
    """Name the HCAs that may not be all of the container's HCAs."""
    names = ", ".join(hca.name for hca in held.hcas if hca.is_open)
    name = container_name(why.pod, why.container)
    what = f"whether {name} has other HCAs of the pool than {names}"
    return MissingInput(part=Part.HCAS, what=what) if names else None


def _nodes(devices: Sequence[HeldGpu | HeldHca], snapshot: Snapshot) -> tuple[int, ...] | None:
    known = sorted({device.node for device in devices if device.node is not None})
    is_known = snapshot.numa_nodes is not None and all(
        device.node is not None for device in devices
    )
    return tuple(known) if is_known else None


def _missing(why: Explaining, held: _Held) -> Iterator[MissingInput]:
    if why.snapshot.numa_nodes is None:
        yield MissingInput(part=None, what="NUMA nodes")
        return
    name = container_name(why.pod, why.container)
    for gpu in held.gpus:
        if gpu.node is None:
            yield MissingInput(part=None, what=f"NUMA node of {gpu.name} in {name}")
    for gpu in held.gpus:
        if gpu.gpu is None:
            yield MissingInput(part=Part.GPUS, what=f"GPU {gpu.name} in {name}")
    for hca in held.hcas:
        if hca.node is None:
            part = Part.HCAS if held.gpus else None
            yield MissingInput(part=part, what=f"NUMA node of {hca.name} in {name}")
    if held.cpus.nodes is None:
        yield MissingInput(part=Part.CPUS, what=f"CPUs of {name}")
    if held.memory.nodes is None:
        yield MissingInput(part=Part.MEMORY, what=f"memory of {name}")
