"""Rules on the GPUs' place on the PCI bus, and on the way to their peers behind one switch."""

from collections.abc import Mapping
from types import MappingProxyType

from nodetopo.checks.inputs import (
    because,
    confidential,
    gpu_label,
    missing_answers,
    missing_gpus,
    missing_machine,
    missing_of_gpus,
    no_gpus,
    statuses,
    unknown_of,
    virtual_machine,
)
from nodetopo.checks.rule import Finding, Judgement, Missing, Severity, Skip, rule
from nodetopo.components.audit.rules.nvlink_inputs import lost
from nodetopo.components.audit.rules.pcie_paths import (
    missing_pairs,
    no_pairs,
    ports_between,
    switch_pairs,
)
from nodetopo.model.nvlink import P2pStatus
from nodetopo.model.pci import PciAddress, PcieLink
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.complex_faults import Concern, concern
from nodetopo.topology.complexes import DIRECT_TRANSLATED, complexes
from nodetopo.topology.lanes import ends, lanes
from nodetopo.topology.presence import dead_gpus, expected_gpus, meant_gpus, present_gpus

REFUSALS = (
    P2pStatus.CHIPSET_NOT_SUPPORTED,
    P2pStatus.TOPOLOGY_NOT_SUPPORTED,
    P2pStatus.DISABLED_BY_REGKEY,
)
"""Refusals caused by the machine or a setting; a GPU's own lack (GeForce) is no finding."""

REDIRECTS: Mapping[int, str] = MappingProxyType(
    {0x04: "request redirect", 0x08: "completion redirect", 0x20: "egress control"},
)
"""Bits of the ACS control register that turn peers away (PCI Express Base Specification, ACS
Control Register); together they are :data:`nodetopo.model.pci.ACS_REDIRECT_BITS`."""


@rule("PCI-001", Severity.ERROR, unless=no_gpus)
def width(snapshot: Snapshot) -> Judgement:
    """Find GPUs with fewer lanes than GPU and slot can do; fewer lanes of a slot are PCI-003's."""
    silent = []
    found = lanes(snapshot)
    for gpu in snapshot.gpus:
        both = found[gpu.index]
        if both is None:
            silent.append(gpu.name)
        elif both[0] < both[1]:
            width, full = both
            yield Finding(subject=gpu_label(gpu), observed=f"x{width}", expected=f"x{full}")
    yield from missing_of_gpus(snapshot, "PCIe link width", silent)


@rule("PCI-002", Severity.ERROR)
def presence(snapshot: Snapshot) -> Judgement:
    """Find lost GPUs, and those on PCI that NVML should list; others that it does not are unknown.

    GPUs that another driver has, such as ``vfio-pci``, are left alone.
    """
    meant, dead = meant_gpus(snapshot), dead_gpus(snapshot)
    if meant and not snapshot.gpus and len(meant) == len(snapshot.pci_gpus or ()):
        yield Skip(f"all GPUs are bound to {', '.join(sorted({str(gpu.driver) for gpu in meant}))}")
        return
    silent = []
    for gpu in snapshot.gpus:
        if gpu.is_lost:
            yield Finding(subject=gpu_label(gpu), observed="lost", expected="answers the driver")
        elif gpu.uuid is None:
            silent.append(gpu.name)
    for unlisted in dead:
        yield Finding(
            subject=f"GPU {unlisted.pci}",
            observed=f"not listed by NVML, bound to {unlisted.driver or 'no driver'}",
            expected="answers the driver",
        )
    if len(dead) < len(snapshot.pci_gpus or ()):
        yield from missing_answers(snapshot)
    yield from unknown_of("answer", silent)
    judged = {gpu.pci for gpu in (*meant, *dead)}
    for issue in snapshot.issues:
        if issue.probe == "pcie" and issue.pci is not None and issue.pci not in judged:
            yield Missing(f"{issue.subject}, {issue.reason}")


@rule("PCI-010", Severity.ERROR)
def completeness(snapshot: Snapshot) -> Judgement:
    """Find a machine with fewer GPUs on PCI than it should have, whatever drivers they have."""
    expected, present = expected_gpus(snapshot), present_gpus(snapshot)
    if present is None:
        yield Missing("GPUs on PCI", because(snapshot, "pcie"))
    elif expected is None:
        yield Skip("nothing says how many GPUs there should be; `expect-gpus` can")
    elif present < expected.count:
        yield Finding(
            subject="GPUs on PCI",
            observed=str(present),
            expected=f"{expected.count}, as {expected.source}",
        )
    elif expected.doubt is not None:
        yield Missing("the number of GPUs that this machine should have", expected.doubt)


@rule("PCI-003", Severity.INFO, unless=(no_gpus, virtual_machine))
def slots(snapshot: Snapshot) -> Judgement:
    """Find GPUs whose port has fewer lanes, or an older generation, than they can use."""
    unread = []
    for gpu, own, port in ends(snapshot):
        wanted, given = _greatest(own), _greatest(port)
        if wanted is None or given is None:
            unread.append(gpu.name)
        elif given[0] < wanted[0] or given[1] < wanted[1]:
            yield Finding(
                subject=gpu_label(gpu),
                observed=f"a slot of Gen{given[0]} x{given[1]}",
                expected=f"Gen{wanted[0]} x{wanted[1]}",
            )
    yield from missing_gpus(snapshot)
    yield from missing_machine(snapshot)
    yield from unknown_of("greatest PCIe link", unread)


@rule("PCI-004", Severity.WARNING)
def peer_access(snapshot: Snapshot) -> Judgement:
    """Find pairs of GPUs behind one switch without access to each other's memory."""
    absent = (*missing_answers(snapshot), *missing_pairs(snapshot))
    unusable = {gpu.index for gpu in snapshot.gpus if gpu.is_divided or gpu.is_lost}
    pairs = [
        (f"{a.label} and {b.label}", a.gpu, b.gpu)
        for a, b in switch_pairs(snapshot)
        if a.gpu is not None and b.gpu is not None and not {a.gpu, b.gpu} & unusable
    ]
    reason = no_gpus(snapshot) or virtual_machine(snapshot) or confidential(snapshot)
    if reason is None and not pairs and not absent and not lost(snapshot):
        reason = "no two GPUs share a PCIe switch"
    if reason:
        yield Skip(reason)
        return
    silent = []
    between = statuses(snapshot, "read", "write")
    for name, a, b in pairs:
        answers = between(a, b)
        if None in answers:
            silent.append(name)
        if refusals := sorted({status.value for status in answers if status in REFUSALS}):
            yield Finding(subject=name, observed=", ".join(refusals), expected="peer access")
    yield from absent
    yield from unknown_of("peer access", (*silent, *lost(snapshot)))


@rule("PCI-005", Severity.ERROR, unless=no_pairs)
def access_control(snapshot: Snapshot) -> Judgement:
    """Find bridges on the way between peers whose Access Control Services redirect requests.

    PCI-008 and PCI-009 judge wirings that need such bits.
    """
    layout = complexes(snapshot)
    concerns = (Concern.WAY, Concern.ISOLATION)
    elsewhere = {port.address for port in layout.ports if concern(layout, port) in concerns}
    between: dict[PciAddress, list[str]] = {}
    for a, b in switch_pairs(snapshot):
        for port in ports_between(a, b):
            if port in elsewhere:
                continue
            between.setdefault(port, []).append(f"{a.label} and {b.label}")
    bridges = {bridge.address: bridge for bridge in snapshot.bridges or ()}
    unread = []
    for port, pairs in sorted(between.items()):
        bridge = bridges.get(port)
        if bridge is None or bridge.acs_control is None:
            unread.append(str(port))
        elif bridge.redirects_peers and not bridge.acs_control & DIRECT_TRANSLATED:
            control = bridge.acs_control
            bits = ", ".join(text for bit, text in REDIRECTS.items() if control & bit)
            more = f", and {len(pairs) - 1} more pairs" if len(pairs) > 1 else ""
            yield Finding(
                subject=f"bridge {port}",
                observed=f"ACS control 0x{control:04x} ({bits}) between {pairs[0]}{more}",
                expected="none of these bits",
            )
    yield from missing_pairs(snapshot)
    # Only a reader with CAP_SYS_ADMIN sees config space beyond its first 64 bytes.
    yield from unknown_of("ACS control (read as root)", unread)


@rule("PCI-007", Severity.WARNING, unless=no_pairs)
def max_payload(snapshot: Snapshot) -> Judgement:
    """Find peers with different payloads, and devices with more than a bridge above them takes."""
    pairs = switch_pairs(snapshot)
    for a, b in pairs:
        sizes = a.max_payload, b.max_payload
        if None not in sizes and sizes[0] != sizes[1]:
            yield Finding(
                subject=f"{a.label} and {b.label}",
                observed=f"{sizes[0]} and {sizes[1]} bytes",
                expected="the same maximum payload",
            )
    limits = {bridge.address: bridge.max_payload for bridge in snapshot.bridges or ()}
    unread = []
    for device in {device.label: device for pair in pairs for device in pair}.values():
        size = device.max_payload
        if size is None:
            unread.append(device.label)
            continue
        for port in device.path.hops[:-1] if device.path else ():
            limit = limits.get(port)
            if limit is not None and size > limit:
                yield Finding(
                    subject=device.label,
                    observed=f"{size} bytes, and {limit} at bridge {port} above it",
                    expected="no more than the bridges above take",
                )
    yield from missing_pairs(snapshot)
    # Only a reader with CAP_SYS_ADMIN sees config space beyond its first 64 bytes.
    yield from unknown_of("maximum payload (read as root)", unread)


def _greatest(link: PcieLink | None) -> tuple[int, int] | None:
    """Return the greatest generation and width of *link*; None where either is not known."""
    if link is None or link.max_generation is None or link.max_width is None:
        return None
    return link.max_generation, link.max_width
