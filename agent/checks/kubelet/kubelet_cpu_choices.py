"""Rules on options of the CPU Manager that give pods better CPUs."""

from agent.checks.inputs import Inputs, no_gpus
from agent.checks.kubelet.inputs import is_on, missing_settings, place, starting, unless, version
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.kubelet import KubeletSettings
from agent.model.kubernetes import Release, release
from agent.model.numa import CpuTopology, NumaNode
from agent.model.snapshot import Snapshot

_FIELD = "cpuManagerPolicyOptions"
_STATIC = "static"
_WHOLE = "full-pcpus-only"
_STRICT = "strict-cpu-reservation"
_CACHE = "prefer-align-cpus-by-uncorecache"
_SPREADS = ("distribute-cpus-across-numa", "distribute-cpus-across-cores")
_DOCS = "https://kubernetes.io/docs/tasks/administer-cluster/cpu-management-policies/"
_STRICT_SINCE: Release = (1, 33)
_CACHE_SINCE: Release = (1, 34)
"""Since when the options need no alpha gate (pkg/kubelet/cm/cpumanager/policy_options.go)."""

_not_static = unless(starting, "cpuManagerPolicy", _STATIC)


def _static(snapshot: Snapshot) -> KubeletSettings | None:
    settings = starting(snapshot)
    is_known = settings is not None and settings.cpu_manager_options is not None
    is_static = is_known and settings is not None and settings.cpu_manager_policy == _STATIC
    return settings if is_static and no_gpus(snapshot) is None else None


def _off(settings: KubeletSettings, option: str) -> tuple[Finding, ...]:
    if is_on(settings.cpu_manager_options, option):
        return ()
    observed = f"{option} is not on"
    return (
        Finding(subject=place(settings, _FIELD), observed=observed, expected=f"{option}: true"),
    )


_needs_options = missing_settings(starting, "cpuManagerPolicy", _FIELD)


def _needs_smt(snapshot: Snapshot) -> Inputs:
    is_known = snapshot.cpu is not None and snapshot.cpu.smt is not None
    return _needs_options(snapshot) + (() if is_known else ("hardware threads of the CPU",))


def _without_smt(snapshot: Snapshot) -> str | None:
    if snapshot.cpu is not None and snapshot.cpu.smt is False:
        return "the CPU's cores have one thread"
    return _not_static(snapshot)


def _shared_cores(snapshot: Snapshot) -> tuple[Finding, ...]:
    settings = _static(snapshot)
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
    settings = _static(snapshot)
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
    settings = _static(snapshot)
    if settings is None or _needs_caches(snapshot):
        return ()
    # The kubelet refuses it beside the options that spread CPUs.
    if any(is_on(settings.cpu_manager_options, option) for option in _SPREADS):
        return ()
    return _off(settings, _CACHE)


RULES: tuple[Rule, ...] = (
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
        reference=f"{_DOCS}#full-pcpus-only",
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
        reference=f"{_DOCS}#strict-cpu-reservation",
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
        reference=f"{_DOCS}#prefer-align-cpus-by-uncorecache",
    ),
)
