"""Inputs of the rules on the kubelet, the guard by a policy, and how a finding names a setting."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from nodetopo.checks.inputs import because, missing_gpus, missing_numa_nodes, no_gpus
from nodetopo.checks.rule import (
    Cure,
    Finding,
    Judgement,
    Missing,
    Reason,
    Rule,
    Severity,
    rule,
)
from nodetopo.model.kubelet import KubeletSettings
from nodetopo.model.kubernetes import go_bool, quantity
from nodetopo.model.numa import CpuSet
from nodetopo.model.snapshot import Snapshot

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

_LIST = re.compile(r"[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*")


def running(snapshot: Snapshot) -> KubeletSettings | None:
    """Return the settings that are in force."""
    return snapshot.kubelet


def starting(snapshot: Snapshot) -> KubeletSettings | None:
    """Return the settings of the kubelet's next start, which can fail because of them."""
    return snapshot.kubelet_on_disk or snapshot.kubelet


def stated(settings: KubeletSettings, field: str) -> Any:
    """Return the value of *field* of KubeletConfiguration; ``None`` where it is not known."""
    return getattr(settings, ATTRIBUTES[field])


def lacking(
    snapshot: Snapshot, settings: KubeletSettings | None, *fields: str
) -> tuple[Missing, ...]:
    """Name the settings as a whole, or the unknown ones among *fields*."""
    if settings is None:
        return (Missing("kubelet settings", because(snapshot, "kubelet")),)
    return tuple(Missing(field) for field in fields if stated(settings, field) is None)


def missing_settings(
    snapshot: Snapshot, settings: KubeletSettings | None, *fields: str
) -> Iterator[Missing]:
    """Name the GPUs, the settings as a whole, or the unknown ones among *fields*."""
    yield from missing_gpus(snapshot)
    yield from lacking(snapshot, settings, *fields)


def missing_settings_and_nodes(
    snapshot: Snapshot, settings: KubeletSettings | None, *fields: str
) -> Iterator[Missing]:
    """Name the same, and the NUMA nodes."""
    yield from missing_settings(snapshot, settings, *fields)
    yield from missing_numa_nodes(snapshot)


def other_value(
    snapshot: Snapshot, settings: KubeletSettings | None, field: str, *values: str
) -> str | None:
    """Return why a rule about *values* of *field* does not apply: another value, or no GPU."""
    value = None if settings is None else stated(settings, field)
    if value is None or value in values:
        return no_gpus(snapshot)
    return f"{field} is {value}"


Need: TypeAlias = str | Callable[[Snapshot], Iterable[Missing]]
"""A field that must be known, or a function that names other missing inputs."""


def need(what: str, fact: Callable[[Snapshot], object]) -> Need:
    """Return a function that names *what* as missing unless *fact* is true."""
    return lambda snapshot: () if fact(snapshot) else (Missing(what),)


def kubelet_rule(
    code: str,
    severity: Severity,
    *,
    policy: tuple[str, ...],
    needs: tuple[Need, ...] = (),
    of: Callable[[Snapshot], KubeletSettings | None] = starting,
    unless: tuple[Reason, ...] = (),
    cure: Cure | None = None,
) -> Callable[[Callable[[Snapshot, KubeletSettings], Judgement]], Rule]:
    """Return a decorator that makes a generator a rule on kubelets with some policy.

    Missing inputs are named first; the generator runs if the policy is known to be one of these.

    Args:
        policy: a field, and the values of it to which the rule applies.
        needs: further inputs; fields are named first.
        of: selects the settings that count.
        unless: reasons that precede another policy.
    """
    field, *values = policy
    fields = [need for need in needs if isinstance(need, str)]
    others = [need for need in needs if not isinstance(need, str)]

    def other_policy(snapshot: Snapshot) -> str | None:
        return other_value(snapshot, of(snapshot), field, *values)

    def decorated(judge: Callable[[Snapshot, KubeletSettings], Judgement]) -> Rule:
        def judge_or_missing(snapshot: Snapshot) -> Judgement:
            settings = of(snapshot)
            yield from missing_settings(snapshot, settings, field, *fields)
            for missing in others:
                yield from missing(snapshot)
            if settings is not None and stated(settings, field) in values:
                yield from judge(snapshot, settings)

        reasons = (*unless, other_policy)
        return rule(code, severity, unless=reasons, cure=cure)(judge_or_missing)

    return decorated


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
    """Return the version of the kubelet, from the kubelet or the Node object."""
    return snapshot.kubelet_version


def amount(text: str, *, per_unit: int = 1) -> int | None:
    """Return a quantity in 1/*per_unit*; ``None`` where it is none, which stops the kubelet."""
    try:
        return quantity(text, per_unit=per_unit)
    except ValueError:
        return None


def reserved(settings: KubeletSettings, resource: str, *, per_unit: int = 1) -> int | None:
    """Return the sum of *resource* in systemReserved and kubeReserved.

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
        held = amount(text)
        if held is None or held < 0:
            observed = f"{resource}: {text}"
            yield Finding(subject=place(settings, field), observed=observed, expected="a quantity")


def is_on(options: Mapping[str, str] | None, name: str) -> bool:
    """Return whether a policy option is set and true."""
    return go_bool((options or {}).get(name, "")) is True


def is_cpu_list(text: str) -> bool:
    """Return whether the kubelet can parse *text* as CPUs (``k8s.io/utils/cpuset`` Parse)."""
    return _LIST.fullmatch(text) is not None


def reserved_cpus(settings: KubeletSettings) -> CpuSet | None:
    """Return the CPUs of ``reservedSystemCPUs``; ``None`` where it states none or no CPUs."""
    text = settings.reserved_system_cpus
    if not text or not is_cpu_list(text):
        return None
    try:
        return CpuSet.parse(text)
    except ValueError:
        return None
