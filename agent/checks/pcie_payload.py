"""A rule on the sizes of PCIe packets: nobody may be sent more than it takes."""

from collections.abc import Iterator

from agent.checks.inputs import Inputs, unknown_of
from agent.checks.pcie_paths import Device, missing_pairs, no_pairs, switch_pairs
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.snapshot import Snapshot


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


def _missing(snapshot: Snapshot) -> Inputs:
    unread = (device.label for device in _paired(snapshot) if _payload(device) is None)
    # Only a reader with CAP_SYS_ADMIN sees config space beyond its first 64 bytes.
    return missing_pairs(snapshot) + unknown_of("maximum payload (read as root)", unread)


RULE = Rule(
    code="PCI-007",
    claim="GPUs and their peers behind a PCIe switch agree on the maximum payload",
    why="A packet larger than its receiver takes is a fatal error of the bus; it shows only once "
    "peers write to each other.",
    area=Area.PCIE,
    suite=Suite.AUDIT,
    severity=Severity.WARNING,
    needs=_missing,
    check=_unequal,
    skips=no_pairs,
    remedy="boot with `pci=pcie_bus_perf` or `pci=pcie_bus_safe`, or update the firmware",
    reference="https://docs.kernel.org/admin-guide/kernel-parameters.html",
)
