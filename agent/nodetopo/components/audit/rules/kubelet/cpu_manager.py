"""Rules on the CPU Manager: options that give pods better CPUs, and reserved CPUs."""

from nodetopo.checks.rule import Finding, Judgement, Missing, Severity, Skip, rule
from nodetopo.components.audit.rules.kubelet.inputs import (
    is_on,
    kubelet_rule,
    missing_settings,
    missing_settings_and_nodes,
    need,
    other_value,
    place,
    reserved,
    reserved_cpus,
    starting,
    unreadable,
    version,
)
from nodetopo.components.audit.rules.kubelet.known_bugs import WHOLE_CORES_SINCE
from nodetopo.components.audit.rules.kubelet.remedies import (
    cpu_option,
    first,
    restarted_with,
    spread,
    updated,
    whole_cores_reserved,
)
from nodetopo.model.kubelet import KubeletSettings
from nodetopo.model.kubernetes import MILLICORES, Release, release
from nodetopo.model.numa import CpuSet
from nodetopo.model.snapshot import Snapshot

_POLICY = "cpuManagerPolicy"
_STATIC = "static"
_OPTIONS = "cpuManagerPolicyOptions"
_RESERVED = "reservedSystemCPUs"
_AMOUNTS = ("systemReserved", "kubeReserved")

_STRICT_SINCE: Release = (1, 33)
_CACHE_SINCE: Release = (1, 34)
"""Since when the options need no alpha gate (pkg/kubelet/cm/cpumanager/policy_options.go)."""


@rule(
    "KUB-011",
    Severity.WARNING,
    cure=first(
        updated(WHOLE_CORES_SINCE), restarted_with(cpu_option("full-pcpus-only"), drained=True)
    ),
)
def whole_cores(snapshot: Snapshot) -> Judgement:
    """Expect full-pcpus-only where cores have several threads."""
    settings, cpu = starting(snapshot), snapshot.cpu
    if cpu is not None and cpu.smt is False:
        yield Skip("the CPU's cores have one thread")
        return
    if reason := other_value(snapshot, settings, _POLICY, _STATIC):
        yield Skip(reason)
        return
    yield from missing_settings(snapshot, settings, _POLICY, _OPTIONS)
    if cpu is None or cpu.smt is None:
        yield Missing("hardware threads of the CPU")
        return
    # The two contradict each other; spreading over cores was chosen knowingly.
    if settings and not is_on(settings.cpu_manager_options, "distribute-cpus-across-cores"):
        yield from _expect_option(settings, "full-pcpus-only")


@rule(
    "KUB-012",
    Severity.INFO,
    cure=restarted_with(cpu_option("strict-cpu-reservation"), drained=True),
)
def strict_reservation(snapshot: Snapshot) -> Judgement:
    """Expect strict-cpu-reservation where CPUs are reserved by number."""
    settings, number = starting(snapshot), release(version(snapshot))
    if settings is not None and not settings.reserved_system_cpus:
        yield Skip(f"{_RESERVED} is not stated")
        return
    reason = other_value(snapshot, settings, _POLICY, _STATIC) or _older(number, _STRICT_SINCE)
    if reason:
        yield Skip(reason)
        return
    yield from missing_settings(snapshot, settings, _POLICY, _OPTIONS)
    if number is None:
        yield Missing("version of the kubelet")
    elif settings is not None:
        yield from _expect_option(settings, "strict-cpu-reservation")


@rule("KUB-013", Severity.INFO, cure=restarted_with(cpu_option("prefer-align-cpus-by-uncorecache")))
def shared_caches(snapshot: Snapshot) -> Judgement:
    """Expect prefer-align-cpus-by-uncorecache where a NUMA node has several L3 caches."""
    settings, number = starting(snapshot), release(version(snapshot))
    cpu, nodes = snapshot.cpu, snapshot.numa_nodes
    if cpu is not None and cpu.is_virtual:
        yield Skip("virtual machine")
        return
    has_caches = cpu is not None and bool(cpu.l3_groups)
    if cpu is not None and cpu.l3_groups and nodes is not None:
        groups = cpu.l3_groups
        if all(sum(group <= node.cpus for group in groups) <= 1 for node in nodes):
            yield Skip("each NUMA node has one L3 cache")
            return
    reason = other_value(snapshot, settings, _POLICY, _STATIC) or _older(number, _CACHE_SINCE)
    if reason:
        yield Skip(reason)
        return
    missing = [*missing_settings(snapshot, settings, _POLICY, _OPTIONS)]
    if number is None:
        missing.append(Missing("version of the kubelet"))
    if nodes is None:
        missing.append(Missing("NUMA nodes"))
    if not has_caches:
        missing.append(Missing("L3 caches of the CPU"))
    yield from missing
    if missing or settings is None:
        return
    # The kubelet refuses it together with the options that spread CPUs.
    spreads = ("distribute-cpus-across-numa", "distribute-cpus-across-cores")
    if not any(is_on(settings.cpu_manager_options, option) for option in spreads):
        yield from _expect_option(settings, "prefer-align-cpus-by-uncorecache")


def _older(number: Release | None, since: Release) -> str | None:
    """Return why an option cannot be used by a kubelet of release *number*."""
    is_older = number is not None and number < since
    return f"Kubernetes {since[0]}.{since[1]} is needed" if is_older else None


def _expect_option(settings: KubeletSettings, option: str) -> Judgement:
    """Yield a finding where the static CPU Manager is known to run without *option*."""
    if settings.cpu_manager_options is None or settings.cpu_manager_policy != _STATIC:
        return
    if not is_on(settings.cpu_manager_options, option):
        yield Finding(
            subject=place(settings, _OPTIONS),
            observed=f"{option} is not on",
            expected=f"{option}: true",
        )


@kubelet_rule(
    "KUB-002",
    Severity.ERROR,
    policy=(_POLICY, _STATIC),
    needs=(*_AMOUNTS, need("online CPUs", lambda snapshot: snapshot.cpu)),
    cure=restarted_with(spread),
)
def reservation(snapshot: Snapshot, settings: KubeletSettings) -> Judgement:
    """Check the reserved CPUs as the kubelet does at its start, by number or by amount."""
    online = snapshot.cpu.online if snapshot.cpu else None
    if text := settings.reserved_system_cpus:
        cpus, observed = reserved_cpus(settings), None
        if cpus is None:
            observed = text
        elif online is not None and not cpus <= online:
            observed = f"{text}, of which {CpuSet(cpus.cpus - online.cpus)} are not online"
        if observed:
            expected = "a list of CPUs that are online"
            yield Finding(subject=place(settings, _RESERVED), observed=observed, expected=expected)
        for field, cgroup in (
            ("systemReservedCgroup", settings.system_reserved_cgroup),
            ("kubeReservedCgroup", settings.kube_reserved_cgroup),
        ):
            if cgroup:
                expected = f"not set together with {_RESERVED}"
                yield Finding(subject=place(settings, field), observed=cgroup, expected=expected)
        return
    yield from unreadable(settings, "cpu")
    millicores = reserved(settings, "cpu", per_unit=MILLICORES)
    subject = " and ".join(place(settings, field) for field in _AMOUNTS)
    if millicores == 0:
        expected = f"CPUs in {_RESERVED}, systemReserved or kubeReserved"
        yield Finding(subject=subject, observed="no CPU reserved", expected=expected)
    elif millicores and online is not None and _whole(millicores) > len(online):
        observed = f"{millicores}m of {len(online)} CPUs"
        yield Finding(subject=subject, observed=observed, expected="fewer CPUs than are online")


@kubelet_rule(
    "KUB-014",
    Severity.WARNING,
    policy=(_POLICY, _STATIC),
    needs=(*_AMOUNTS, need("CPU cores", lambda snapshot: snapshot.cpu and snapshot.cpu.cores)),
    cure=restarted_with(whole_cores_reserved, drained=True),
)
def reserved_cores(snapshot: Snapshot, settings: KubeletSettings) -> Judgement:
    """Look for cores of which only some threads are reserved."""
    cores = snapshot.cpu.cores if snapshot.cpu is not None else None
    if not cores:
        return
    expected = "all threads of each core"
    if text := settings.reserved_system_cpus:
        cpus = reserved_cpus(settings)
        split = [core for core in cores if core & cpus and not core <= cpus] if cpus else []
        if cpus and split:
            left = CpuSet.of(cpu for core in split for cpu in core if cpu not in cpus)
            observed = f"{text}, without the other threads {left}"
            yield Finding(subject=place(settings, _RESERVED), observed=observed, expected=expected)
        return
    threads = max(map(len, cores))
    millicores = reserved(settings, "cpu", per_unit=MILLICORES)
    if millicores and _whole(millicores) % threads:
        yield Finding(
            subject=" and ".join(place(settings, field) for field in _AMOUNTS),
            observed=f"{_whole(millicores)} CPUs, with {threads} to a core",
            expected=expected,
        )


@rule("KUB-015", Severity.INFO, cure=restarted_with(spread, drained=True))
def spread_reservation(snapshot: Snapshot) -> Judgement:
    """Look for a reservation that lies on one of several NUMA nodes with GPUs."""
    settings, nodes = starting(snapshot), snapshot.numa_nodes
    if settings is not None and not settings.reserved_system_cpus:
        yield Skip(f"{_RESERVED} is not stated")
        return
    without_node = [gpu.name for gpu in snapshot.gpus if gpu.numa_node is None]
    near = {gpu.numa_node for gpu in snapshot.gpus if gpu.numa_node is not None}
    if nodes is not None and not without_node and len(near) == 1:
        yield Skip("all GPUs have one NUMA node")
        return
    if reason := other_value(snapshot, settings, _POLICY, _STATIC):
        yield Skip(reason)
        return
    yield from missing_settings_and_nodes(snapshot, settings, _POLICY)
    if without_node:
        yield Missing(f"NUMA node of {', '.join(without_node)}")
    if settings is None or settings.cpu_manager_policy != _STATIC:
        return
    cpus = reserved_cpus(settings)
    with_gpus = [node for node in nodes or () if node.id in near]
    home = next((node.id for node in with_gpus if cpus and cpus <= node.cpus), None)
    if not cpus or home is None or len(near) <= 1:
        return
    left = ", ".join(f"{len(node.cpus.cpus - cpus.cpus)} on node {node.id}" for node in with_gpus)
    yield Finding(
        subject=place(settings, _RESERVED),
        observed=f"{cpus}, all on NUMA node {home}; CPUs left for pods: {left}",
        expected="about as many on each NUMA node that has GPUs",
    )


def _whole(millicores: int) -> int:
    # The kubelet takes the ceiling: a part of a CPU cannot be kept from others.
    return -(-millicores // MILLICORES)
