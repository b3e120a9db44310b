"""Rules on RDMA adapters: their ports, device nodes and PCIe requests, and how near GPUs are."""

from nodetopo.checks.inputs import (
    adapters,
    because,
    gpu_label,
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
from nodetopo.checks.rule import Finding, Judgement, Missing, Severity, rule
from nodetopo.components.audit.rules.each import hca_rule, known
from nodetopo.components.audit.rules.rdma_ports import (
    active_ports,
    missing_states,
)
from nodetopo.model.hca import ACTIVE, Hca, HcaPort, LinkLayer
from nodetopo.model.nvlink import Closeness
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.affinity import hca_closeness, nearest_hcas

DIRECTORY = "/dev/infiniband"

LARGEST_REQUEST = 4096
"""Bytes; NVIDIA's guides to tuning ConnectX ask for it (PCI Express device control, code 5)."""


@rule("RDM-001", Severity.ERROR, unless=no_adapters)
def port_states(snapshot: Snapshot) -> Judgement:
    """Find ports that are down and not left free on purpose."""
    spare = _spare_adapters(snapshot)
    for hca in own_adapters(snapshot):
        for port in hca.ports if hca.name not in spare else ():
            if port.state not in (None, ACTIVE):
                physical = "" if port.physical_state is None else f", {port.physical_state}"
                yield Finding(
                    subject=f"{hca.name} port {port.number}",
                    observed=f"{port.state}{physical}{_waiting(port)}",
                    expected=ACTIVE,
                )
    yield from missing_states(snapshot)


@rule("RDM-002", Severity.WARNING, unless=(no_gpus, no_adapters, one_numa_node))
def hca_on_numa_node(snapshot: Snapshot) -> Judgement:
    """Find GPUs on whose NUMA node no HCA is."""
    hcas = snapshot.hcas or ()
    nodes = {hca.numa_node for hca in hcas}
    homeless_hcas = [hca.name for hca in hcas if hca.numa_node is None]
    homeless, uncovered = [], []
    for gpu in snapshot.gpus:
        if gpu.numa_node is None:
            homeless.append(gpu.name)
        elif gpu.numa_node not in nodes:
            uncovered.append(gpu)
    for gpu in uncovered if hcas and not homeless_hcas else ():
        yield Finding(
            subject=gpu_label(gpu),
            observed=f"no HCA on NUMA node {gpu.numa_node}",
            expected="at least one",
        )
    yield from missing_gpus(snapshot)
    yield from missing_hcas(snapshot)
    # Where every GPU has an HCA, no HCA of unknown node can change the answer.
    yield from unknown_of("NUMA node", homeless + (homeless_hcas if uncovered else []))


@rule("RDM-005", Severity.INFO, unless=(no_gpus, no_adapters, virtual_machine))
def near_hca(snapshot: Snapshot) -> Judgement:
    """Find GPUs whose nearest HCA is too far for NCCL to reach GPU memory from it.

    On Grace all of a CPU's are near: data goes on by NVLink-C2C, no way between host bridges
    (NCCL 2.27 docs, NCCL_NET_GDR_C2C).
    """
    silent = []
    nearest = nearest_hcas(snapshot) if snapshot.hcas else {}
    for gpu in snapshot.gpus if snapshot.hcas else ():
        hcas = nearest.get(gpu.index)
        limit = Closeness.NODE if gpu.c2c and gpu.c2c.is_enabled else Closeness.PHB
        if hcas is None:
            silent.append(gpu.name)
        elif hcas.closeness > limit:
            yield Finding(
                subject=gpu_label(gpu),
                observed=f"nearest is {hcas.hcas[0].name}, {hcas.closeness.name}",
                expected=f"an HCA at {limit.name} or nearer",
            )
    yield from missing_gpus(snapshot)
    yield from missing_hcas(snapshot)
    yield from missing_machine(snapshot)
    yield from unknown_of("distance to the HCAs", silent)


@rule("RDM-009", Severity.ERROR, unless=no_adapters)
def device_nodes(snapshot: Snapshot) -> Judgement:
    """Find HCAs without a uverbs device or without its node in ``/dev/infiniband``.

    The kernel makes a node for each uverbs device: where all are missing, it is the agent that
    sees too little of the host. A source that does not state an adapter's kind is text, which
    names no devices.
    """
    nodes = set((snapshot.host.infiniband_devices if snapshot.host else None) or ())
    silent = []
    for hca in adapters(snapshot):
        verbs = {name for name in hca.char_devices if name.startswith("uverbs")}
        if not verbs and hca.kind is None:
            silent.append(hca.name)
        elif not verbs:
            yield Finding(
                subject=hca_label(hca),
                observed="no uverbs device",
                expected="one, which the kernel module ib_uverbs makes",
            )
        elif nodes and not verbs & nodes:
            yield Finding(
                subject=hca_label(hca),
                observed=f"no {DIRECTORY}/{min(verbs)}",
                expected="a device node",
            )
    yield from missing_hcas(snapshot)
    if not nodes:
        yield Missing(DIRECTORY, because(snapshot, "host"))
    yield from unknown_of("uverbs devices", silent)


@hca_rule(
    "RDM-010",
    Severity.INFO,
    "relaxed ordering (read as root)",
    expected="on",
    unless=(no_adapters, virtual_machine),
)
def relaxed_ordering(hca: Hca) -> str | None:
    """Return the fault of *hca* if its writes are strictly ordered."""
    return None if known(known(hca.function).relaxed_ordering) else "relaxed ordering off"


@hca_rule(
    "RDM-011",
    Severity.INFO,
    "maximum read request (read as root)",
    expected=f"{LARGEST_REQUEST} bytes",
    unless=(no_adapters, virtual_machine),
)
def read_requests(hca: Hca) -> str | None:
    """Return the maximum read request of *hca* where it is small."""
    size = known(known(hca.function).max_read_request)
    return f"{size} bytes" if size < LARGEST_REQUEST else None


def _waiting(port: HcaPort) -> str:
    """Return a remark if *port* has a link but was not configured; otherwise an empty text.

    An InfiniBand port stays in INIT until a subnet manager gives it a LID (InfiniBand Architecture
    Specification, volume 1, section 14.4).
    """
    is_waiting = port.state == "INIT" and port.physical_state == "LinkUp"
    is_infiniband = port.layer is LinkLayer.INFINIBAND
    return ": no subnet manager has set it up" if is_waiting and is_infiniband else ""


def _spare_adapters(snapshot: Snapshot) -> frozenset[str]:
    """Return the names of the HCAs that can have a free port: another port of the card is active.

    Cards for storage and management often have a port without a cable. Not so cards behind a PCIe
    switch with a GPU: those are there for jobs.
    """
    hcas = snapshot.hcas or ()
    in_use = {_card(hca) for _, hca, _ in active_ports(snapshot)}
    at_gpus = {
        hcas[position].name
        for (_, position), distance in hca_closeness(snapshot).items()
        if distance <= Closeness.PXB
    }
    return frozenset(
        hca.name
        for hca in own_adapters(snapshot)
        if hca.name not in at_gpus and _card(hca) in in_use
    )


def _card(hca: Hca) -> object:
    """Return a key that the functions of one card, in one slot, share."""
    at = hca.pci
    return hca.name if at is None else (at.domain, at.bus, at.device)
