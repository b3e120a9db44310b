"""A rule on the IOMMU: addresses that it translates send peer traffic through the CPU."""

from collections.abc import Iterator

from agent.checks.inputs import (
    Inputs,
    because,
    has_no_gpus,
    missing_gpus,
    missing_hcas,
    missing_machine,
    unknown_of,
    virtual_machine,
)
from agent.checks.pcie_paths import Device, devices
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.pci import IommuType
from agent.model.snapshot import Snapshot

TRANSLATING = (IommuType.DMA, IommuType.DMA_FQ)
"""Group types whose addresses are translated (kernel Documentation/ABI/testing/
sysfs-kernel-iommu_groups)."""


def _translated(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            subject=device.label,
            observed=f"IOMMU group {device.function.iommu_group} translates "
            f"({device.function.iommu_type.value})",
            expected="identity, or no IOMMU",
        )
        for device in devices(snapshot)
        if device.function is not None and device.function.iommu_type in TRANSLATING
        if device.function.iommu_type is not None
    )


def is_translated(snapshot: Snapshot) -> bool:
    """Return whether the addresses of a GPU or an HCA are known to be translated."""
    return any(it.function and it.function.iommu_type in TRANSLATING for it in devices(snapshot))


def _missing(snapshot: Snapshot) -> Inputs:
    return (
        *missing_gpus(snapshot),
        *missing_hcas(snapshot),
        *missing_machine(snapshot),
        *unknown_of(f"IOMMU group{because(snapshot, 'pcie')}", _unread(snapshot)),
    )


def _unread(snapshot: Snapshot) -> Iterator[str]:
    for device in devices(snapshot):
        if device.function is None or _hides_its_type(device):
            yield device.label


def _hides_its_type(device: Device) -> bool:
    function = device.function
    return function is not None and function.iommu_group is not None and not function.iommu_type


def _skips(snapshot: Snapshot) -> str | None:
    if has_no_gpus(snapshot):
        return "no GPU"
    if any(gpu.c2c and gpu.c2c.is_enabled for gpu in snapshot.gpus):
        return "GPUs that share addresses with the CPU"
    if snapshot.hcas is not None and len(devices(snapshot)) == 1:
        return "no peer of the GPU"
    return virtual_machine(snapshot)


RULE = Rule(
    code="PCI-006",
    claim="the IOMMU passes the addresses of GPUs and HCAs through",
    why="Peer traffic with translated addresses goes through the CPU, slowly, and with some "
    "drivers not at all.",
    area=Area.PCIE,
    suite=Suite.AUDIT,
    severity=Severity.WARNING,
    needs=_missing,
    check=_translated,
    skips=_skips,
    remedy="boot with `iommu=pt` (on Arm `iommu.passthrough=1`), or switch the IOMMU off in the "
    "firmware",
    reference="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
)
