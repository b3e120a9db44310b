"""What rules need to know of a node, and how to say that it is not known."""

from collections.abc import Callable, Iterable
from enum import StrEnum

from agent.model.gpu import Gpu, Virtualization
from agent.model.hca import Hca, HcaKind
from agent.model.nvlink import P2pStatus, PeerAccess
from agent.model.snapshot import ProbeIssue, Snapshot

# What the driver says of peer access between GPUs, for the rules on NVLink and on PCIe.


class Way(StrEnum):
    """The fields of :class:`agent.model.nvlink.PeerAccess`."""

    READ = "read"
    WRITE = "write"
    NVLINK = "nvlink"


def statuses(
    snapshot: Snapshot, ways: Iterable[Way]
) -> Callable[[int, int], tuple[P2pStatus | None, ...]]:
    """Return a function that gives the statuses of two GPUs by index, both directions.

    ``None`` among them is what NVML did not tell.
    """
    names = tuple(ways)
    told = {frozenset((pair.a, pair.b)): pair for pair in snapshot.pairs}

    def of(a: int, b: int) -> tuple[P2pStatus | None, ...]:
        pair = told.get(frozenset((f"GPU{a}", f"GPU{b}")))
        both = (None, None) if pair is None else (pair.forward, pair.backward)
        return tuple(getattr(one or PeerAccess(), name) for one in both for name in names)

    return of


def confidential(snapshot: Snapshot) -> str | None:
    """Return why rules about peer access say nothing here, where the mode forbids it."""
    mode = snapshot.confidential_compute
    return "confidential computing" if mode is not None and mode.is_enabled else None


Inputs = tuple[str, ...]
"""Names of missing inputs, as a person reads them; empty when nothing is missing."""


def because(snapshot: Snapshot, *probes: str) -> str:
    """Return the first issue that one of *probes* met, in brackets; empty without any."""
    for issue in snapshot.issues:
        if issue.probe in probes:
            return f" ({_words(issue)})"
    return ""


def _words(issue: ProbeIssue) -> str:
    return f"{issue.subject}: {issue.reason}" if issue.subject else issue.reason


def missing_gpus(snapshot: Snapshot) -> Inputs:
    """Return "GPUs" when none is listed and NVML or the PCI census met trouble."""
    reason = because(snapshot, "nvml", "pcie")
    return (f"GPUs{reason}",) if reason and not snapshot.gpus else ()


def missing_answers(snapshot: Snapshot) -> Inputs:
    """Return what NVML as a whole withholds: the GPUs, or any answer newer than an old scan.

    Issues of NVML with a call or a device name their subject, ``GPU3 nvml…``; one with
    another subject, or none, means that NVML did not answer this time.
    """
    for issue in snapshot.issues:
        is_whole = not issue.subject.startswith(("GPU", "system"))
        if issue.probe == "nvml" and is_whole and snapshot.gpus:
            return (f"present state of the GPUs ({_words(issue)})",)
    return missing_gpus(snapshot)


def missing_of_gpus(
    what: str,
    is_known: Callable[[Gpu], bool],
) -> Callable[[Snapshot], Inputs]:
    """Need *what* of every GPU; what a lost GPU last said does not count as known."""

    def missing(snapshot: Snapshot) -> Inputs:
        silent = [gpu.name for gpu in snapshot.gpus if gpu.is_lost or not is_known(gpu)]
        return missing_answers(snapshot) + ((f"{what} of {', '.join(silent)}",) if silent else ())

    return missing


def missing_numa_nodes(snapshot: Snapshot) -> Inputs:
    """Return "NUMA nodes" when they were not read."""
    return (f"NUMA nodes{because(snapshot, 'numa')}",) if snapshot.numa_nodes is None else ()


def has_one_numa_node(snapshot: Snapshot) -> bool:
    """Return whether the node is known to have a single NUMA node.

    Nodes without CPUs do not count: the memory of a Grace GPU is a node of its own, and no
    CPU manager aligns to it.
    """
    nodes = snapshot.numa_nodes
    return nodes is not None and sum(len(node.cpus) > 0 for node in nodes) <= 1


def has_no_gpus(snapshot: Snapshot) -> bool:
    """Return whether the node is known to have no GPU."""
    return not snapshot.gpus and not missing_gpus(snapshot)


def needs_alignment(snapshot: Snapshot) -> bool:
    """Return whether the node is known to have GPUs and several NUMA nodes."""
    is_known = snapshot.numa_nodes is not None and bool(snapshot.gpus)
    return is_known and not has_one_numa_node(snapshot)


def gpu_label(gpu: Gpu) -> str:
    """Return the name under which a finding speaks of *gpu*: row name and PCI address."""
    return gpu.name if gpu.pci is None else f"{gpu.name} {gpu.pci}"


def hca_label(hca: Hca) -> str:
    """Return the name under which a finding speaks of *hca*: device name and PCI address."""
    return hca.name if hca.pci is None else f"{hca.name} {hca.pci}"


def no_gpus(snapshot: Snapshot) -> str | None:
    """Return why rules about GPUs say nothing here."""
    return "no GPU" if has_no_gpus(snapshot) else None


def one_numa_node(snapshot: Snapshot) -> str | None:
    """Return why rules about placement on NUMA nodes say nothing here."""
    return "one NUMA node" if has_one_numa_node(snapshot) else None


def adapters(snapshot: Snapshot) -> tuple[Hca, ...]:
    """Return the HCAs that are hardware: no soft RoCE or soft iWARP."""
    return tuple(hca for hca in snapshot.hcas or () if hca.kind is not HcaKind.SOFTWARE)


def own_adapters(snapshot: Snapshot) -> tuple[Hca, ...]:
    """Return the adapters with a link and an address of their own.

    Virtual functions and subfunctions show, or hide, those of the function they are a part of.
    """
    parts = (HcaKind.VIRTUAL, HcaKind.SUBFUNCTION)
    return tuple(hca for hca in adapters(snapshot) if hca.kind not in parts)


def no_adapters(snapshot: Snapshot) -> str | None:
    """Return why rules about RDMA adapters say nothing here."""
    is_known = snapshot.hcas is not None
    return "no RDMA device" if is_known and not adapters(snapshot) else None


def missing_hcas(snapshot: Snapshot) -> Inputs:
    """Return "HCAs" when they were not read."""
    return (f"HCAs{because(snapshot, 'rdma')}",) if snapshot.hcas is None else ()


def is_virtual_machine(snapshot: Snapshot) -> bool | None:
    """Return whether the node is a virtual machine, whose PCI tree is made up; ``None``: unknown.

    By the CPU's flag, by the firmware's tables, or by what NVML says of the GPUs.
    """
    told = [
        None if snapshot.cpu is None else snapshot.cpu.is_virtual,
        None if snapshot.host is None else snapshot.host.is_vm,
        *map(_is_in_guest, snapshot.gpus),
    ]
    return True if True in told else (False if False in told else None)


def _is_in_guest(gpu: Gpu) -> bool | None:
    if gpu.virtualization is None:
        return None
    return gpu.virtualization in (Virtualization.PASSTHROUGH, Virtualization.VGPU)


def virtual_machine(snapshot: Snapshot) -> str | None:
    """Return why rules about the real PCI tree say nothing here."""
    return "a virtual machine" if is_virtual_machine(snapshot) else None


def missing_machine(snapshot: Snapshot) -> Inputs:
    """Return "whether this is a virtual machine" when nothing tells."""
    is_known = is_virtual_machine(snapshot) is not None
    return () if is_known else ("whether this is a virtual machine",)


def first_of(
    *reasons: Callable[[Snapshot], str | None],
) -> Callable[[Snapshot], str | None]:
    """Return a rule's ``skips``: the first of *reasons* that holds."""

    def skips(snapshot: Snapshot) -> str | None:
        return next(filter(None, (reason(snapshot) for reason in reasons)), None)

    return skips


nothing_to_align = first_of(no_gpus, one_numa_node)
"""Why rules about alignment say nothing here."""


def unknown_of(what: str, names: Iterable[str]) -> Inputs:
    """Return "*what* of a, b" as one missing input; nothing when there are no *names*."""
    joined = ", ".join(names)
    return (f"{what} of {joined}",) if joined else ()
