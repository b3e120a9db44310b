"""Rules on the NUMA nodes of devices."""

from agent.checks.inputs import (
    Inputs,
    gpu_label,
    has_no_gpus,
    has_one_numa_node,
    missing_gpus,
    missing_numa_nodes,
    needs_alignment,
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
        remedy="update the firmware, and switch on NUMA or ACPI SRAT and _PXM in its setup; in a "
        "virtual machine attach the device to a root bus with a NUMA node",
        reference="https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-bus-pci",
    ),
)
