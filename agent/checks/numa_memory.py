"""A rule on GPU memory that the kernel hands out like the CPU's."""

from collections.abc import Iterator

from agent.checks.inputs import (
    Inputs,
    gpu_label,
    missing_answers,
    missing_numa_nodes,
    no_gpus,
    unknown_of,
)
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.gpu import Gpu
from agent.model.snapshot import Snapshot

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


def _missing(snapshot: Snapshot) -> Inputs:
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


RULE = Rule(
    code="NUM-003",
    claim="no GPU's memory is a NUMA node that the kernel hands out",
    why="Programs that know nothing of GPUs can get their memory there, its use shows as the "
    "node's own, and the kubelet counts the nodes although they have no CPUs: with more than 8 of "
    "them its Topology Manager does not start.",
    area=Area.NUMA,
    suite=Suite.AUDIT,
    severity=Severity.INFO,
    needs=_missing,
    check=_handed_out,
    skips=_skips,
    remedy="load the driver with NVreg_CoherentGPUMemoryMode=driver (580.65 and later), unless "
    "programs use system memory and GPU memory as one",
    reference="https://developer.nvidia.com/blog/"
    "understanding-memory-management-on-hardware-coherent-platforms/",
)
