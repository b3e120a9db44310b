"""A rule on Access Control Services, which send peer traffic on a detour through the CPU."""

from collections.abc import Mapping
from types import MappingProxyType

from agent.checks.inputs import Inputs, unknown_of
from agent.checks.pcie_paths import missing_pairs, no_pairs, ports_between, switch_pairs
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.pci import PciAddress, PciBridge
from agent.model.snapshot import Snapshot

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


def _missing(snapshot: Snapshot) -> Inputs:
    bridges = _bridges(snapshot)
    ports = {port for pair in switch_pairs(snapshot) for port in ports_between(*pair)}
    unread = (
        str(port)
        for port in sorted(ports)
        if port not in bridges or bridges[port].acs_control is None
    )
    # Only a reader with CAP_SYS_ADMIN sees config space beyond its first 64 bytes.
    return missing_pairs(snapshot) + unknown_of("ACS control (read as root)", unread)


RULE = Rule(
    code="PCI-005",
    claim="no bridge turns away traffic between a GPU and its peers behind the same PCIe switch",
    why="The data of GPUDirect goes up to the CPU and down again instead of through the switch: "
    "half the bandwidth or less, or no peer access at all.",
    area=Area.PCIE,
    suite=Suite.AUDIT,
    severity=Severity.ERROR,
    needs=_missing,
    check=_redirecting,
    skips=no_pairs,
    remedy="clear the bits after each boot with `setpci -s BRIDGE ECAP_ACS+6.w=0000`, or boot with "
    "`pci=disable_acs_redir=BRIDGE`, or switch ACS off in the firmware; hosts of virtual machines "
    "need ACS, and then ATS",
    reference="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
)
