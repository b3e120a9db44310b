"""Measured alignment: what every running container with GPUs or HCAs really got."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agent.checks.alignment.devices import DevicePlaces, HeldGpu, HeldHca, NvlinkSets
from agent.checks.alignment.record import (
    Apart,
    Cpus,
    Memory,
    Missing,
    NvlinkSpan,
    Part,
    PodAlignment,
    cpus_of,
    memory_of,
)
from agent.checks.alignment.verdict import Explaining, Machine
from agent.checks.gpu_pods import uses_gpus
from agent.model.pod import Container, ContainerKind, Pod
from agent.model.snapshot import Snapshot

FINISHED = ("Succeeded", "Failed")
"""Phases in which a pod holds nothing."""

RUNNING = "Running"

MAX_ROWS = 1024
"""Containers that are looked at; a kubelet runs 110 pods unless told otherwise."""

MAX_DEVICES = 16_384
"""Devices of all of them; our own plugin offers 10,000 of a resource at most, replicas included."""


def measured(snapshot: Snapshot) -> tuple[PodAlignment, ...]:
    """Return a row for each running container that holds GPUs or HCAs, in the pods' order.

    A container of a running pod that asks for GPUs, but of which the kubelet did not tell what it
    holds, has a row without devices. Containers of manifests have none.
    """
    places = DevicePlaces(snapshot)
    machine = Machine(snapshot, places, NvlinkSets(snapshot))
    return tuple(_measured(machine))


def _measured(machine: Machine) -> Iterator[PodAlignment]:
    containers = (
        (pod, container)
        for pod in machine.snapshot.pods or ()
        if pod.phase not in FINISHED
        for container in pod.containers
    )
    rows, devices = 0, 0
    for pod, container in containers:
        devices += sum(len(each.ids) for each in container.devices or ())
        if rows >= MAX_ROWS or devices > MAX_DEVICES:
            what = f"{_name(pod, container)} and all after it, which are too many to look at"
            yield _unknown(pod, container, what)
            return
        for row in _rows(machine, pod, container):
            rows += 1
            yield row


@dataclass(frozen=True, slots=True)
class _Held:
    """What one container holds."""

    gpus: Sequence[HeldGpu]
    hcas: Sequence[HeldHca]
    cpus: Cpus
    memory: Memory


def _rows(machine: Machine, pod: Pod, container: Container) -> Iterator[PodAlignment]:
    snapshot, places = machine.snapshot, machine.places
    held = _Held(
        places.gpus(container),
        places.hcas(container),
        cpus_of(container, snapshot),
        memory_of(container, snapshot),
    )
    if held.gpus or held.hcas:
        why = Explaining(pod=pod, container=container, snapshot=snapshot, places=places)
        yield _row(machine, why, held)
    elif _is_silent(pod, container):
        yield _unknown(pod, container, f"the devices of {_name(pod, container)}")


def _unknown(pod: Pod, container: Container, what: str) -> PodAlignment:
    return PodAlignment(
        namespace=pod.namespace,
        pod=pod.name,
        container=container.name,
        uid=pod.uid,
        missing=(Missing(part=None, what=what),),
    )


def _is_silent(pod: Pod, container: Container) -> bool:
    is_up = pod.phase == RUNNING and container.kind is not ContainerKind.INIT
    return is_up and container.devices is None and uses_gpus(container) is True


def _row(machine: Machine, why: Explaining, held: _Held) -> PodAlignment:
    return PodAlignment(
        namespace=why.pod.namespace,
        pod=why.pod.name,
        container=why.container.name,
        uid=why.pod.uid,
        gpus=tuple(one.name for one in held.gpus),
        gpu_nodes=_nodes(held.gpus, machine.snapshot),
        cpus=held.cpus.cpus,
        has_own_cpus=held.cpus.are_own,
        cpu_nodes=held.cpus.nodes,
        is_memory_bound=held.memory.is_bound,
        memory_nodes=held.memory.nodes,
        hcas=tuple(one.name for one in held.hcas),
        hca_nodes=_nodes(held.hcas, machine.snapshot),
        nvlink=_nvlink(machine, held.gpus),
        apart=tuple(_apart(machine, why, held)),
        missing=tuple(_missing(why, held)),
    )


def _apart(machine: Machine, why: Explaining, held: _Held) -> Iterator[Apart]:
    near = _nodes(held.gpus or held.hcas, machine.snapshot)
    if near is None:
        return
    cpus = machine.cpus_apart(near, held.cpus, why)
    found = (
        machine.gpus_apart(held.gpus, why) if held.gpus else None,
        cpus,
        machine.memory_apart(near, held.memory, cpus, why),
        machine.hcas_apart(near, held.hcas, why) if held.gpus else None,
    )
    yield from (one for one in found if one is not None)


def _nodes(devices: Sequence[HeldGpu | HeldHca], snapshot: Snapshot) -> tuple[int, ...] | None:
    known = sorted({one.node for one in devices if one.node is not None})
    is_known = snapshot.numa_nodes is not None and all(one.node is not None for one in devices)
    return tuple(known) if is_known else None


def _nvlink(machine: Machine, gpus: Sequence[HeldGpu]) -> NvlinkSpan | None:
    whole = [one.gpu.index for one in gpus if one.gpu is not None and one.is_whole]
    return machine.nvlinks.span(whole) if len(whole) == len(gpus) else None


def _missing(why: Explaining, held: _Held) -> Iterator[Missing]:
    if why.snapshot.numa_nodes is None:
        yield Missing(part=None, what="NUMA nodes")
        return
    name = _name(why.pod, why.container)
    yield from (
        Missing(part=None, what=f"NUMA node of {one.name} in {name}")
        for one in held.gpus
        if one.node is None
    )
    yield from (
        Missing(part=Part.GPUS, what=f"GPU {one.name} in {name}")
        for one in held.gpus
        if one.gpu is None
    )
    yield from (
        Missing(part=Part.HCAS if held.gpus else None, what=f"NUMA node of {one.name} in {name}")
        for one in held.hcas
        if one.node is None
    )
    if held.cpus.nodes is None:
        yield Missing(part=Part.CPUS, what=f"CPUs of {name}")
    if held.memory.nodes is None:
        yield Missing(part=Part.MEMORY, what=f"memory of {name}")


def _name(pod: Pod, container: Container) -> str:
    return f"{pod.namespace}/{pod.name} container {container.name}"
