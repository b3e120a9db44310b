"""Inputs shared by several rules, and the names of missing ones.

``missing_…`` functions return a rule's results for inputs that the snapshot lacks; functions that
return a reason or None explain why a rule does not apply.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Literal

from nodetopo.checks.rule import Missing
from nodetopo.model.gpu import Gpu, Virtualization
from nodetopo.model.hca import Hca, HcaKind
from nodetopo.model.nvlink import P2pStatus, PeerAccess
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.model.snapshot import Snapshot

FEW = 5
"""Names that a sentence lists before it counts the rest."""


def listed(names: Iterable[str]) -> str:
    """Return *names* as a sentence has them, of many only the first few and how many more."""
    every = list(names)
    more = f" and {len(every) - FEW} more" if len(every) > FEW else ""
    return ", ".join(every[:FEW]) + more


def unknown_of(what: str, names: Iterable[str], reason: str | None = None) -> tuple[Missing, ...]:
    """Return "*what* of a, b" as one missing input; nothing when there are no *names*."""
    joined = ", ".join(names)
    return (Missing(f"{what} of {joined}", reason),) if joined else ()


def because(snapshot: Snapshot, *probes: str) -> str | None:
    """Return the first issue that one of *probes* met; ``None`` without any."""
    for issue in snapshot.issues:
        if issue.probe in probes:
            return _words(issue)
    return None


def _words(issue: ProbeIssue) -> str:
    return f"{issue.subject}: {issue.reason}" if issue.subject else issue.reason


# GPUs


def gpu_label(gpu: Gpu) -> str:
    """Return the name of *gpu* in a finding: row name and PCI address."""
    return gpu.name if gpu.pci is None else f"{gpu.name} {gpu.pci}"


def missing_gpus(snapshot: Snapshot) -> tuple[Missing, ...]:
    """Return "GPUs" when none is listed and NVML or the PCI census met trouble."""
    reason = because(snapshot, "nvml", "pcie")
    return (Missing("GPUs", reason),) if reason and not snapshot.gpus else ()


def missing_answers(snapshot: Snapshot) -> tuple[Missing, ...]:
    """Return what NVML as a whole withholds: the GPUs, or any answer newer than an old scan.

    Issues of NVML with a call or a device name their subject, ``GPU3 nvml…``; an issue with
    another subject, or none, means that NVML did not answer this time.
    """
    for issue in snapshot.issues:
        if issue.is_whole and snapshot.gpus:
            return (Missing("present state of the GPUs", _words(issue)),)
    return missing_gpus(snapshot)


def missing_of_gpus(snapshot: Snapshot, what: str, silent: Collection[str]) -> tuple[Missing, ...]:
    """Return NVML as a whole, and *what* of the GPUs named in *silent* and of lost ones.

    The last answers of a lost GPU do not count as known.
    """
    names = (gpu.name for gpu in snapshot.gpus if gpu.is_lost or gpu.name in silent)
    return missing_answers(snapshot) + unknown_of(what, names)


def no_gpus(snapshot: Snapshot) -> str | None:
    """Return why rules about GPUs do not apply: the node is known to have none."""
    return "no GPU" if not snapshot.gpus and not missing_gpus(snapshot) else None


# HCAs


def hca_label(hca: Hca) -> str:
    """Return the name of *hca* in a finding: device name and PCI address."""
    return hca.name if hca.pci is None else f"{hca.name} {hca.pci}"


def adapters(snapshot: Snapshot) -> tuple[Hca, ...]:
    """Return the HCAs that are hardware: no soft RoCE or soft iWARP."""
    return tuple(hca for hca in snapshot.hcas or () if hca.kind is not HcaKind.SOFTWARE)


def own_adapters(snapshot: Snapshot) -> tuple[Hca, ...]:
    """Return the adapters with a separate link and address.

    Virtual functions and subfunctions show, or hide, their parent function's.
    """
    parts = (HcaKind.VIRTUAL, HcaKind.SUBFUNCTION)
    return tuple(hca for hca in adapters(snapshot) if hca.kind not in parts)


def no_adapters(snapshot: Snapshot) -> str | None:
    """Return why rules about RDMA adapters do not apply."""
    is_known = snapshot.hcas is not None
    return "no RDMA device" if is_known and not adapters(snapshot) else None


def missing_hcas(snapshot: Snapshot) -> tuple[Missing, ...]:
    """Return "HCAs" when they were not read."""
    if snapshot.hcas is not None:
        return ()
    return (Missing("HCAs", because(snapshot, "rdma")),)


# NUMA nodes


def missing_numa_nodes(snapshot: Snapshot) -> tuple[Missing, ...]:
    """Return "NUMA nodes" when they were not read."""
    if snapshot.numa_nodes is not None:
        return ()
    return (Missing("NUMA nodes", because(snapshot, "numa")),)


def has_one_numa_node(snapshot: Snapshot) -> bool:
    """Return whether the node is known to have a single NUMA node.

    NUMA nodes without CPUs do not count: the memory of a Grace GPU is a separate node, and no CPU
    manager aligns to it.
    """
    nodes = snapshot.numa_nodes
    return nodes is not None and sum(len(node.cpus) > 0 for node in nodes) <= 1


def one_numa_node(snapshot: Snapshot) -> str | None:
    """Return why rules about placement on NUMA nodes do not apply."""
    return "one NUMA node" if has_one_numa_node(snapshot) else None


def nothing_to_align(snapshot: Snapshot) -> str | None:
    """Return why rules about alignment do not apply."""
    return no_gpus(snapshot) or one_numa_node(snapshot)


def needs_alignment(snapshot: Snapshot) -> bool:
    """Return whether the node is known to have GPUs and several NUMA nodes."""
    is_known = snapshot.numa_nodes is not None and bool(snapshot.gpus)
    return is_known and not has_one_numa_node(snapshot)


# The machine


def is_virtual_machine(snapshot: Snapshot) -> bool | None:
    """Return whether the node is a virtual machine, whose PCI tree is made up; ``None``: unknown.

    By the CPU's flag, by the firmware's tables, or by the GPUs' virtualization mode in NVML.
    """
    guest_modes = (Virtualization.PASSTHROUGH, Virtualization.VGPU)
    signs = [
        None if snapshot.cpu is None else snapshot.cpu.is_virtual,
        None if snapshot.host is None else snapshot.host.is_vm,
        *(
            gpu.virtualization in guest_modes
            for gpu in snapshot.gpus
            if gpu.virtualization is not None
        ),
    ]
    return True if True in signs else (False if False in signs else None)


def virtual_machine(snapshot: Snapshot) -> str | None:
    """Return why rules about the real PCI tree do not apply."""
    return "a virtual machine" if is_virtual_machine(snapshot) else None


def missing_machine(snapshot: Snapshot) -> tuple[Missing, ...]:
    """Return "whether this is a virtual machine" when no source says so."""
    is_known = is_virtual_machine(snapshot) is not None
    return () if is_known else (Missing("whether this is a virtual machine"),)


# Peer access between GPUs, for the rules on NVLink and on PCIe


def statuses(
    snapshot: Snapshot, *ways: Literal["read", "write", "nvlink"]
) -> Callable[[int, int], tuple[P2pStatus | None, ...]]:
    """Return a function that gives the statuses of two GPUs by index, both directions.

    *ways* are fields of :class:`nodetopo.model.nvlink.PeerAccess`. ``None`` among the statuses is
    what NVML did not answer.
    """
    pairs = {frozenset((pair.a, pair.b)): pair for pair in snapshot.pairs}

    def of(a: int, b: int) -> tuple[P2pStatus | None, ...]:
        pair = pairs.get(frozenset((f"GPU{a}", f"GPU{b}")))
        both = (None, None) if pair is None else (pair.forward, pair.backward)
        return tuple(getattr(access or PeerAccess(), way) for access in both for way in ways)

    return of


def confidential(snapshot: Snapshot) -> str | None:
    """Return why rules about peer access do not apply, where the mode forbids it."""
    mode = snapshot.confidential_compute
    return "confidential computing" if mode is not None and mode.is_enabled else None
