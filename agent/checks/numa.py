"""Rules on NUMA nodes: those that devices report, and how the CPUs are divided into them."""

from collections import Counter
from collections.abc import Iterator

from agent.checks.inputs import (
    Inputs,
    adapters,
    because,
    first_of,
    gpu_label,
    has_no_gpus,
    has_one_numa_node,
    hca_label,
    missing_answers,
    missing_gpus,
    missing_hcas,
    missing_numa_nodes,
    needs_alignment,
    no_adapters,
    no_gpus,
    one_numa_node,
    unknown_of,
)
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.gpu import Gpu
from agent.model.snapshot import Snapshot
from agent.topology.affinity import socket_of_node

# A remark on CPUs that are divided into more NUMA nodes than there are sockets.


def _divided(snapshot: Snapshot) -> tuple[Finding, ...]:
    counts = Counter(socket_of_node(snapshot).values())
    return tuple(
        Finding(
            subject=f"socket {socket}",
            observed=f"{count} NUMA nodes",
            expected="one",
        )
        for socket, count in sorted(counts.items())
        if count > 1
    )


def _clusters_missing(snapshot: Snapshot) -> Inputs:
    is_known = snapshot.cpu is not None and bool(snapshot.cpu.sockets)
    sockets = () if is_known else (f"CPU sockets{because(snapshot, 'cpu')}",)
    return missing_numa_nodes(snapshot) + sockets


RULE = Rule(
    code="NUM-004",
    claim="every socket is one NUMA node",
    why="With sub-NUMA clusters (SNC) or several nodes per socket (NPS) a job of several GPUs "
    "seldom fits one NUMA node, and single-numa-node rejects it.",
    area=Area.NUMA,
    suite=Suite.AUDIT,
    severity=Severity.INFO,
    needs=_clusters_missing,
    check=_divided,
    skips=first_of(no_gpus, one_numa_node),
    remedy="set SNC off or NPS1 in the firmware, unless jobs of one GPU profit from near memory",
    reference="https://kubernetes.io/docs/tasks/administer-cluster/topology-manager/",
)


# A rule on GPU memory that the kernel hands out like the CPU's.

GRACE_GENERATIONS = (9, 10)
"""Major compute capability of GH200, and of GB200 and GB300."""


X86_VENDORS = ("GenuineIntel", "AuthenticAMD")
"""As ``/proc/cpuinfo`` spells them."""


def _is_coherent(snapshot: Snapshot) -> bool:
    return any(gpu.c2c and gpu.c2c.is_enabled for gpu in snapshot.gpus)


def _handed_out(snapshot: Snapshot) -> tuple[Finding, ...]:
    if not _is_coherent(snapshot):
        return ()
    named = {gpu.memory_numa_node: gpu_label(gpu) for gpu in snapshot.gpus}
    return tuple(
        Finding(
            subject=named.get(node, f"NUMA node {node}"),
            observed=f"memory without CPUs is NUMA node {node}",
            expected="GPU memory under the driver alone",
        )
        for node in _memory_nodes(snapshot)
    )


def _memory_nodes(snapshot: Snapshot) -> Iterator[int]:
    """Yield the nodes with memory and without CPUs; those without either wait for MIG devices."""
    for node in snapshot.numa_nodes or ():
        if node.memory_mib and not node.cpus:
            yield node.id


def _memory_missing(snapshot: Snapshot) -> Inputs:
    return (
        *missing_answers(snapshot),
        *missing_numa_nodes(snapshot),
        *unknown_of("link to the CPU", _silent(snapshot)),
    )


def _silent(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the GPUs that do not say whether they are linked to the CPU, which on x86 none is."""
    machine = None if snapshot.kernel is None else snapshot.kernel.machine
    if machine == "x86_64" or (snapshot.cpu is not None and snapshot.cpu.vendor in X86_VENDORS):
        return ()
    silent = (gpu for gpu in snapshot.gpus if gpu.is_lost or gpu.c2c is None)
    return tuple(gpu.name for gpu in silent if _is_of_grace(gpu))


def _is_of_grace(gpu: Gpu) -> bool:
    """Return whether *gpu* is of a generation that is linked to Grace CPUs, or could be."""
    return gpu.compute_capability is None or gpu.compute_capability[0] in GRACE_GENERATIONS


def _skips(snapshot: Snapshot) -> str | None:
    if (reason := no_gpus(snapshot)) is not None:
        return reason
    is_known = not missing_answers(snapshot) and not _silent(snapshot)
    return "no GPU linked to a Grace CPU" if is_known and not _is_coherent(snapshot) else None


MEMORY_RULE = Rule(
    code="NUM-003",
    claim="no GPU's memory is a NUMA node that the kernel hands out",
    why="Programs that know nothing of GPUs can get their memory there, its use shows as the "
    "node's own, and the kubelet counts the nodes although they have no CPUs: with more than 8 of "
    "them its Topology Manager does not start.",
    area=Area.NUMA,
    suite=Suite.AUDIT,
    severity=Severity.INFO,
    needs=_memory_missing,
    check=_handed_out,
    skips=_skips,
    remedy="load the driver with NVreg_CoherentGPUMemoryMode=driver (580.65 and later), unless "
    "programs use system memory and GPU memory as one",
    reference="https://developer.nvidia.com/blog/"
    "understanding-memory-management-on-hardware-coherent-platforms/",
)


def _without_node(snapshot: Snapshot) -> tuple[Finding, ...]:
    if not needs_alignment(snapshot):
        return ()
    return tuple(
        Finding(subject=gpu_label(gpu), observed="no node", expected="a node number")
        for gpu in snapshot.gpus
        if gpu.numa_node is None
    )


def _missing(snapshot: Snapshot) -> Inputs:
    if has_no_gpus(snapshot) or has_one_numa_node(snapshot):
        return ()
    return missing_gpus(snapshot) + missing_numa_nodes(snapshot)


def _hcas_without_node(snapshot: Snapshot) -> tuple[Finding, ...]:
    if snapshot.numa_nodes is None or has_one_numa_node(snapshot):
        return ()
    return tuple(
        Finding(subject=hca_label(hca), observed="no node", expected="a node number")
        for hca in adapters(snapshot)
        if hca.numa_node is None
    )


def _missing_for_hcas(snapshot: Snapshot) -> Inputs:
    return missing_hcas(snapshot) + missing_numa_nodes(snapshot)


RULES: tuple[Rule, ...] = (
    Rule(
        code="NUM-001",
        claim="every GPU reports its NUMA node",
        why="The kubelet cannot align CPUs and memory with a GPU whose node the firmware does "
        "not state.",
        area=Area.NUMA,
        suite=Suite.HEALTH,
        severity=Severity.WARNING,
        needs=_missing,
        check=_without_node,
        skips=first_of(no_gpus, one_numa_node),
        remedy="update the firmware, and switch on NUMA or ACPI SRAT and _PXM in its setup; in a "
        "virtual machine attach the device to a root bus with a NUMA node",
        reference="https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-bus-pci",
    ),
    Rule(
        code="NUM-002",
        claim="every HCA reports its NUMA node",
        why="The kubelet cannot align an HCA with a GPU and CPUs when the firmware does not state "
        "its node, and NCCL and the kernel guess.",
        area=Area.NUMA,
        suite=Suite.HEALTH,
        severity=Severity.WARNING,
        needs=_missing_for_hcas,
        check=_hcas_without_node,
        skips=first_of(no_adapters, one_numa_node),
        remedy="update the firmware, and switch on NUMA or ACPI SRAT and _PXM in its setup; in a "
        "virtual machine attach the device to a root bus with a NUMA node",
        reference="https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-bus-pci",
    ),
    MEMORY_RULE,
    RULE,
)
