"""Rules on the kubelet's settings that decide alignment."""

from collections.abc import Callable

from agent.checks.inputs import missing_setting, needs_alignment
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.kubelet import KubeletSettings
from agent.model.snapshot import Snapshot

_Setting = Callable[[KubeletSettings], str | None]
_TASKS = "https://kubernetes.io/docs/tasks/administer-cluster"


def _cpu_policy(settings: KubeletSettings) -> str | None:
    return settings.cpu_manager_policy


def _topology_policy(settings: KubeletSettings) -> str | None:
    return settings.topology_manager_policy


def _memory_policy(settings: KubeletSettings) -> str | None:
    return settings.memory_manager_policy


def _expect(
    field: str,
    setting: _Setting,
    good: tuple[str, ...],
) -> Callable[[Snapshot], tuple[Finding, ...]]:
    """Find fault with any other value of *field* where there is something to align."""

    def check(snapshot: Snapshot) -> tuple[Finding, ...]:
        settings = snapshot.kubelet
        if settings is None or not needs_alignment(snapshot):
            return ()
        observed = setting(settings)
        if observed is None or observed in good:
            return ()
        subject = f"{field} in {settings.source}"
        return (Finding(subject=subject, observed=observed, expected=" | ".join(good)),)

    return check


RULES: tuple[Rule, ...] = (
    Rule(
        code="KUB-001",
        claim="the CPU Manager gives exclusive CPUs",
        why="Without exclusive CPUs the threads of a pod roam over all sockets, whatever GPUs "
        "it has; the Topology Manager has no CPUs to align.",
        area=Area.KUBELET,
        suite=Suite.AUDIT,
        severity=Severity.ERROR,
        needs=missing_setting("cpuManagerPolicy", _cpu_policy),
        check=_expect("cpuManagerPolicy", _cpu_policy, ("static",)),
        remedy="set cpuManagerPolicy: static with reservedSystemCPUs; drain the node, delete "
        "cpu_manager_state and restart the kubelet",
        reference=f"{_TASKS}/cpu-management-policies/",
    ),
    Rule(
        code="KUB-003",
        claim="the Topology Manager aligns devices with CPUs",
        why="With policy none the kubelet hands out GPUs and CPUs without regard to their NUMA "
        "nodes.",
        area=Area.KUBELET,
        suite=Suite.AUDIT,
        severity=Severity.ERROR,
        needs=missing_setting("topologyManagerPolicy", _topology_policy),
        check=_expect(
            "topologyManagerPolicy",
            _topology_policy,
            ("best-effort", "restricted", "single-numa-node"),
        ),
        remedy="set topologyManagerPolicy: best-effort where jobs may span NUMA nodes, "
        "single-numa-node where none may, and restart the kubelet",
        reference=f"{_TASKS}/topology-manager/",
    ),
    Rule(
        code="KUB-004",
        claim="the Memory Manager pins memory",
        why="Without it the memory of a pod may lie on the other socket than its GPUs and CPUs.",
        area=Area.KUBELET,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=missing_setting("memoryManagerPolicy", _memory_policy),
        check=_expect("memoryManagerPolicy", _memory_policy, ("Static",)),
        remedy="set memoryManagerPolicy: Static and reservedMemory to the sum of kubeReserved, "
        "systemReserved and evictionHard; drain the node, delete memory_manager_state and "
        "restart the kubelet",
        reference=f"{_TASKS}/memory-manager/",
    ),
)
