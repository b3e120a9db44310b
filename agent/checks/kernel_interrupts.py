"""Rules on where the interrupts of HCAs go."""

from collections.abc import Iterator

from agent.checks.inputs import Inputs, missing_gpus, missing_numa_nodes, no_gpus, nothing_to_align
from agent.checks.kernel_inputs import CPU_STATE, cpu_list, missing, of_host
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.hca import Hca, HcaKind
from agent.model.host import Interrupts
from agent.model.numa import CpuSet
from agent.model.snapshot import Snapshot


def _adapters(snapshot: Snapshot) -> Iterator[Hca]:
    """Yield the HCAs that have interrupts of their own."""
    kinds = (HcaKind.PHYSICAL, HcaKind.VIRTUAL, None)
    return (hca for hca in snapshot.hcas or () if hca.kind in kinds and hca.pci is not None)


def _interrupts(snapshot: Snapshot) -> tuple[Interrupts, ...] | None:
    return of_host(snapshot, lambda host: host.interrupts)


def _without_adapters(snapshot: Snapshot) -> str | None:
    if snapshot.hcas is not None and not any(_adapters(snapshot)):
        return "no HCA"
    return nothing_to_align(snapshot)


def _missing_interrupts(snapshot: Snapshot) -> Inputs:
    if snapshot.hcas is None:
        return ("HCAs",)
    found = _interrupts(snapshot)
    if found is None:
        return missing(snapshot, found, "interrupts of HCAs", "irq")
    known = {one.hca for one in found}
    pcis = {hca.pci for hca in snapshot.hcas if hca.name in known}
    silent = [hca.name for hca in _adapters(snapshot) if hca.pci not in pcis]
    return (f"interrupts of {', '.join(silent)}",) if silent else ()


def _missing_homes(snapshot: Snapshot) -> Inputs:
    homeless = [hca.name for hca in _adapters(snapshot) if hca.numa_node is None]
    unknown = (f"NUMA node of {', '.join(homeless)}",) if homeless else ()
    nodes = missing_gpus(snapshot) + missing_numa_nodes(snapshot)
    return _missing_interrupts(snapshot) + nodes + unknown


def _away(snapshot: Snapshot) -> tuple[Finding, ...]:
    homes = {hca.name: hca.numa_node for hca in snapshot.hcas or ()}
    nodes = {node.id: node.cpus for node in snapshot.numa_nodes or ()}
    found = (
        _away_of(one, node, nodes.get(node, CpuSet()), _reserved(snapshot))
        for one in _interrupts(snapshot) or ()
        if (node := homes.get(one.hca)) is not None
    )
    return tuple(finding for finding in found if finding is not None)


def _away_of(one: Interrupts, node: int, near: CpuSet, reserved: CpuSet) -> Finding | None:
    """Return what is wrong with the interrupts of one HCA.

    A driver that makes more interrupts than its node has CPUs spreads the rest over other
    nodes; and interrupts on reserved CPUs, which no pod has, were put there.
    """
    away = CpuSet(one.cpus.cpus - near.cpus - reserved.cpus)
    overflows = one.numbers > len(near) and len(one.cpus & near) > 0
    if not len(near) or not len(away) or overflows:
        return None
    return Finding(
        subject=f"{one.hca}, {one.numbers} interrupts",
        observed=f"some go to CPUs {away}",
        expected=f"CPUs {near} of NUMA node {node}",
    )


def _reserved(snapshot: Snapshot) -> CpuSet:
    return cpu_list(snapshot.kubelet.reserved_system_cpus if snapshot.kubelet else None)


def _exclusive(snapshot: Snapshot) -> dict[str, CpuSet] | None:
    """Return the exclusive CPUs of each container by the name of the container."""
    state = snapshot.kubelet_state.cpu if snapshot.kubelet_state else None
    if state is not None:
        return {
            f"pod {uid} container {name}": cpus
            for uid, entries in (state.entries or {}).items()
            for name, cpus in entries.items()
        }
    if snapshot.pods is None:
        return None
    return {
        f"{pod.namespace}/{pod.name} container {container.name}": container.cpus
        for pod in snapshot.pods
        for container in pod.containers
        if container.cpus is not None and len(container.cpus)
    }


def _without_exclusive(snapshot: Snapshot) -> str | None:
    if _exclusive(snapshot) == {}:
        return "no container has CPUs of its own"
    if snapshot.hcas is not None and not any(_adapters(snapshot)):
        return "no HCA"
    return no_gpus(snapshot)


def _missing_exclusive(snapshot: Snapshot) -> Inputs:
    what = f"exclusive CPUs ({CPU_STATE})"
    return missing(snapshot, _exclusive(snapshot), what) + _missing_interrupts(snapshot)


def _disturbed(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            subject=name,
            observed=f"{one.hca} interrupts its CPUs {cpus & one.cpus}",
            expected="CPUs that no container has for itself",
        )
        for name, cpus in (_exclusive(snapshot) or {}).items()
        for one in _interrupts(snapshot) or ()
        if len(cpus & one.cpus)
    )


RULES: tuple[Rule, ...] = (
    Rule(
        code="KRN-010",
        claim="the interrupts of every HCA go to CPUs of its NUMA node",
        why="Completions that are handled on the other socket cross the link between the sockets "
        "twice.",
        area=Area.KERNEL,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=_missing_homes,
        check=_away,
        skips=_without_adapters,
        remedy="let irqbalance run, or write CPUs of the HCA's node to /proc/irq/N/"
        "smp_affinity_list, as `set_irq_affinity_bynode.sh` of mlnx-tools does",
        reference="https://docs.kernel.org/core-api/irq/irq-affinity.html",
    ),
    Rule(
        code="KRN-011",
        claim="no HCA interrupts a CPU that one container has for itself",
        why="The container loses time on CPUs that it paid for, and the HCA's completions wait for "
        "the container. It costs little where the job polls, as NCCL does.",
        area=Area.KERNEL,
        suite=Suite.AUDIT,
        severity=Severity.INFO,
        needs=_missing_exclusive,
        check=_disturbed,
        skips=_without_exclusive,
        remedy="reserve some CPUs of each NUMA node by reservedSystemCPUs, and keep interrupts on "
        "them by irqbalance's IRQBALANCE_BANNED_CPULIST or /proc/irq/N/smp_affinity_list",
        reference="https://docs.kernel.org/core-api/irq/irq-affinity.html",
    ),
)
