"""Rules on the CPUs that the kubelet keeps for the system."""

from collections.abc import Iterator, Sequence

from agent.checks.inputs import Inputs, no_gpus
from agent.checks.kubelet.inputs import (
    is_cpu_list,
    is_on,
    missing_settings,
    missing_settings_and_nodes,
    place,
    reserved,
    starting,
    unless,
    unreadable,
    version,
)
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.kubelet import KubeletSettings
from agent.model.kubernetes import MILLICORES, Release, release
from agent.model.numa import CpuSet, CpuTopology, NumaNode
from agent.model.snapshot import Snapshot

# Rules on options of the CPU Manager that give pods better CPUs.

_CHOICES_FIELD = "cpuManagerPolicyOptions"


_STATIC = "static"


_WHOLE = "full-pcpus-only"


_STRICT = "strict-cpu-reservation"


_CACHE = "prefer-align-cpus-by-uncorecache"


_SPREADS = ("distribute-cpus-across-numa", "distribute-cpus-across-cores")


_CHOICES_DOCS = "https://kubernetes.io/docs/tasks/administer-cluster/cpu-management-policies/"


_STRICT_SINCE: Release = (1, 33)


_CACHE_SINCE: Release = (1, 34)
"""Since when the options need no alpha gate (pkg/kubelet/cm/cpumanager/policy_options.go)."""


_not_static = unless(starting, "cpuManagerPolicy", _STATIC)


def _choices_static(snapshot: Snapshot) -> KubeletSettings | None:
    settings = starting(snapshot)
    is_known = settings is not None and settings.cpu_manager_options is not None
    is_static = is_known and settings is not None and settings.cpu_manager_policy == _STATIC
    return settings if is_static and no_gpus(snapshot) is None else None


def _off(settings: KubeletSettings, option: str) -> tuple[Finding, ...]:
    if is_on(settings.cpu_manager_options, option):
        return ()
    observed = f"{option} is not on"
    return (
        Finding(
            subject=place(settings, _CHOICES_FIELD), observed=observed, expected=f"{option}: true"
        ),
    )


_needs_options = missing_settings(starting, "cpuManagerPolicy", _CHOICES_FIELD)


def _needs_smt(snapshot: Snapshot) -> Inputs:
    is_known = snapshot.cpu is not None and snapshot.cpu.smt is not None
    return _needs_options(snapshot) + (() if is_known else ("hardware threads of the CPU",))


def _without_smt(snapshot: Snapshot) -> str | None:
    if snapshot.cpu is not None and snapshot.cpu.smt is False:
        return "the CPU's cores have one thread"
    return _not_static(snapshot)


def _shared_cores(snapshot: Snapshot) -> tuple[Finding, ...]:
    settings = _choices_static(snapshot)
    if settings is None or snapshot.cpu is None or not snapshot.cpu.smt:
        return ()
    # The two contradict each other; spreading over cores was chosen knowingly.
    if is_on(settings.cpu_manager_options, "distribute-cpus-across-cores"):
        return ()
    return _off(settings, _WHOLE)


def _needs_release(snapshot: Snapshot) -> Inputs:
    is_known = release(version(snapshot)) is not None
    return _needs_options(snapshot) + (() if is_known else ("version of the kubelet",))


def _older(snapshot: Snapshot, since: Release) -> str | None:
    found = release(version(snapshot))
    return f"{_name(since)} is needed" if found is not None and found < since else None


def _name(since: Release) -> str:
    return f"Kubernetes {since[0]}.{since[1]}"


def _without_strictness(snapshot: Snapshot) -> str | None:
    settings = starting(snapshot)
    if settings is not None and not settings.reserved_system_cpus:
        return "reservedSystemCPUs is not stated"
    return _not_static(snapshot) or _older(snapshot, _STRICT_SINCE)


def _loose_reservation(snapshot: Snapshot) -> tuple[Finding, ...]:
    settings = _choices_static(snapshot)
    is_asked = settings is not None and settings.reserved_system_cpus
    if settings is None or not is_asked or release(version(snapshot)) is None:
        return ()
    return _off(settings, _STRICT)


def _needs_caches(snapshot: Snapshot) -> Inputs:
    is_known = snapshot.cpu is not None and bool(snapshot.cpu.l3_groups)
    nodes = () if snapshot.numa_nodes is not None else ("NUMA nodes",)
    return _needs_release(snapshot) + nodes + (() if is_known else ("L3 caches of the CPU",))


def _without_caches(snapshot: Snapshot) -> str | None:
    cpu, nodes = snapshot.cpu, snapshot.numa_nodes
    if cpu is not None and cpu.is_virtual:
        return "virtual machine"
    if cpu is not None and cpu.l3_groups and nodes is not None and not _is_split(cpu, nodes):
        return "each NUMA node has one L3 cache"
    return _not_static(snapshot) or _older(snapshot, _CACHE_SINCE)


def _is_split(cpu: CpuTopology, nodes: tuple[NumaNode, ...]) -> bool:
    return any(sum(group <= node.cpus for group in cpu.l3_groups) > 1 for node in nodes)


def _split_caches(snapshot: Snapshot) -> tuple[Finding, ...]:
    settings = _choices_static(snapshot)
    if settings is None or _needs_caches(snapshot):
        return ()
    # The kubelet refuses it beside the options that spread CPUs.
    if any(is_on(settings.cpu_manager_options, option) for option in _SPREADS):
        return ()
    return _off(settings, _CACHE)


CHOICES_RULES: tuple[Rule, ...] = (
    Rule(
        code="KUB-011",
        claim="exclusive CPUs are whole cores",
        why="Without full-pcpus-only two pods may each have one thread of a core, and take cache "
        "and execution units from each other.",
        area=Area.KUBELET,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=_needs_smt,
        check=_shared_cores,
        skips=_without_smt,
        remedy='set cpuManagerPolicyOptions: {full-pcpus-only: "true"} and let pods ask for '
        "multiples of the threads of a core; drain the node, stop the kubelet, delete "
        "cpu_manager_state, start the kubelet",
        reference=f"{_CHOICES_DOCS}#full-pcpus-only",
    ),
    Rule(
        code="KUB-012",
        claim="no pod runs on reserved CPUs",
        why="Without strict-cpu-reservation, Burstable and BestEffort pods run on the CPUs of "
        "reservedSystemCPUs too.",
        area=Area.KUBELET,
        suite=Suite.AUDIT,
        severity=Severity.INFO,
        needs=_needs_release,
        check=_loose_reservation,
        skips=_without_strictness,
        remedy='set cpuManagerPolicyOptions: {strict-cpu-reservation: "true"}; drain the node, '
        "stop the kubelet, delete cpu_manager_state, start the kubelet",
        reference=f"{_CHOICES_DOCS}#strict-cpu-reservation",
    ),
    Rule(
        code="KUB-013",
        claim="exclusive CPUs share as few L3 caches as they can",
        why="Where a NUMA node has several L3 caches, CPUs of one pod on two of them are slower to "
        "reach each other's data.",
        area=Area.KUBELET,
        suite=Suite.AUDIT,
        severity=Severity.INFO,
        needs=_needs_caches,
        check=_split_caches,
        skips=_without_caches,
        remedy='set cpuManagerPolicyOptions: {prefer-align-cpus-by-uncorecache: "true"} and '
        "restart the kubelet",
        reference=f"{_CHOICES_DOCS}#prefer-align-cpus-by-uncorecache",
    ),
)


_FIELD = "reservedSystemCPUs"


_AMOUNTS = ("systemReserved", "kubeReserved")


_DOCS = "https://kubernetes.io/docs/tasks/administer-cluster"


_SERVER = "https://github.com/kubernetes/kubernetes/blob/v1.36.3/cmd/kubelet/app/server.go"


def reserved_cpus(settings: KubeletSettings) -> CpuSet | None:
    """Return the CPUs of ``reservedSystemCPUs``; ``None`` where it states none or no CPUs."""
    text = settings.reserved_system_cpus
    if not text or not is_cpu_list(text):
        return None
    try:
        return CpuSet.parse(text)
    except ValueError:
        return None


def _static(snapshot: Snapshot) -> KubeletSettings | None:
    settings = starting(snapshot)
    is_static = settings is not None and settings.cpu_manager_policy == _STATIC
    return settings if is_static and no_gpus(snapshot) is None else None


_needs_settings = missing_settings(starting, "cpuManagerPolicy", *_AMOUNTS)


def _needs_reservation(snapshot: Snapshot) -> Inputs:
    return _needs_settings(snapshot) + (("online CPUs",) if snapshot.cpu is None else ())


def _bad_reservation(snapshot: Snapshot) -> tuple[Finding, ...]:
    settings = _static(snapshot)
    if settings is None:
        return ()
    online = snapshot.cpu.online if snapshot.cpu else None
    if settings.reserved_system_cpus:
        return (*_bad_list(settings, online), *_cgroups_beside(settings))
    return (*unreadable(settings, "cpu"), *_bad_amount(settings, online))


def _bad_list(settings: KubeletSettings, online: CpuSet | None) -> tuple[Finding, ...]:
    text, cpus = settings.reserved_system_cpus or "", reserved_cpus(settings)
    expected = "a list of CPUs that are online"
    if cpus is None:
        return (Finding(subject=place(settings, _FIELD), observed=text, expected=expected),)
    if online is None or cpus <= online:
        return ()
    absent = CpuSet(cpus.cpus - online.cpus)
    observed = f"{text}, of which {absent} are not online"
    return (Finding(subject=place(settings, _FIELD), observed=observed, expected=expected),)


def _cgroups_beside(settings: KubeletSettings) -> Iterator[Finding]:
    for field, value in (
        ("systemReservedCgroup", settings.system_reserved_cgroup),
        ("kubeReservedCgroup", settings.kube_reserved_cgroup),
    ):
        if value:
            expected = f"not stated beside {_FIELD}"
            yield Finding(subject=place(settings, field), observed=value, expected=expected)


def _bad_amount(settings: KubeletSettings, online: CpuSet | None) -> Iterator[Finding]:
    millicores = reserved(settings, "cpu", per_unit=MILLICORES)
    if millicores is None:
        return
    subject = " and ".join(place(settings, field) for field in _AMOUNTS)
    if millicores == 0:
        expected = f"CPUs in {_FIELD}, systemReserved or kubeReserved"
        yield Finding(subject=subject, observed="no CPU reserved", expected=expected)
    elif online is not None and _whole(millicores) > len(online):
        observed = f"{millicores}m of {len(online)} CPUs"
        yield Finding(subject=subject, observed=observed, expected="fewer CPUs than are online")


def _whole(millicores: int) -> int:
    # The kubelet takes the ceiling: a part of a CPU cannot be kept from others.
    return -(-millicores // MILLICORES)


def _needs_cores(snapshot: Snapshot) -> Inputs:
    has_cores = snapshot.cpu is not None and bool(snapshot.cpu.cores)
    return _needs_settings(snapshot) + (() if has_cores else ("CPU cores",))


def _split_cores(snapshot: Snapshot) -> tuple[Finding, ...]:
    settings = _static(snapshot)
    if settings is None or snapshot.cpu is None or not snapshot.cpu.cores:
        return ()
    if settings.reserved_system_cpus:
        return _split_by_list(settings, snapshot.cpu.cores)
    return _split_by_amount(settings, max(map(len, snapshot.cpu.cores)))


def _split_by_list(settings: KubeletSettings, cores: Sequence[CpuSet]) -> tuple[Finding, ...]:
    cpus = reserved_cpus(settings)
    if cpus is None:
        return ()
    split = [core for core in cores if core & cpus and not core <= cpus]
    if not split:
        return ()
    left = CpuSet.of(cpu for core in split for cpu in core if cpu not in cpus)
    observed = f"{settings.reserved_system_cpus}, without the other threads {left}"
    return (_whole_cores(place(settings, _FIELD), observed),)


def _split_by_amount(settings: KubeletSettings, threads: int) -> tuple[Finding, ...]:
    millicores = reserved(settings, "cpu", per_unit=MILLICORES)
    if not millicores or _whole(millicores) % threads == 0:
        return ()
    observed = f"{_whole(millicores)} CPUs, with {threads} to a core"
    return (_whole_cores(" and ".join(place(settings, one) for one in _AMOUNTS), observed),)


def _whole_cores(subject: str, observed: str) -> Finding:
    return Finding(subject=subject, observed=observed, expected="all threads of each core")


_needs_nodes = missing_settings_and_nodes(starting, "cpuManagerPolicy")


def _needs_spread(snapshot: Snapshot) -> Inputs:
    unplaced = [gpu.name for gpu in snapshot.gpus if gpu.numa_node is None]
    return _needs_nodes(snapshot) + ((f"NUMA node of {', '.join(unplaced)}",) if unplaced else ())


def _skips_spread(snapshot: Snapshot) -> str | None:
    settings = starting(snapshot)
    if settings is not None and not settings.reserved_system_cpus:
        return f"{_FIELD} is not stated"
    is_known = snapshot.numa_nodes is not None and all(
        gpu.numa_node is not None for gpu in snapshot.gpus
    )
    if is_known and len({gpu.numa_node for gpu in snapshot.gpus}) == 1:
        return "all GPUs have one NUMA node"
    return unless(starting, "cpuManagerPolicy", _STATIC)(snapshot)


def _gathered(snapshot: Snapshot) -> tuple[Finding, ...]:
    settings = _static(snapshot)
    cpus = None if settings is None else reserved_cpus(settings)
    near = {gpu.numa_node for gpu in snapshot.gpus if gpu.numa_node is not None}
    if settings is None or not cpus or len(near) <= 1:
        return ()
    nodes = [node for node in snapshot.numa_nodes or () if node.id in near]
    home = next((node.id for node in nodes if cpus <= node.cpus), None)
    if home is None:
        return ()
    left = ", ".join(f"{len(node.cpus.cpus - cpus.cpus)} on node {node.id}" for node in nodes)
    observed = f"{cpus}, all on NUMA node {home}; CPUs left for pods: {left}"
    expected = "about as many on each NUMA node that has GPUs"
    return (Finding(subject=place(settings, _FIELD), observed=observed, expected=expected),)


RULES: tuple[Rule, ...] = (
    Rule(
        code="KUB-002",
        claim="the static CPU Manager finds the CPUs that it is to reserve",
        why="With policy static and no CPU reserved, or with reserved CPUs that are not online, "
        "the kubelet does not start.",
        area=Area.KUBELET,
        suite=Suite.AUDIT,
        severity=Severity.ERROR,
        needs=_needs_reservation,
        check=_bad_reservation,
        skips=unless(starting, "cpuManagerPolicy", _STATIC),
        remedy="state reservedSystemCPUs with CPUs that are online, without systemReservedCgroup "
        "and kubeReservedCgroup, before the kubelet restarts",
        reference=f"{_DOCS}/reserve-compute-resources/#explicitly-reserved-cpu-list",
    ),
    Rule(
        code="KUB-014",
        claim="reserved CPUs are whole cores",
        why="The other thread of a reserved CPU goes to a pod that then shares its core with the "
        "system, and with full-pcpus-only it goes to nobody.",
        area=Area.KUBELET,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=_needs_cores,
        check=_split_cores,
        skips=unless(starting, "cpuManagerPolicy", _STATIC),
        remedy="state in reservedSystemCPUs all threads of each core, as "
        "/sys/devices/system/cpu/cpu*/topology/core_cpus_list has them; drain the node, stop the "
        "kubelet, delete cpu_manager_state, start the kubelet",
        reference=f"{_DOCS}/cpu-management-policies/#static-policy",
    ),
    Rule(
        code="KUB-015",
        claim="reserved CPUs are spread over the NUMA nodes that have GPUs",
        why="Where one NUMA node pays for the whole reservation, jobs that ask for its full share "
        "of CPUs for each GPU fit on the others only.",
        area=Area.KUBELET,
        suite=Suite.AUDIT,
        severity=Severity.INFO,
        needs=_needs_spread,
        check=_gathered,
        skips=_skips_spread,
        remedy="take as many cores of each NUMA node with GPUs into reservedSystemCPUs; drain the "
        "node, stop the kubelet, delete cpu_manager_state, start the kubelet",
        reference=_SERVER,
    ),
)
