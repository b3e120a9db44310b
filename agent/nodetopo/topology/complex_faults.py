"""Faults of GPU–NIC complexes: flags of ports, IOMMU groups, address translation."""

from collections.abc import Iterator
from enum import StrEnum

from msgspec import Struct

from nodetopo.model.gpu import Gpu
from nodetopo.model.hca import DataDirect, Hca
from nodetopo.topology.complexes import (
    DIRECT,
    Complex,
    Complexes,
    ComplexKind,
    Port,
    PortMake,
    PortRole,
    as_flags,
)


class Fault(Struct, frozen=True, kw_only=True):
    """Something that is not as its complex needs it."""

    subject: str
    observed: str
    expected: str


class Unread(Struct, frozen=True):
    """A fact that must be known for a verdict: *what* of which *subject*."""

    what: str
    subject: str


_FLAGS = (
    "source validation",
    "translation blocking",
    "request redirect",
    "completion redirect",
    "upstream forwarding",
    "egress control",
    "direct translated",
)
"""By bit of the ACS control register (PCI Express Base Specification, ACS Control Register)."""


class Concern(StrEnum):
    """The purpose of a port's flags."""

    WAY = "way"
    """HCA and GPU can reach each other, in a layout with known flags."""
    DETOUR = "detour"
    """Peers behind any other switch reach each other without a detour."""
    ISOLATION = "isolation"
    """Devices below the port are isolated from the rest, as set by the kernel."""


def concern(found: Complexes, port: Port) -> Concern | None:
    """Return what the flags of *port* decide; ``None`` where none are expected."""
    if port.expected is None:
        return None
    if port.expected == DIRECT:
        return Concern.DETOUR
    roles = (PortRole.ROOT, PortRole.DATA_DIRECT, PortRole.GPU, PortRole.HCA)
    kinds = (ComplexKind.DATA_DIRECT, ComplexKind.INLINE)
    is_of_way = any(
        own.address == port.address and own.role in roles
        for it in found.complexes
        if it.kind in kinds
        for own in it.ports
    )
    return Concern.WAY if is_of_way else Concern.ISOLATION


def flag_faults(found: Complexes, of: Concern) -> Iterator[Fault | Unread]:
    """Yield the ports whose flags are not what the layout needs."""
    for port in found.ports:
        if concern(found, port) is not of:
            continue
        if port.control is None:
            yield Unread("ACS control (read as root)", str(port.address))
        elif not port.is_right:
            yield Fault(
                subject=f"{port.make or 'bridge'} {port.address}, {port.role}",
                observed=f"ACS control {as_flags(port.control)}: {_difference(port)}"
                + (" (it has no ACS)" if port.has_acs is False else ""),
                expected=str(port.expected),
            )


def group_faults(found: Complexes, *, is_shared: bool) -> Iterator[Fault | Unread]:
    """Yield complexes whose IOMMU groups do not fit their layout.

    Args:
        is_shared: for layouts in which peers reach each other behind a switch, else for layouts in
            which every device must have a separate group.
    """
    for it in found.complexes:
        if it.doubt is not None or (it.kind is ComplexKind.NUMA) is is_shared:
            continue
        if it.kind is ComplexKind.NUMA:
            if found.layout is ComplexKind.NUMA and is_of_nvidia(it):
                yield from _own_groups(it)
        elif it.kind is ComplexKind.DATA_DIRECT and it.data_direct is not None:
            yield from _one_group(it.data_direct, it.gpus[0], must_have=True)
        elif it.kind is ComplexKind.INLINE and found.for_virtual_machines is False:
            yield from _one_group(it.hcas[0], it.gpus[0], must_have=False)
        elif it.kind is ComplexKind.INLINE and found.for_virtual_machines:
            yield from _own_groups(it)


def translation_faults(found: Complexes) -> Iterator[Fault | Unread]:
    """Yield HCAs whose Address Translation Services do not fit the layout.

    On Grace and Vera without a shared switch they must be off. In the inline layout they say
    whether the node is for virtual machines, so all HCAs must agree.
    """
    if found.layout is ComplexKind.NUMA:
        for it in found.complexes:
            for hca in it.hcas if is_of_nvidia(it) else ():
                has_ats = None if hca.function is None else hca.function.has_ats
                if has_ats is None:
                    yield Unread("ATS capability (read as root)", hca.name)
                elif has_ats:
                    yield Fault(subject=name_of(hca), observed="has ATS", expected="ATS off")
    if found.layout is not ComplexKind.INLINE:
        return
    inline = [it for it in found.complexes if it.kind is ComplexKind.INLINE]
    silent = [it for it in inline if it.has_ats is None]
    yield from (Unread("ATS capability (read as root)", it.hcas[0].name) for it in silent)
    wanted = found.for_virtual_machines
    if wanted is None:
        if len({it.has_ats for it in inline if it not in silent}) > 1:
            yield Fault(
                subject=", ".join(it.hcas[0].name for it in inline if it.has_ats),
                observed="ATS, which the other HCAs of the node have not",
                expected="ATS on all of them, for virtual machines, or on none",
            )
        return
    for it in inline:
        if it.has_ats is not None and it.has_ats is not wanted:
            yield Fault(
                subject=name_of(it.hcas[0]),
                observed="has ATS" if it.has_ats else "no ATS",
                expected="ATS on" if wanted else "ATS off",
            )


def faults(found: Complexes) -> Iterator[Fault | Unread]:
    """Yield everything that is wrong or not known, the flags of ports first."""
    for of in Concern:
        yield from flag_faults(found, of)
    yield from group_faults(found, is_shared=True)
    yield from group_faults(found, is_shared=False)
    yield from translation_faults(found)


def is_of_nvidia(it: Complex) -> bool:
    """Return whether the GPUs of a complex are below root ports of Grace or Vera."""
    return any(port.make in (PortMake.GRACE, PortMake.VERA) for port in it.ports)


def name_of(device: Gpu | Hca | DataDirect) -> str:
    """Return how a finding calls a device."""
    if isinstance(device, DataDirect):
        return f"Data Direct {device.pci}"
    return f"{device.name} {device.pci}" if device.pci else device.name


def group_of(device: Gpu | Hca | DataDirect) -> int | None:
    """Return the IOMMU group of a device; ``None`` without one, or if unknown."""
    return None if device.function is None else device.function.iommu_group


def _one_group(a: DataDirect | Hca, gpu: Gpu, *, must_have: bool) -> Iterator[Fault | Unread]:
    """Yield a fault unless both are in one group, or neither in any where they need none."""
    unread = [it for it in (a, gpu) if it.function is None]
    yield from (Unread("IOMMU group", name_of(it)) for it in unread)
    if unread:
        return
    groups = group_of(a), group_of(gpu)
    if groups[0] != groups[1] or (must_have and groups[0] is None):
        yield Fault(
            subject=f"{name_of(a)} and {name_of(gpu)}",
            observed=f"IOMMU groups {_group(groups[0])} and {_group(groups[1])}",
            expected="one group" if must_have else "one group, or none",
        )


def _own_groups(it: Complex) -> Iterator[Fault | Unread]:
    """Yield what has no group, and what shares one."""
    members: dict[int, list[str]] = {}
    devices: tuple[Hca | Gpu, ...] = (*it.hcas, *it.gpus)
    for device in devices:
        if device.function is None:
            yield Unread("IOMMU group", name_of(device))
            continue
        group = group_of(device)
        if group is None:
            yield Fault(
                subject=name_of(device), observed="no IOMMU group", expected="a group of its own"
            )
        else:
            members.setdefault(group, []).append(name_of(device))
    for group, names in sorted(members.items()):
        if len(names) > 1:
            yield Fault(
                subject=" and ".join(names),
                observed=f"share IOMMU group {group}",
                expected="a group of their own",
            )


def _difference(port: Port) -> str:
    """Return which flags are to be set, and which cleared."""
    assert port.control is not None
    assert port.wanted is not None
    words = []
    for verb, bits in (
        ("lacks", port.wanted & ~port.control),
        ("has", port.control & ~port.wanted),
    ):
        names = [name for bit, name in enumerate(_FLAGS) if bits >> bit & 1]
        words += [f"{verb} {', '.join(names)}"] if names else []
    return "; ".join(words)


def _group(number: int | None) -> str:
    return "none" if number is None else str(number)
