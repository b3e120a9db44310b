"""Devices behind one PCIe switch, whose traffic need not go up to the CPU, and PCI-006."""

from collections.abc import Iterator
from itertools import combinations

from msgspec import Struct

from nodetopo.checks.inputs import (
    because,
    gpu_label,
    hca_label,
    missing_gpus,
    missing_hcas,
    missing_machine,
    no_gpus,
    own_adapters,
    unknown_of,
    virtual_machine,
)
from nodetopo.checks.rule import Finding, Judgement, Missing, Severity, Skip, rule
from nodetopo.model.pci import IommuType, PciAddress, PciFunction, PciPath
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.path import shared_hops

TRANSLATING = (IommuType.DMA, IommuType.DMA_FQ)
"""Group types whose addresses are translated (kernel Documentation/ABI/testing/
sysfs-kernel-iommu_groups)."""


class Device(Struct, frozen=True, kw_only=True):
    """A GPU, an HCA, or a Data Direct function.

    Attributes:
        label: its name in a finding.
        gpu: index, for a GPU.
    """

    label: str
    path: PciPath | None
    function: PciFunction | None
    gpu: int | None = None

    @property
    def max_payload(self) -> int | None:
        """The maximum payload in bytes."""
        return None if self.function is None else self.function.max_payload


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
    pairs = (
        (a, b)
        for a, b in combinations(devices(snapshot), 2)
        if a.gpu is not None and a.path and b.path and shared_hops(a.path, b.path)
    )
    return tuple(sorted(pairs, key=lambda pair: pair[1].gpu is not None))


def ports_between(a: Device, b: Device) -> Iterator[PciAddress]:
    """Yield the ports below the switch that the two share, on the way to either."""
    if a.path is None or b.path is None:
        return
    shared = shared_hops(a.path, b.path)
    yield from (*a.path.hops[shared:-1], *b.path.hops[shared:-1])


def missing_pairs(snapshot: Snapshot) -> tuple[Missing, ...]:
    """Return the unknown inputs about shared switches, on real hardware."""
    bridges = Missing("PCI bridges", because(snapshot, "pcie"))
    return (
        *missing_gpus(snapshot),
        *missing_hcas(snapshot),
        *missing_machine(snapshot),
        *unknown_of(
            "place on the PCI bus",
            (device.label for device in devices(snapshot) if not device.path),
        ),
        *((bridges,) if snapshot.bridges is None else ()),
    )


def no_pairs(snapshot: Snapshot) -> str | None:
    """Return why rules about such pairs do not apply."""
    if reason := no_gpus(snapshot) or virtual_machine(snapshot):
        return reason
    is_without = not missing_pairs(snapshot) and not switch_pairs(snapshot)
    return "no GPU shares a PCIe switch with an HCA or another GPU" if is_without else None


def is_translated(snapshot: Snapshot) -> bool:
    """Return whether the addresses of a GPU or an HCA are known to be translated."""
    return any(
        device.function and device.function.iommu_type in TRANSLATING
        for device in devices(snapshot)
    )


@rule("PCI-006", Severity.WARNING)
def iommu_translation(snapshot: Snapshot) -> Judgement:
    """Find devices whose addresses the IOMMU translates."""
    peers = devices(snapshot)
    reason = no_gpus(snapshot)
    if reason is None and any(gpu.c2c and gpu.c2c.is_enabled for gpu in snapshot.gpus):
        reason = "GPUs that share addresses with the CPU"
    if reason is None and snapshot.hcas is not None and len(peers) == 1:
        reason = "no peer of the GPU"
    if reason := reason or virtual_machine(snapshot):
        yield Skip(reason)
        return
    unread = []
    for device in peers:
        function = device.function
        kind = None if function is None else function.iommu_type
        if function is None or (function.iommu_group is not None and kind is None):
            unread.append(device.label)
        elif kind in TRANSLATING:
            yield Finding(
                subject=device.label,
                observed=f"IOMMU group {function.iommu_group} translates ({kind.value})",
                expected="identity, or no IOMMU",
            )
    yield from missing_gpus(snapshot)
    yield from missing_hcas(snapshot)
    yield from missing_machine(snapshot)
    yield from unknown_of("IOMMU group", unread, because(snapshot, "pcie"))
