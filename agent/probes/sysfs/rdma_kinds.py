"""What stands behind an RDMA device; decided by what sysfs says, never by its name."""

from collections.abc import Sequence
from dataclasses import dataclass

from agent.model.hca import HcaKind, NetDevice
from agent.model.pci import PciAddress
from agent.probes.sysfs.rdma_files import RdmaFiles

_PCI = "bus/pci/devices"
_VIRTUAL = "devices/virtual/"
_SOFT_IWARP = "Software iWARP stack"
"""``node_desc`` of siw (kernel include/uapi/rdma/siw-abi.h, SIW_NODE_DESC_COMMON)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where an RDMA device comes from; see :class:`agent.model.hca.Hca`."""

    kind: HcaKind
    parent: PciAddress | None = None
    subfunction: int | None = None


def is_software(files: RdmaFiles, device: str) -> bool:
    """Return whether the kernel plays this device on top of a network interface.

    The device link does not tell: older kernels make the PCI function of that interface the
    parent of siw and rxe. rxe names the interface in ``parent``, an attribute of its own
    (drivers/infiniband/sw/rxe/rxe_verbs.c), and has no ``hca_type``.
    """
    place = files.real(f"{device}/device")
    if place is None or place.startswith(_VIRTUAL):
        return True
    if files.word(f"{device}/hca_type") is not None:
        return False
    description = files.offered(f"{device}/node_desc") or ""
    return bool(files.offered(f"{device}/parent")) or description.startswith(_SOFT_IWARP)


def origin(
    files: RdmaFiles,
    device: str,
    pci: PciAddress | None,
    netdevs: Sequence[NetDevice],
) -> Origin:
    """Return what stands behind a device of hardware.

    A virtual function has ``physfn`` (Documentation/ABI/testing/sysfs-bus-pci); one that was
    passed through to this virtual machine has none here and counts as physical. A subfunction
    is an auxiliary device with ``sfnum`` (drivers mlx5 and ice).
    """
    link = None if pci is None else files.link_name(f"{_PCI}/{pci}/physfn")
    physical = None if link is None else PciAddress.parse_or_none(link)
    subfunction = files.number(f"{device}/device/sfnum")
    if subfunction is not None:
        return Origin(
            kind=HcaKind.SUBFUNCTION,
            parent=physical or pci,
            subfunction=subfunction,
        )
    if physical is not None:
        return Origin(kind=HcaKind.VIRTUAL, parent=physical)
    is_bond = _is_bond(files, device, netdevs)
    return Origin(kind=HcaKind.BOND if is_bond else HcaKind.PHYSICAL)


def _is_bond(files: RdmaFiles, device: str, netdevs: Sequence[NetDevice]) -> bool:
    """Return whether one RDMA device serves the ports of several functions.

    When RoCE link aggregation is active, mlx5 registers a single RDMA device for the card
    (drivers/infiniband/hw/mlx5/main.c, ``mlx5_bond_%d``): below the bond there is then an
    interface of the same vendor whose function has none. A bond in software leaves each its own.
    """
    vendor = files.word(f"{device}/device/vendor")
    own = {netdev.name for netdev in netdevs}
    masters = {netdev.master for netdev in netdevs if netdev.master is not None}
    bonds = [it for it in sorted(masters) if files.names(f"class/net/{it}/bonding") is not None]
    below = {
        name.removeprefix("lower_")
        for bond in bonds
        for name in files.names(f"class/net/{bond}") or ()
        if name.startswith("lower_")
    }
    return vendor is not None and any(
        files.names(f"class/net/{name}/device/infiniband") is None
        and files.word(f"class/net/{name}/device/vendor") == vendor
        for name in sorted(below - own)
    )
