"""Rules on RDMA adapters: their ports, and how near to the GPUs they are."""

from collections.abc import Iterator

from agent.checks import rdma_ports
from agent.checks.inputs import (
    Inputs,
    adapters,
    because,
    first_of,
    gpu_label,
    has_no_gpus,
    has_one_numa_node,
    hca_label,
    missing_gpus,
    missing_hcas,
    missing_machine,
    no_adapters,
    no_gpus,
    one_numa_node,
    own_adapters,
    unknown_of,
    virtual_machine,
)
from agent.checks.rdma_ports import ACTIVE, active_ports, missing_states
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.gpu import Gpu
from agent.model.hca import Hca, HcaPort
from agent.model.nvlink import Closeness
from agent.model.pci import PciFunction
from agent.model.snapshot import Snapshot
from agent.topology.affinity import hca_closeness, nearest_hcas

# A rule on the device nodes by which programs reach HCAs.

DIRECTORY = "/dev/infiniband"


def _without_nodes(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(_findings(snapshot))


def _findings(snapshot: Snapshot) -> Iterator[Finding]:
    nodes = _nodes(snapshot)
    for hca in adapters(snapshot):
        verbs = _verbs(hca)
        if not verbs and hca.kind is not None:
            yield Finding(
                subject=hca_label(hca),
                observed="no uverbs device",
                expected="one, which the kernel module ib_uverbs makes",
            )
        elif verbs and nodes is not None and not verbs & nodes:
            yield Finding(
                subject=hca_label(hca),
                observed=f"no {DIRECTORY}/{min(verbs)}",
                expected="a device node",
            )


def _verbs(hca: Hca) -> frozenset[str]:
    return frozenset(name for name in hca.char_devices if name.startswith("uverbs"))


def _nodes(snapshot: Snapshot) -> frozenset[str] | None:
    """Return the names in the directory; ``None`` where it is empty or out of sight.

    The kernel makes a node for each uverbs device: where all are missing, it is the agent that
    sees too little of the host.
    """
    names = None if snapshot.host is None else snapshot.host.infiniband_devices
    return frozenset(names) if names else None


def _missing(snapshot: Snapshot) -> Inputs:
    nodes = () if _nodes(snapshot) is not None else (f"{DIRECTORY}{because(snapshot, 'host')}",)
    # A source that does not tell an adapter's kind is text, which names no devices.
    untold = (it.name for it in adapters(snapshot) if it.kind is None and not _verbs(it))
    return missing_hcas(snapshot) + nodes + unknown_of("uverbs devices", untold)


RULE = Rule(
    code="RDM-009",
    claim="every HCA has its device node",
    why="Without /dev/infiniband/uverbsN no program can use the HCA, and no device plugin can "
    "hand it to a pod.",
    area=Area.RDMA,
    suite=Suite.AUDIT,
    severity=Severity.ERROR,
    needs=_missing,
    check=_without_nodes,
    skips=first_of(no_adapters),
    remedy="`modprobe -a ib_uverbs rdma_ucm`, and have them loaded at boot (rdma-core does both)",
    reference="https://docs.kernel.org/infiniband/user_verbs.html",
)


# Remarks on how HCAs use the PCIe bus.

LARGEST_REQUEST = 4096
"""Bytes; NVIDIA's guides to tuning ConnectX ask for it (PCI Express device control, code 5)."""


_READ_AS_ROOT = "(read as root)"


def _ordered(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(subject=hca_label(hca), observed="relaxed ordering off", expected="on")
        for hca in own_adapters(snapshot)
        if hca.function is not None and hca.function.relaxed_ordering is False
    )


def _missing_order(snapshot: Snapshot) -> Inputs:
    silent = (
        hca.name
        for hca in own_adapters(snapshot)
        if (hca.function or PciFunction()).relaxed_ordering is None
    )
    return missing_hcas(snapshot) + unknown_of(f"relaxed ordering {_READ_AS_ROOT}", silent)


def _short(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            subject=hca_label(hca),
            observed=f"{hca.function.max_read_request} bytes",
            expected=f"{LARGEST_REQUEST} bytes",
        )
        for hca in own_adapters(snapshot)
        if hca.function is not None
        and hca.function.max_read_request is not None
        and hca.function.max_read_request < LARGEST_REQUEST
    )


def _missing_size(snapshot: Snapshot) -> Inputs:
    silent = (
        hca.name
        for hca in own_adapters(snapshot)
        if (hca.function or PciFunction()).max_read_request is None
    )
    return missing_hcas(snapshot) + unknown_of(f"maximum read request {_READ_AS_ROOT}", silent)


REQUESTS_RULES: tuple[Rule, ...] = (
    Rule(
        code="RDM-010",
        claim="every HCA may write with relaxed ordering",
        why="On AMD processors strictly ordered writes wait for each other, and a fast port does "
        "not fill.",
        area=Area.RDMA,
        suite=Suite.AUDIT,
        severity=Severity.INFO,
        needs=_missing_order,
        check=_ordered,
        skips=first_of(no_adapters, virtual_machine),
        remedy="switch PCIe relaxed ordering on in the firmware setup, or "
        "`setpci -s ADDRESS CAP_EXP+8.w=0010:0010` after each boot",
        reference="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",
    ),
    Rule(
        code="RDM-011",
        claim="every HCA reads from memory in the largest requests",
        why="Small read requests leave gaps on the bus between memory and the HCA.",
        area=Area.RDMA,
        suite=Suite.AUDIT,
        severity=Severity.INFO,
        needs=_missing_size,
        check=_short,
        skips=first_of(no_adapters, virtual_machine),
        remedy="`setpci -s ADDRESS CAP_EXP+8.w=5000:7000` after each boot",
        reference="https://enterprise-support.nvidia.com/s/article/"
        "understanding-pcie-configuration-for-maximum-performance",
    ),
)


# Ports that carry nothing on purpose: the free ones of cards that serve no GPU.


def spare_adapters(snapshot: Snapshot) -> frozenset[str]:
    """Return the names of the HCAs of which a port may be free: another one of the card is active.

    Cards for storage and management often have a port without a cable. Not so cards behind a PCIe
    switch with a GPU: those are there for jobs.
    """
    in_use = {_card(hca) for _, hca, _ in active_ports(snapshot)}
    at_gpus = _names_at_gpus(snapshot)
    return frozenset(
        hca.name
        for hca in own_adapters(snapshot)
        if hca.name not in at_gpus and _card(hca) in in_use
    )


def _card(hca: Hca) -> object:
    """Return what the functions of one card, in one slot, have in common."""
    at = hca.pci
    return hca.name if at is None else (at.domain, at.bus, at.device)


def _names_at_gpus(snapshot: Snapshot) -> frozenset[str]:
    hcas = snapshot.hcas or ()
    return frozenset(
        hcas[position].name
        for (_, position), distance in hca_closeness(snapshot).items()
        if distance <= Closeness.PXB
    )


# A remark on GPUs whose nearest HCA is behind another host bridge.


def _far(snapshot: Snapshot) -> tuple[Finding, ...]:
    nearest = nearest_hcas(snapshot)
    return tuple(
        Finding(
            subject=gpu_label(gpu),
            observed=f"nearest is {found.hcas[0].name}, {found.closeness.name}",
            expected=f"an HCA at {_near(gpu).name} or nearer",
        )
        for gpu in snapshot.gpus
        if (found := nearest.get(gpu.index)) and found.closeness > _near(gpu)
    )


def _near(gpu: Gpu) -> Closeness:
    """Return how far an HCA may be for NCCL to reach the GPU's memory from it.

    On Grace all of a CPU's are near: data goes on by NVLink-C2C, no way between host bridges
    (NCCL 2.27 docs, NCCL_NET_GDR_C2C).
    """
    return Closeness.NODE if gpu.c2c and gpu.c2c.is_enabled else Closeness.PHB


def _near_missing(snapshot: Snapshot) -> Inputs:
    nearest = nearest_hcas(snapshot) if snapshot.hcas else {}
    silent = (gpu.name for gpu in snapshot.gpus if gpu.index not in nearest)
    return (
        *missing_gpus(snapshot),
        *missing_hcas(snapshot),
        *missing_machine(snapshot),
        *unknown_of("distance to the HCAs", silent if snapshot.hcas else ()),
    )


NEAR_RULE = Rule(
    code="RDM-005",
    claim="every GPU has an HCA behind its own host bridge",
    why="Data between an HCA and a GPU behind different host bridges crosses the CPU's own fabric, "
    "and NCCL then leaves GPU memory out of it (NCCL_NET_GDR_LEVEL).",
    area=Area.RDMA,
    suite=Suite.HEALTH,
    severity=Severity.INFO,
    needs=_near_missing,
    check=_far,
    skips=first_of(no_gpus, no_adapters, virtual_machine),
    remedy="where the machine has such a slot, move an HCA there; keep jobs across nodes off the "
    "GPUs that have none",
    reference="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",
)


_REFERENCE = "https://www.kernel.org/doc/Documentation/ABI/stable/sysfs-class-infiniband"


def _inactive_ports(snapshot: Snapshot) -> tuple[Finding, ...]:
    spare = spare_adapters(snapshot)
    return tuple(
        Finding(
            subject=f"{hca.name} port {port.number}",
            observed=_observed(port),
            expected=ACTIVE,
        )
        for hca in own_adapters(snapshot)
        for port in hca.ports
        if port.state is not None and port.state != ACTIVE and hca.name not in spare
    )


def _observed(port: HcaPort) -> str:
    state = port.state or ""
    return state if port.physical_state is None else f"{state}, {port.physical_state}"


def _without_near_hca(snapshot: Snapshot) -> tuple[Finding, ...]:
    if not snapshot.hcas or _homeless_hcas(snapshot):
        return ()
    return tuple(
        Finding(
            subject=gpu_label(gpu),
            observed=f"no HCA on NUMA node {gpu.numa_node}",
            expected="at least one",
        )
        for gpu in _uncovered(snapshot)
    )


def _uncovered(snapshot: Snapshot) -> tuple[Gpu, ...]:
    """Return the GPUs on whose known NUMA node no HCA is known to be."""
    if has_one_numa_node(snapshot):
        return ()
    nodes = {hca.numa_node for hca in snapshot.hcas or ()}
    return tuple(
        gpu for gpu in snapshot.gpus if gpu.numa_node is not None and gpu.numa_node not in nodes
    )


def _homeless_hcas(snapshot: Snapshot) -> list[str]:
    return [hca.name for hca in snapshot.hcas or () if hca.numa_node is None]


def _missing_nodes(snapshot: Snapshot) -> Inputs:
    if has_no_gpus(snapshot) or has_one_numa_node(snapshot) or snapshot.hcas == ():
        return ()
    homeless = [gpu.name for gpu in snapshot.gpus if gpu.numa_node is None]
    if _uncovered(snapshot):  # else no HCA of unknown node can change the answer
        homeless += _homeless_hcas(snapshot)
    unknown = (f"NUMA node of {', '.join(homeless)}",) if homeless else ()
    return missing_gpus(snapshot) + missing_hcas(snapshot) + unknown


RULES: tuple[Rule, ...] = (
    Rule(
        code="RDM-001",
        claim="every HCA port is active",
        why="NCCL leaves out a port that is down, and the GPUs that stand nearest to it go "
        "through another's. Left out are virtual functions and subfunctions, which are down while "
        "no job uses them, and the free port of a card away from the GPUs whose other one is "
        "active.",
        area=Area.RDMA,
        suite=Suite.HEALTH,
        severity=Severity.ERROR,
        needs=missing_states,
        check=_inactive_ports,
        skips=first_of(no_adapters),
        remedy="check cable and transceiver, then the switch port; on InfiniBand check that a "
        "subnet manager runs",
        reference=_REFERENCE,
    ),
    Rule(
        code="RDM-002",
        claim="every GPU has an HCA on its own NUMA node",
        why="Traffic of a GPU without one crosses the link between the sockets.",
        area=Area.RDMA,
        suite=Suite.HEALTH,
        severity=Severity.WARNING,
        needs=_missing_nodes,
        check=_without_near_hca,
        skips=first_of(no_gpus, no_adapters, one_numa_node),
        remedy="move an HCA to a slot of that socket, or keep multi-node jobs off these GPUs",
        reference=_REFERENCE,
    ),
    rdma_ports.RULE,
    rdma_ports.RATE_RULE,
    NEAR_RULE,
    rdma_ports.ERRORS_RULE,
    *rdma_ports.RULES,
    RULE,
    *REQUESTS_RULES,
)
