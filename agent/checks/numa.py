"""Rules on NUMA nodes: those that devices report, and how the CPUs are divided into them."""

from agent.checks import numa_clusters, numa_memory
from agent.checks.inputs import (
    Inputs,
    adapters,
    first_of,
    gpu_label,
    has_no_gpus,
    has_one_numa_node,
    hca_label,
    missing_gpus,
    missing_hcas,
    missing_numa_nodes,
    needs_alignment,
    no_adapters,
    no_gpus,
    one_numa_node,
)
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.snapshot import Snapshot


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
    numa_memory.RULE,
    numa_clusters.RULE,
)
