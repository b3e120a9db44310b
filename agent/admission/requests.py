"""What a pod asks of the managers that align: whole CPUs, memory and devices.

Source: kubernetes 1.36 pkg/kubelet/cm/cpumanager/policy_static.go (guaranteedCPUs),
memorymanager/policy_static.go (getContainerRequestedResources) and devicemanager/topology_hints.go.
"""

from collections.abc import Iterable

from agent.model.kubernetes import MILLICORES, quantity
from agent.model.pod import Container, ContainerKind, Pod, at_once
from agent.model.qos import HUGE_PAGES, QosClass, asks_as_a_pod


def is_memory(resource: str) -> bool:
    """Return whether the Memory Manager looks after *resource*."""
    return resource == "memory" or resource.startswith(HUGE_PAGES)


def is_pinned(pod: Pod) -> bool:
    """Return whether the CPU and Memory Managers look at *pod*.

    They pass over one that states resources as a whole, unless the feature gate
    PodLevelResourceManagers is on; it is not by default up to 1.37.
    """
    return pod.qos_class == QosClass.GUARANTEED and not asks_as_a_pod(pod)


def whole_cpus(pod: Pod, container: Container) -> int:
    """Return how many CPUs *container* gets for itself under CPU Manager policy ``static``."""
    amount = (container.requests or {}).get("cpu", 0)
    return amount // MILLICORES if is_pinned(pod) and amount % MILLICORES == 0 else 0


def pinned_memory(container: Container) -> dict[str, int]:
    """Return what the Memory Manager is to pin for a container of a pod it looks at."""
    amounts = container.requests or {}
    return {name: amount for name, amount in amounts.items() if is_memory(name)}


def devices(container: Container, known: Iterable[str]) -> dict[str, int]:
    """Return the devices of *known* resources that *container* is to get, by resource."""
    limits = container.limits or {}
    return {name: limits[name] for name in sorted(known) if name in limits}


def pod_cpus(pod: Pod) -> int:
    """Return how many CPUs the whole pod needs at once."""
    return at_once(pod, lambda one: {"cpu": whole_cpus(pod, one)}).get("cpu", 0)


def pod_memory(pod: Pod) -> dict[str, int]:
    """Return the memory that the whole pod needs at once, of kinds that app containers ask for."""
    apps = (one for one in pod.containers if one.kind is ContainerKind.APP)
    kinds = {kind for app in apps for kind in pinned_memory(app)}
    found = at_once(pod, pinned_memory)
    return {kind: found[kind] for kind in sorted(kinds)}


def pod_devices(pod: Pod, known: Iterable[str]) -> dict[str, int]:
    """Return the devices that the whole pod needs at once, by resource."""
    names = tuple(known)
    return dict(sorted(at_once(pod, lambda one: devices(one, names)).items()))


def amount_of(resource: str, container: Container) -> int:
    """Return how much of *resource* a container requests."""
    return (container.requests or {}).get(resource, 0)


# Amounts of resources as people write them in a manifest.

_MIB, _GIB = 1 << 20, 1 << 30


_SUFFIXES = ("", "Ki", "Mi", "Gi")


_STEP = 1024


def amount_text(name: str, amount: int) -> str:
    """Return an *amount* of the resource *name* without its unit, exact to the last byte."""
    if name == "cpu":
        return f"{amount}m" if amount % MILLICORES else str(amount // MILLICORES)
    if not is_memory(name):
        return str(amount)
    power = 0
    while amount and power < len(_SUFFIXES) - 1 and amount % _STEP == 0:
        amount, power = amount // _STEP, power + 1
    return f"{amount}{_SUFFIXES[power]}"


def unit_of(name: str, amount: int) -> str:
    """Return what follows the text of an *amount*, as in ``4 CPUs`` and ``8Gi of memory``."""
    if name == "cpu":
        return " CPU" if amount % MILLICORES or amount == MILLICORES else " CPUs"
    return f" of {name}" if is_memory(name) else f" {name}"


def grain_of(name: str, amount: int) -> int:
    """Return the steps in which people ask for about *amount*: whole GiB, MiB, pages, else 1."""
    if not is_memory(name):
        return 1
    usual = _GIB if amount >= _GIB else _MIB
    if name == "memory":
        return usual
    try:
        return max(quantity(name.removeprefix(HUGE_PAGES)), _MIB)
    except ValueError:
        return usual
