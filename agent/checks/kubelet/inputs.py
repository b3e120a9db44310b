"""What rules on the kubelet need to know, and how a finding names a setting."""

import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from agent.checks.inputs import (
    Inputs,
    because,
    missing_gpus,
    missing_numa_nodes,
    no_gpus,
)
from agent.checks.rule import Finding
from agent.model.kubelet import KubeletSettings
from agent.model.kubernetes import go_bool, quantity
from agent.model.snapshot import Snapshot

ATTRIBUTES: Mapping[str, str] = MappingProxyType(
    {
        "cpuManagerPolicy": "cpu_manager_policy",
        "cpuManagerPolicyOptions": "cpu_manager_options",
        "memoryManagerPolicy": "memory_manager_policy",
        "topologyManagerPolicy": "topology_manager_policy",
        "topologyManagerScope": "topology_manager_scope",
        "topologyManagerPolicyOptions": "topology_manager_options",
        "reservedSystemCPUs": "reserved_system_cpus",
        "systemReserved": "system_reserved",
        "kubeReserved": "kube_reserved",
        "evictionHard": "eviction_hard",
        "reservedMemory": "reserved_memory",
        "featureGates": "feature_gates",
        "enforceNodeAllocatable": "enforce_node_allocatable",
        "systemReservedCgroup": "system_reserved_cgroup",
        "kubeReservedCgroup": "kube_reserved_cgroup",
        "cgroupDriver": "cgroup_driver",
        "cpuCFSQuota": "cpu_cfs_quota",
        "failSwapOn": "fail_swap_on",
        "memorySwap.swapBehavior": "swap_behavior",
        "podPidsLimit": "pod_pids_limit",
        "maxPods": "max_pods",
    },
)
"""Fields of KubeletConfiguration v1beta1, and where :class:`KubeletSettings` has them."""

_Settings = Callable[[Snapshot], KubeletSettings | None]
_LIST = re.compile(r"[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*")


def running(snapshot: Snapshot) -> KubeletSettings | None:
    """Return the settings that are in force."""
    return snapshot.kubelet


def starting(snapshot: Snapshot) -> KubeletSettings | None:
    """Return the settings with which the kubelet starts next, which may stop it from starting."""
    return snapshot.kubelet_on_disk or snapshot.kubelet


def stated(settings: KubeletSettings, field: str) -> Any:
    """Return the value of *field* of KubeletConfiguration; ``None`` where it is not known."""
    return getattr(settings, ATTRIBUTES[field])


def lacking(snapshot: Snapshot, settings: KubeletSettings | None, *fields: str) -> Inputs:
    """Name those of *fields* that are not known, or the settings as a whole."""
    if settings is None:
        return (f"kubelet settings{because(snapshot, 'kubelet')}",)
    return tuple(field for field in fields if stated(settings, field) is None)


def missing_settings(source: _Settings, *fields: str) -> Callable[[Snapshot], Inputs]:
    """Need GPUs to be known, and *fields* of the settings that *source* finds."""

    def missing(snapshot: Snapshot) -> Inputs:
        return missing_gpus(snapshot) + lacking(snapshot, source(snapshot), *fields)

    return missing


def missing_settings_and_nodes(source: _Settings, *fields: str) -> Callable[[Snapshot], Inputs]:
    """Need the same, and the NUMA nodes."""
    settings = missing_settings(source, *fields)

    def missing(snapshot: Snapshot) -> Inputs:
        return settings(snapshot) + missing_numa_nodes(snapshot)

    return missing


def unless(source: _Settings, field: str, *values: str) -> Callable[[Snapshot], str | None]:
    """Skip where *field* is known and is none of *values*, and where there is no GPU."""

    def skips(snapshot: Snapshot) -> str | None:
        settings = source(snapshot)
        value = None if settings is None else stated(settings, field)
        if value is None or value in values:
            return no_gpus(snapshot)
        return f"{field} is {value}"

    return skips


def place(settings: KubeletSettings, field: str) -> str:
    """Return *field* with the file or flag that states it, as a finding names it."""
    if settings.origins is None:
        return f"{field} in {settings.source}"
    inner = f"{field}."
    for name, origin in settings.origins.items():
        if name == field or name.startswith(inner):
            return f"{field} in {origin}"
    return f"{field}, not stated in {settings.source}"


def version(snapshot: Snapshot) -> str | None:
    """Return the version of the kubelet, as itself or the Node tells it."""
    of_node = snapshot.node_status.kubelet_version if snapshot.node_status else None
    settings = (snapshot.kubelet, snapshot.kubelet_on_disk)
    return next((one.version for one in settings if one and one.version), of_node)


def amount(text: str, *, per_unit: int = 1) -> int | None:
    """Return a quantity in 1/*per_unit*; ``None`` where it is none, which stops the kubelet."""
    try:
        return quantity(text, per_unit=per_unit)
    except ValueError:
        return None


def reserved(settings: KubeletSettings, resource: str, *, per_unit: int = 1) -> int | None:
    """Return what systemReserved and kubeReserved keep of *resource* together.

    ``None`` where one of them is not known or no quantity.
    """
    total = 0
    for reservation in (settings.system_reserved, settings.kube_reserved):
        if reservation is None:
            return None
        held = amount(reservation.get(resource, "0"), per_unit=per_unit)
        if held is None or held < 0:
            return None
        total += held
    return total


def unreadable(settings: KubeletSettings, resource: str) -> Iterator[Finding]:
    """Find each reservation of *resource* that is no quantity, with which no kubelet starts."""
    for field in ("systemReserved", "kubeReserved"):
        text = (stated(settings, field) or {}).get(resource, "0")
        found = amount(text)
        if found is None or found < 0:
            observed = f"{resource}: {text}"
            yield Finding(subject=place(settings, field), observed=observed, expected="a quantity")


def is_on(options: Mapping[str, str] | None, name: str) -> bool:
    """Return whether a policy option is stated and true."""
    return go_bool((options or {}).get(name, "")) is True


def is_cpu_list(text: str) -> bool:
    """Return whether the kubelet can read *text* as CPUs (``k8s.io/utils/cpuset`` Parse)."""
    return _LIST.fullmatch(text) is not None
