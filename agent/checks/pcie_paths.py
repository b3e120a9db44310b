"""Devices behind one PCIe switch: data between them need not go up to the CPU."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from agent.checks.inputs import (
    Inputs,
    because,
    gpu_label,
    has_no_gpus,
    hca_label,
    missing_gpus,
    missing_hcas,
    missing_machine,
    own_adapters,
    unknown_of,
    virtual_machine,
)
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.pci import IommuType, PciAddress, PciFunction, PciPath
from agent.model.snapshot import Snapshot
from agent.topology.path import shared_hops


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A GPU, an HCA, or a Data Direct function.

    Attributes:
        label: how a finding names it.
        gpu: index, for a GPU.
    """

    label: str
    path: PciPath | None
    function: PciFunction | None
    gpu: int | None = None


def devices(snapshot: Snapshot) -> tuple[Device, ...]:
    """Return the GPUs, then the adapters that are no parts of others, then Data Direct."""
    return (
        *(
            Device(label=gpu_label(gpu), path=gpu.path, function=gpu.function, gpu=gpu.index)
            for gpu in snapshot.gpus
        ),
        *(
            Device(label=hca_label(hca), path=hca.path, function=hca.function)
            for hca in own_adapters(snapshot)
        ),
        *(
            Device(label=f"DD{at} {direct.pci}", path=direct.path, function=direct.function)
            for at, direct in enumerate(snapshot.data_directs or ())
        ),
    )


def switch_pairs(snapshot: Snapshot) -> tuple[tuple[Device, Device], ...]:
    """Return every GPU with each of its peers behind the same PCIe switch.

    Those with HCAs come first: their traffic has no other way.
    """
    found = [
        (a, b)
        for a, b in combinations(devices(snapshot), 2)
        if a.gpu is not None and a.path and b.path and shared_hops(a.path, b.path)
    ]
    return tuple(sorted(found, key=lambda pair: pair[1].gpu is not None))


def ports_between(a: Device, b: Device) -> Iterator[PciAddress]:
    """Yield the ports below the switch that the two share, on the way to either."""
    if a.path is None or b.path is None:
        return
    shared = shared_hops(a.path, b.path)
    yield from (*a.path.hops[shared:-1], *b.path.hops[shared:-1])


def missing_pairs(snapshot: Snapshot) -> Inputs:
    """Return what is not known of who shares a switch with whom, on real hardware."""
    homeless = [device.label for device in devices(snapshot) if device.path is None]
    return (
        *missing_gpus(snapshot),
        *missing_hcas(snapshot),
        *missing_machine(snapshot),
        *unknown_of("place on the PCI bus", homeless),
        *((f"PCI bridges{because(snapshot, 'pcie')}",) if snapshot.bridges is None else ()),
    )


def no_pairs(snapshot: Snapshot) -> str | None:
    """Return why rules about such pairs say nothing here."""
    if has_no_gpus(snapshot):
        return "no GPU"
    if (reason := virtual_machine(snapshot)) is not None:
        return reason
    is_without = not missing_pairs(snapshot) and not switch_pairs(snapshot)
    return "no GPU shares a PCIe switch with an HCA or another GPU" if is_without else None


# A rule on the IOMMU: addresses that it translates send peer traffic through the CPU.

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
