"""Rules on NUMA nodes: the nodes that devices report, and the split of CPUs between them."""

from collections import Counter

from nodetopo.checks.inputs import (
    adapters,
    because,
    gpu_label,
    hca_label,
    missing_answers,
    missing_gpus,
    missing_hcas,
    missing_numa_nodes,
    no_adapters,
    no_gpus,
    nothing_to_align,
    one_numa_node,
    unknown_of,
)
from nodetopo.checks.rule import Finding, Judgement, Missing, Severity, Skip, rule
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.affinity import socket_of_node

GRACE_GENERATIONS = (9, 10)
"""Major compute capability of GH200, and of GB200 and GB300."""

X86_VENDORS = ("GenuineIntel", "AuthenticAMD")
"""As ``/proc/cpuinfo`` spells them."""


@rule("NUM-001", Severity.WARNING, unless=nothing_to_align)
def gpu_nodes(snapshot: Snapshot) -> Judgement:
    """Find GPUs without a NUMA node."""
    for gpu in snapshot.gpus if snapshot.numa_nodes is not None else ():
        if gpu.numa_node is None:
            yield Finding(subject=gpu_label(gpu), observed="no node", expected="a node number")
    yield from missing_gpus(snapshot)
    yield from missing_numa_nodes(snapshot)


@rule("NUM-002", Severity.WARNING, unless=(no_adapters, one_numa_node))
def hca_nodes(snapshot: Snapshot) -> Judgement:
    """Find HCAs without a NUMA node."""
    for hca in adapters(snapshot) if snapshot.numa_nodes is not None else ():
        if hca.numa_node is None:
            yield Finding(subject=hca_label(hca), observed="no node", expected="a node number")
    yield from missing_hcas(snapshot)
    yield from missing_numa_nodes(snapshot)


@rule("NUM-003", Severity.INFO)
def coherent_memory(snapshot: Snapshot) -> Judgement:
    """Find NUMA nodes with memory and without CPUs; nodes without either wait for MIG devices."""
    machine = None if snapshot.kernel is None else snapshot.kernel.machine
    vendor = None if snapshot.cpu is None else snapshot.cpu.vendor
    # On x86 no GPU is linked to the CPU; elsewhere GPUs of Grace's generations can be.
    silent = [
        gpu.name
        for gpu in snapshot.gpus
        if (gpu.is_lost or gpu.c2c is None)
        and (gpu.compute_capability is None or gpu.compute_capability[0] in GRACE_GENERATIONS)
        and not (machine == "x86_64" or vendor in X86_VENDORS)
    ]
    is_coherent = any(gpu.c2c and gpu.c2c.is_enabled for gpu in snapshot.gpus)
    reason = no_gpus(snapshot)
    if reason is None and not is_coherent and not silent and not missing_answers(snapshot):
        reason = "no GPU linked to a Grace CPU"
    if reason:
        yield Skip(reason)
        return
    owners = {gpu.memory_numa_node: gpu_label(gpu) for gpu in snapshot.gpus}
    for node in (snapshot.numa_nodes or ()) if is_coherent else ():
        if node.memory_mib and not node.cpus:
            yield Finding(
                subject=owners.get(node.id, f"NUMA node {node.id}"),
                observed=f"memory without CPUs is NUMA node {node.id}",
                expected="GPU memory under the driver alone",
            )
    yield from missing_answers(snapshot)
    yield from missing_numa_nodes(snapshot)
    yield from unknown_of("link to the CPU", silent)


@rule("NUM-004", Severity.INFO, unless=nothing_to_align)
def socket_nodes(snapshot: Snapshot) -> Judgement:
    """Find sockets whose CPUs are divided into several NUMA nodes."""
    for socket, count in sorted(Counter(socket_of_node(snapshot).values()).items()):
        if count > 1:
            yield Finding(
                subject=f"socket {socket}", observed=f"{count} NUMA nodes", expected="one"
            )
    yield from missing_numa_nodes(snapshot)
    if snapshot.cpu is None or not snapshot.cpu.sockets:
        yield Missing("CPU sockets", because(snapshot, "cpu"))
