"""Rules on the GPUs' place on the PCI bus."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from agent.checks import pcie_paths
from agent.checks.inputs import (
    Inputs,
    Way,
    confidential,
    first_of,
    gpu_label,
    has_no_gpus,
    missing_answers,
    missing_gpus,
    missing_machine,
    missing_of_gpus,
    no_gpus,
    statuses,
    unknown_of,
    virtual_machine,
)
from agent.checks.nvlink_inputs import lost
from agent.checks.pcie_paths import Device, missing_pairs, no_pairs, ports_between, switch_pairs
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.gpu import Gpu
from agent.model.nvlink import P2pStatus
from agent.model.pci import PciAddress, PciBridge, PcieLink
from agent.model.snapshot import ProbeIssue, Snapshot

# A rule on slots that give a GPU less than it could use.


def ends(snapshot: Snapshot) -> Iterator[tuple[Gpu, PcieLink | None, PcieLink | None]]:
    """Yield each GPU below a port, with its own link and the port's."""
    ports = {bridge.address: bridge.link for bridge in snapshot.bridges or ()}
    for gpu in snapshot.gpus:
        if gpu.path is None or len(gpu.path.hops) > 1:
            own = None if gpu.function is None else gpu.function.link
            yield gpu, own, None if gpu.path is None else ports.get(gpu.path.hops[-2])


def _held_back(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            subject=gpu_label(gpu),
            observed=f"a slot of Gen{port.max_generation} x{port.max_width}",
            expected=f"Gen{own.max_generation} x{own.max_width}",
        )
        for gpu, own, port in ends(snapshot)
        if own and port and _is_known(own) and _is_known(port) and _is_less(port, own)
    )


def _is_known(link: PcieLink | None) -> bool:
    return link is not None and None not in (link.max_generation, link.max_width)


def _is_less(port: PcieLink, own: PcieLink) -> bool:
    generations = port.max_generation or 0, own.max_generation or 0
    widths = port.max_width or 0, own.max_width or 0
    return generations[0] < generations[1] or widths[0] < widths[1]


def _missing(snapshot: Snapshot) -> Inputs:
    unread = (
        gpu.name for gpu, own, port in ends(snapshot) if not _is_known(own) or not _is_known(port)
    )
    return (
        *missing_gpus(snapshot),
        *missing_machine(snapshot),
        *unknown_of("greatest PCIe link", unread),
    )


RULE = Rule(
    code="PCI-003",
    claim="every GPU is in a slot that gives it all that it can use",
    why="A slot or riser of fewer lanes or an older generation costs bandwidth to the CPU, to "
    "storage and to HCAs, without any error.",
    area=Area.PCIE,
    suite=Suite.HEALTH,
    severity=Severity.INFO,
    needs=_missing,
    check=_held_back,
    skips=first_of(no_gpus, virtual_machine),
    remedy="move the GPU to another slot; where the machine has no better one, leave it",
    reference="https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-bus-pci",
)


# A rule on the sizes of PCIe packets: nobody may be sent more than it takes.


def _payload(device: Device) -> int | None:
    return None if device.function is None else device.function.max_payload


def _paired(snapshot: Snapshot) -> tuple[Device, ...]:
    """Return the devices of all pairs, once each."""
    return tuple(
        {device.label: device for pair in switch_pairs(snapshot) for device in pair}.values()
    )


def _unequal(snapshot: Snapshot) -> tuple[Finding, ...]:
    return (*_unequal_pairs(snapshot), *_above_bridges(snapshot))


def _unequal_pairs(snapshot: Snapshot) -> Iterator[Finding]:
    for a, b in switch_pairs(snapshot):
        sizes = _payload(a), _payload(b)
        if None not in sizes and sizes[0] != sizes[1]:
            yield Finding(
                subject=f"{a.label} and {b.label}",
                observed=f"{sizes[0]} and {sizes[1]} bytes",
                expected="the same maximum payload",
            )


def _above_bridges(snapshot: Snapshot) -> Iterator[Finding]:
    limits = {bridge.address: bridge.max_payload for bridge in snapshot.bridges or ()}
    for device in _paired(snapshot):
        hops = () if device.path is None else device.path.hops[:-1]
        for port in hops:
            limit, size = limits.get(port), _payload(device)
            if limit is not None and size is not None and size > limit:
                yield Finding(
                    subject=device.label,
                    observed=f"{size} bytes, and {limit} at bridge {port} above it",
                    expected="no more than the bridges above take",
                )


def _payload_missing(snapshot: Snapshot) -> Inputs:
    unread = (device.label for device in _paired(snapshot) if _payload(device) is None)
    # Only a reader with CAP_SYS_ADMIN sees config space beyond its first 64 bytes.
    return missing_pairs(snapshot) + unknown_of("maximum payload (read as root)", unread)


PAYLOAD_RULE = Rule(
    code="PCI-007",
    claim="GPUs and their peers behind a PCIe switch agree on the maximum payload",
    why="A packet larger than its receiver takes is a fatal error of the bus; it shows only once "
    "peers write to each other.",
    area=Area.PCIE,
    suite=Suite.AUDIT,
    severity=Severity.WARNING,
    needs=_payload_missing,
    check=_unequal,
    skips=no_pairs,
    remedy="boot with `pci=pcie_bus_perf` or `pci=pcie_bus_safe`, or update the firmware",
    reference="https://docs.kernel.org/admin-guide/kernel-parameters.html",
)


# A rule on peer access between GPUs that share a PCIe switch.

REFUSALS = (
    P2pStatus.CHIPSET_NOT_SUPPORTED,
    P2pStatus.TOPOLOGY_NOT_SUPPORTED,
    P2pStatus.DISABLED_BY_REGKEY,
)
"""What the machine or a setting causes. That the GPU itself cannot (GeForce) is no finding."""


def _told(snapshot: Snapshot) -> Iterator[tuple[str, tuple[P2pStatus | None, ...]]]:
    """Yield each such pair of GPUs with what the driver says of reads and writes, both ways."""
    known = statuses(snapshot, (Way.READ, Way.WRITE))
    out = {gpu.index for gpu in snapshot.gpus if gpu.is_divided or gpu.is_lost}
    for a, b in switch_pairs(snapshot):
        if a.gpu is not None and b.gpu is not None and not {a.gpu, b.gpu} & out:
            yield f"{a.label} and {b.label}", known(a.gpu, b.gpu)


def _refused(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(subject=pair, observed=refusal, expected="peer access")
        for pair, told in _told(snapshot)
        if (refusal := ", ".join(sorted({status.value for status in told if status in REFUSALS})))
    )


def _peers_missing(snapshot: Snapshot) -> Inputs:
    silent = (pair for pair, told in _told(snapshot) if None in told)
    return (
        *missing_answers(snapshot),
        *missing_pairs(snapshot),
        *unknown_of("peer access", (*silent, *lost(snapshot))),
    )


def _skips(snapshot: Snapshot) -> str | None:
    if has_no_gpus(snapshot):
        return "no GPU"
    reason = virtual_machine(snapshot) or confidential(snapshot)
    if reason is not None:
        return reason
    is_known = not missing_answers(snapshot) and not missing_pairs(snapshot) and not lost(snapshot)
    is_without = is_known and not any(_told(snapshot))
    return "no two GPUs share a PCIe switch" if is_without else None


PEERS_RULE = Rule(
    code="PCI-004",
    claim="the driver allows peer access between GPUs that share a PCIe switch",
    why="Without it the data of the two goes through host memory.",
    area=Area.PCIE,
    suite=Suite.HEALTH,
    severity=Severity.WARNING,
    needs=_peers_missing,
    check=_refused,
    skips=_skips,
    remedy="see `nvidia-smi topo -p2p r`; check ACS (PCI-005), the IOMMU (PCI-006) and the "
    "driver's parameters (GDR-002)",
    reference="https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html",
)


# A rule on Access Control Services, which send peer traffic on a detour through the CPU.

REDIRECTS: Mapping[int, str] = MappingProxyType(
    {0x04: "request redirect", 0x08: "completion redirect", 0x20: "egress control"},
)
"""Bits of the ACS control register that turn peers away (PCI Express Base Specification, ACS
Control Register); together they are :data:`agent.model.pci.ACS_REDIRECT_BITS`."""


DIRECT_TRANSLATED = 0x40
"""The bit that lets requests through whose addresses were translated beforehand (ATS): a node
that sets it on purpose does not make the detour."""


def _bridges(snapshot: Snapshot) -> Mapping[PciAddress, PciBridge]:
    return {bridge.address: bridge for bridge in snapshot.bridges or ()}


def _redirecting(snapshot: Snapshot) -> tuple[Finding, ...]:
    bridges = _bridges(snapshot)
    pairs: dict[PciAddress, list[str]] = {}
    for a, b in switch_pairs(snapshot):
        for port in ports_between(a, b):
            if port in bridges and _turns_away(bridges[port]):
                pairs.setdefault(port, []).append(f"{a.label} and {b.label}")
    return tuple(_finding(bridges[port], between) for port, between in sorted(pairs.items()))


def _turns_away(bridge: PciBridge) -> bool:
    return bool(bridge.redirects_peers) and not (bridge.acs_control or 0) & DIRECT_TRANSLATED


def _finding(bridge: PciBridge, pairs: list[str]) -> Finding:
    control = bridge.acs_control or 0
    bits = ", ".join(text for bit, text in REDIRECTS.items() if control & bit)
    more = f", and {len(pairs) - 1} more pairs" if len(pairs) > 1 else ""
    return Finding(
        subject=f"bridge {bridge.address}",
        observed=f"ACS control 0x{control:04x} ({bits}) between {pairs[0]}{more}",
        expected="none of these bits",
    )


def _acs_missing(snapshot: Snapshot) -> Inputs:
    bridges = _bridges(snapshot)
    ports = {port for pair in switch_pairs(snapshot) for port in ports_between(*pair)}
    unread = (
        str(port)
        for port in sorted(ports)
        if port not in bridges or bridges[port].acs_control is None
    )
    # Only a reader with CAP_SYS_ADMIN sees config space beyond its first 64 bytes.
    return missing_pairs(snapshot) + unknown_of("ACS control (read as root)", unread)


ACS_RULE = Rule(
    code="PCI-005",
    claim="no bridge turns away traffic between a GPU and its peers behind the same PCIe switch",
    why="The data of GPUDirect goes up to the CPU and down again instead of through the switch: "
    "half the bandwidth or less, or no peer access at all.",
    area=Area.PCIE,
    suite=Suite.AUDIT,
    severity=Severity.ERROR,
    needs=_acs_missing,
    check=_redirecting,
    skips=no_pairs,
    remedy="clear the bits after each boot with `setpci -s BRIDGE ECAP_ACS+6.w=0000`, or boot with "
    "`pci=disable_acs_redir=BRIDGE`, or switch ACS off in the firmware; hosts of virtual machines "
    "need ACS, and then ATS",
    reference="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
)


def _narrow(snapshot: Snapshot) -> tuple[Finding, ...]:
    # The width, unlike the generation, does not drop while a GPU idles.
    slots = {gpu.index: port for gpu, _, port in ends(snapshot)}
    return tuple(
        Finding(subject=gpu_label(gpu), observed=f"x{gpu.pcie.width}", expected=f"x{full}")
        for gpu in snapshot.gpus
        if gpu.pcie
        and gpu.pcie.width is not None
        and (full := _full_width(gpu.pcie, slots.get(gpu.index))) is not None
        and gpu.pcie.width < full
    )


def _full_width(own: PcieLink, port: PcieLink | None) -> int | None:
    """Return what GPU and slot can do together; that a slot has fewer lanes is PCI-003's."""
    if own.max_width is None or port is None or port.max_width is None:
        return own.max_width
    return min(own.max_width, port.max_width)


def _knows_width(gpu: Gpu) -> bool:
    link = gpu.pcie
    return link is not None and link.width is not None and link.max_width is not None


def _lost(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(subject=gpu_label(gpu), observed="lost", expected="answers the driver")
        for gpu in snapshot.gpus
        if gpu.is_lost
    )


def _missing_gpus(snapshot: Snapshot) -> Inputs:
    silent = [gpu.name for gpu in snapshot.gpus if not gpu.is_lost and gpu.uuid is None]
    return (
        *missing_answers(snapshot),
        *((f"answer of {', '.join(silent)}",) if silent else ()),
        *(f"{it.subject}, {it.reason}" for it in snapshot.issues if _is_of_census(it)),
    )


def _is_of_census(issue: ProbeIssue) -> bool:
    """Return whether *issue* says that PCI and NVML disagree about the GPU at an address."""
    try:
        PciAddress.parse(issue.subject)
    except ValueError:
        return False
    return issue.probe == "pcie"


RULES: tuple[Rule, ...] = (
    Rule(
        code="PCI-001",
        claim="every GPU runs at its full PCIe width",
        why="Half the lanes are half the bandwidth to the CPU, to storage and to the HCAs.",
        area=Area.PCIE,
        suite=Suite.HEALTH,
        severity=Severity.ERROR,
        needs=missing_of_gpus("PCIe link width", _knows_width),
        check=_narrow,
        skips=no_gpus,
        remedy="reseat the GPU, then check riser, cable and the slot's bifurcation in firmware",
        reference="https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html",
    ),
    Rule(
        code="PCI-002",
        claim="every GPU is on the bus and answers",
        why="A GPU that fell off the bus comes back with a reboot at the earliest; its jobs are "
        "gone.",
        area=Area.PCIE,
        suite=Suite.HEALTH,
        severity=Severity.ERROR,
        needs=_missing_gpus,
        check=_lost,
        remedy="look for XID 79 in the kernel log; drain and reboot the node, and if it happens "
        "again check power, cooling and seating of the GPU",
        reference="https://docs.nvidia.com/deploy/xid-errors/",
    ),
    RULE,
    PEERS_RULE,
    ACS_RULE,
    pcie_paths.RULE,
    PAYLOAD_RULE,
)
