"""Devices as a person names them, and as text shows them."""

from difflib import get_close_matches

from agent.allocation.naming import resolve
from agent.errors import InputError
from agent.model.gpu import Gpu
from agent.model.hca import Hca
from agent.model.pci import PciAddress, PcieLink
from agent.model.snapshot import Snapshot

Device = Gpu | Hca


def row_name(device: Device, snapshot: Snapshot) -> str:
    """Return the row of the matrix that *device* has: ``GPU0``, ``NIC3``."""
    if isinstance(device, Gpu):
        return device.name
    return f"NIC{(snapshot.hcas or ()).index(device)}"


def find(snapshot: Snapshot, name: str) -> Device:
    """Return the device called *name*.

    A GPU by index, ``GPU0``, UUID or PCI address; an HCA by its name, ``NIC0``, network
    interface or PCI address.

    Raises:
        InputError: there is none, or the name fits several.
    """
    try:
        return resolve(snapshot, name)
    except InputError:
        return _find_hca(snapshot, name.strip())


def _find_hca(snapshot: Snapshot, name: str) -> Hca:
    hcas = snapshot.hcas or ()
    found = [hca for number, hca in enumerate(hcas) if _is_called(hca, number, name)]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(hca.name for hca in found)
        raise InputError(f"{name!r} may be any of {names}", "name one of them")
    known = [gpu.name for gpu in snapshot.gpus] + [hca.name for hca in hcas]
    close = get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise InputError(f"unknown device {name!r}", f"{hint}devices are: {', '.join(known) or 'none'}")


def _is_called(hca: Hca, number: int, name: str) -> bool:
    if name.lower() == f"nic{number}" or name == hca.name or name in hca.netdevs:
        return True
    return hca.pci is not None and hca.pci in _addresses(name)


def _addresses(name: str) -> tuple[PciAddress, ...]:
    for text in (name, f"0000:{name}"):
        try:
            return (PciAddress.parse(text),)
        except ValueError:
            continue
    return ()


def link_text(link: PcieLink | None) -> str | None:
    """Return e.g. ``gen5 x16``, with what the link could do where that is more."""
    if link is None or link.generation is None or link.width is None:
        return None
    text = f"gen{link.generation} x{link.width}"
    could = (link.max_generation or link.generation, link.max_width or link.width)
    is_less = could > (link.generation, link.width) or could[1] > link.width
    return f"{text} (of gen{could[0]} x{could[1]})" if is_less else text
