"""A pod's requests from the aligning managers: whole CPUs, memory and devices.

Source: kubernetes 1.36 pkg/kubelet/cm/cpumanager/policy_static.go (guaranteedCPUs),
memorymanager/policy_static.go (getContainerRequestedResources) and devicemanager/topology_hints.go.
"""

from collections.abc import Iterable

from msgspec import Struct

from nodetopo.model.kubernetes import GIB, MIB, MILLICORES, quantity
from nodetopo.model.pod import Amounts, Container, ContainerKind, Pod, at_once
from nodetopo.model.qos import HUGE_PAGES, QosClass, asks_as_a_pod

_SUFFIXES = ("", "Ki", "Mi", "Gi", "Ti")
_STEP = 1024
"""From one suffix to the next."""
_MEBI = 2
"""The suffix from which on a size is short enough to be written exactly."""


class Request(Struct, frozen=True):
    """The simultaneous requests of a container, or in scope ``pod`` of a whole pod."""

    devices: Amounts
    cpus: int
    memory: Amounts

    @property
    def amounts(self) -> dict[str, int]:
        """Resource → amount, in the unit of requests."""
        return {**self.devices, "cpu": self.cpus * MILLICORES, **self.memory}


def request_of(pod: Pod, container: Container, device_resources: Iterable[str]) -> Request:
    limits = container.limits or {}
    return Request(
        {name: limits[name] for name in sorted(device_resources) if name in limits},
        whole_cpus(pod, container),
        pinned_memory(pod, container),
    )


def request_of_pod(pod: Pod, device_resources: Iterable[str]) -> Request:
    """Return what the whole *pod* requests at once; of memory the kinds that app containers use."""
    names = tuple(device_resources)
    devices = at_once(pod, lambda container: request_of(pod, container, names).devices)
    cpus = at_once(pod, lambda container: {"cpu": whole_cpus(pod, container)})
    memory = at_once(pod, lambda container: pinned_memory(pod, container))
    apps = [container for container in pod.containers if container.kind is ContainerKind.APP]
    kinds = {kind for container in apps for kind in pinned_memory(pod, container)}
    return Request(
        dict(sorted(devices.items())),
        cpus.get("cpu", 0),
        {kind: memory[kind] for kind in sorted(kinds)},
    )


def is_memory(resource: str) -> bool:
    """Return whether the Memory Manager manages *resource*."""
    return resource == "memory" or resource.startswith(HUGE_PAGES)


def is_pinned(pod: Pod) -> bool:
    """Return whether the CPU and Memory Managers pin resources of *pod*.

    They ignore a pod with pod-level resources, unless the feature gate PodLevelResourceManagers is
    on; it is off by default up to 1.37.
    """
    return pod.qos_class == QosClass.GUARANTEED and not asks_as_a_pod(pod)


def whole_cpus(pod: Pod, container: Container) -> int:
    """Return the number of CPUs that *container* gets exclusively under CPU policy ``static``."""
    amount = (container.requests or {}).get("cpu", 0)
    return amount // MILLICORES if is_pinned(pod) and amount % MILLICORES == 0 else 0


def pinned_memory(pod: Pod, container: Container) -> dict[str, int]:
    """Return the memory of *container* that the Memory Manager pins, by kind."""
    if not is_pinned(pod):
        return {}
    return {name: size for name, size in (container.requests or {}).items() if is_memory(name)}


def amount_text(name: str, amount: int) -> str:
    """Return an *amount* of the resource *name* as in a manifest.

    It is exact where it is a whole number of MiB, as all amounts that are suggested are; other
    sizes have four digits.
    """
    if name == "cpu":
        return f"{amount}m" if amount % MILLICORES else str(amount // MILLICORES)
    if not is_memory(name):
        return str(amount)
    rest, power = amount, 0
    while rest and power < len(_SUFFIXES) - 2 and rest % _STEP == 0:
        rest, power = rest // _STEP, power + 1
    return f"{rest}{_SUFFIXES[power]}" if power >= _MEBI else size_text(amount)


def size_text(size: int) -> str:
    """Return a number of bytes with four digits, in the largest binary unit that it fills."""
    power = min(max(size.bit_length() - 1, 0) // 10, len(_SUFFIXES) - 1)
    return f"{size / _STEP**power:.4g}{_SUFFIXES[power]}"


def unit_of(name: str, amount: int) -> str:
    """Return what follows the text of an *amount*, as in ``4 CPUs`` and ``8Gi of memory``."""
    if name == "cpu":
        return " CPU" if amount % MILLICORES or amount == MILLICORES else " CPUs"
    return f" of {name}" if is_memory(name) else f" {name}"


def grain_of(name: str, amount: int) -> int:
    """Return the step in which people write about *amount*: whole GiB, MiB or pages, else 1."""
    if not is_memory(name):
        return 1
    usual = GIB if amount >= GIB else MIB
    if name == "memory":
        return usual
    try:
        return max(quantity(name.removeprefix(HUGE_PAGES)), MIB)
    except ValueError:
        return usual
