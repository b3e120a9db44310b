"""Devices as a person names them, and as text shows them."""

from nodetopo.allocation.requests import resolve
from nodetopo.errors import InputError, closest
from nodetopo.model.gpu import Gpu
from nodetopo.model.hca import DataDirect, Hca
from nodetopo.model.pci import PciAddress, PcieLink
from nodetopo.model.snapshot import Snapshot

Device = Gpu | Hca | DataDirect


def row_name(device: Device, snapshot: Snapshot) -> str:
    """Return the row of the matrix that *device* has: ``GPU0``, ``NIC3``, ``DD0``.

    A management HCA, which has no row, keeps the kernel's name.
    """
    if isinstance(device, Gpu):
        return device.name
    if isinstance(device, DataDirect):
        return f"DD{(snapshot.data_directs or ()).index(device)}"
    if device not in (snapshot.hcas or ()):
        return device.name
    return f"NIC{(snapshot.hcas or ()).index(device)}"


def find(snapshot: Snapshot, name: str) -> Device:
    """Return the device called *name*.

    A GPU by index, ``GPU0``, UUID or PCI address; an HCA by its name, ``NIC0``, network
    interface or PCI address; a Data Direct function as ``DD0`` or by PCI address.

    Raises:
        InputError: there is none, or the name fits several.
    """
    try:
        return resolve(snapshot, name)
    except InputError:
        return _find_other(snapshot, name.strip())


def _find_other(snapshot: Snapshot, name: str) -> Device:
    hcas, directs = snapshot.hcas or (), snapshot.data_directs or ()
    found: list[Device] = [
        hca
        for at, hca in enumerate(hcas)
        if name.lower() == f"nic{at}"
        or name in (hca.name, *(netdev.name for netdev in hca.netdevs))
        or _is_at(hca.pci, name)
    ]
    found += [
        direct
        for at, direct in enumerate(directs)
        if name.lower() == f"dd{at}" or _is_at(direct.pci, name)
    ]
    if len(found) > 1:
        exact = [device for device in found if _own_name(device, snapshot) == name]
        found = exact if len(exact) == 1 else found
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(_own_name(device, snapshot) for device in found)
        raise InputError(f"{name!r} may be any of {names}", "name one of them")
    known = [gpu.name for gpu in snapshot.gpus] + [hca.name for hca in hcas]
    known += [f"DD{at}" for at in range(len(directs))]
    close = closest(name, known)
    hint = f"did you mean {close!r}? " if close else ""
    raise InputError(f"unknown device {name!r}", f"{hint}devices are: {', '.join(known) or 'none'}")


def _own_name(device: Device, snapshot: Snapshot) -> str:
    return device.name if isinstance(device, Hca) else row_name(device, snapshot)


def _is_at(pci: PciAddress | None, name: str) -> bool:
    return pci is not None and pci == PciAddress.as_written(name)


def link_of(device: Device) -> PcieLink | None:
    """Return the device's end of its PCIe link: NVML's word for a GPU, sysfs's for the rest."""
    if isinstance(device, Gpu) and device.pcie is not None:
        return device.pcie
    return None if device.function is None else device.function.link


def link_text(link: PcieLink | None) -> str | None:
    """Return e.g. ``gen5 x16``, with what the link could do where that is more."""
    if link is None or link.generation is None or link.width is None:
        return None
    text = f"gen{link.generation} x{link.width}"
    could = (link.max_generation or link.generation, link.max_width or link.width)
    is_less = could > (link.generation, link.width) or could[1] > link.width
    return f"{text} (of gen{could[0]} x{could[1]})" if is_less else text
