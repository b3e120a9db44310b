"""RDMA devices of `/sys/class/infiniband`, of every vendor and under any name.

Files: kernel Documentation/ABI/stable/sysfs-class-infiniband.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from agent.model.hca import DataDirect, Hca, HcaKind, HcaPort, LinkLayer, NetDevice
from agent.model.pci import PciAddress
from agent.model.snapshot import ProbeIssue
from agent.probes.sysfs.pcie import MELLANOX, PciTree, path_of
from agent.probes.sysfs.rdma_ports import RdmaFiles, read_ports
from agent.probes.sysfs.tree import Root

# What stands behind an RDMA device; decided by what sysfs says, never by its name.

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


# The character devices through which programs use an RDMA device.
#
# Files: kernel Documentation/ABI/stable/sysfs-class-infiniband, ``infiniband_verbs`` and
# ``infiniband_mad``. Each port has a umad and an issm, so a device may have several.

_CLASSES = ("class/infiniband_verbs", "class/infiniband_mad")


_NUMBERED = re.compile(r"([a-z]+)([0-9]{1,9})")


def read_char_devices(files: RdmaFiles) -> Mapping[str, tuple[str, ...]]:
    """Return RDMA device → names under ``/dev/infiniband``, sorted by kind and number."""
    found: dict[str, list[tuple[str, int]]] = {}
    for folder in _CLASSES:
        for name in files.names(folder) or ():
            match = _NUMBERED.fullmatch(name)
            device = files.offered(f"{folder}/{name}/ibdev") if match else None
            if match and device:
                found.setdefault(device, []).append((match[1], int(match[2])))
    return {
        device: tuple(f"{kind}{number}" for kind, number in sorted(numbered))
        for device, numbered in found.items()
    }


# The network interfaces of one RDMA device.
#
# Files: kernel Documentation/ABI/testing/sysfs-class-net, and the interfaces that GIDs name.
# An interface of an InfiniBand HCA hangs below the same device as the HCA itself
# (drivers/infiniband/ulp/ipoib), so no hardware address has to be compared with any GUID.

_REPRESENTOR = re.compile(r"(c[0-9]+)?pf[0-9]+(vf[0-9]+|sf[0-9]+|hpf)?")
"""``phys_port_name`` of the switch port that stands for another function; the HCA's own is
``p0`` (kernel Documentation/networking/devlink/devlink-port.rst)."""


_INFINIBAND = 32
"""ARPHRD_INFINIBAND of ``type``: IP over InfiniBand (kernel include/uapi/linux/if_arp.h)."""


def read_netdevs(
    files: RdmaFiles,
    device: str,
    ports: Sequence[HcaPort],
) -> tuple[NetDevice, ...]:
    """Return the interfaces of the RDMA device whose directory is *device*, by name.

    These are the ones of its function, and those that its GIDs name: the bond above them,
    VLANs, what a software device runs on. Representors of other functions are left out.
    """
    own = _own(files, device)
    names = {*own, *_of_gids(ports)}
    return tuple(_netdev(files, _place(device, name, own), name, ports) for name in sorted(names))


def _own(files: RdmaFiles, device: str) -> tuple[str, ...]:
    names = files.names(f"{device}/device/net") or ()
    return tuple(name for name in names if not _is_representor(files, device, name))


def _is_representor(files: RdmaFiles, device: str, name: str) -> bool:
    port = files.offered(f"{device}/device/net/{name}/phys_port_name")
    return port is not None and _REPRESENTOR.fullmatch(port) is not None


def _of_gids(ports: Sequence[HcaPort]) -> set[str]:
    return {gid.netdev for port in ports for gid in port.gids if gid.netdev is not None}


def _place(device: str, name: str, own: Sequence[str]) -> str:
    return f"{device}/device/net/{name}" if name in own else f"class/net/{name}"


def _netdev(files: RdmaFiles, place: str, name: str, ports: Sequence[HcaPort]) -> NetDevice:
    return NetDevice(
        name=name,
        port=_port(files, place, name, ports),
        mtu=files.number(f"{place}/mtu"),
        state=files.word(f"{place}/operstate"),
        master=files.link_name(f"{place}/master"),
    )


def _port(files: RdmaFiles, place: str, name: str, ports: Sequence[HcaPort]) -> int | None:
    """Return the port of the HCA that an interface is for.

    Its GIDs tell it, or there is one port alone; a driver may number the ports of a card in
    ``dev_port`` where each HCA has only its own port 1. Old kernels left ``dev_port`` 0 for
    IP over InfiniBand and gave ``dev_id`` (systemd, src/udev/udev-builtin-net_id.c).
    """
    named = {port.number for port in ports if any(gid.netdev == name for gid in port.gids)}
    numbers = {port.number for port in ports}
    if len(named) == 1 or len(numbers) == 1:
        return min(named or numbers)
    index = files.number(f"{place}/dev_port")
    if not index and files.number(f"{place}/type") == _INFINIBAND:
        index = _hexadecimal(files.text(f"{place}/dev_id")) or index
    return index + 1 if index is not None and index + 1 in numbers else None


def _hexadecimal(text: str | None) -> int | None:
    try:
        return None if text is None else int(text, 16)
    except ValueError:
        return None


# Data Direct functions: a second way from a ConnectX-8 to GPU memory.
#
# Which RDMA device one serves is known to the firmware alone: the kernel compares the VPD
# keyword VU of the function with the answer to a command that it gives the adapter (kernel
# drivers/infiniband/hw/mlx5/data_direct.c and main.c, mlx5_ib_data_direct_init), and rdma-core
# hands programs the outcome (mlx5dv_get_data_direct_sysfs_path). sysfs does not show it. What it
# shows is the card: NVIDIA's mstflint takes an adapter and a Data Direct function for one card
# when their VPD keywords V3, the card's UUID, are equal.

_CARD = "V3"


_SERVED = (HcaKind.PHYSICAL, HcaKind.BOND)
"""Firmware gives virtual functions and subfunctions no Data Direct unless it was configured
(NVIDIA DOCA, Data Direct Control sample)."""


def read_data_directs(tree: PciTree, hcas: Iterable[Hca]) -> tuple[DataDirect, ...] | None:
    """Return the Data Direct functions by address; ``None`` where there is no PCI bus to read.

    A function serves the HCAs of its card; of two functions on one card, nothing in sysfs tells
    which serves whom, so neither is given any.
    """
    if not tree.is_readable:
        return None
    functions = tree.data_direct()
    cards = [_card(tree, function.address) for function in functions]
    served = _by_card(tree, hcas) if functions else {}
    return tuple(
        DataDirect(
            pci=function.address,
            path=function.path,
            function=function.facts,
            numa_node=function.numa_node,
            hcas=served.get(card, ()) if card and cards.count(card) == 1 else (),
        )
        for function, card in zip(functions, cards, strict=True)
    )


def _by_card(tree: PciTree, hcas: Iterable[Hca]) -> dict[str, tuple[str, ...]]:
    named: dict[str, list[str]] = {}
    for hca in hcas:
        is_served = hca.kind in _SERVED and hca.function and hca.function.vendor == MELLANOX
        card = _card(tree, hca.pci) if is_served and hca.pci else None
        if card:
            named.setdefault(card, []).append(hca.name)
    return {card: tuple(sorted(names)) for card, names in named.items()}


def _card(tree: PciTree, address: PciAddress) -> str | None:
    vpd = tree.vpd(address)
    return None if vpd is None else vpd.get(_CARD)


# Tells HCAs of the NVLink fabric from those that jobs may use.
#
# On HGX B200 and B300 the NVSwitches are no PCI functions. Fabric Manager reaches them through
# ConnectX-7 functions that look like any other HCA, except for ``SMDL=SW_MNG`` in their VPD
# (:mod:`agent.probes.sysfs.pci_config`) and speak InfiniBand. nvidia-smi leaves them out of its
# matrix.

_CONNECTX_7 = "1021"
"""PCI device id (pci.ids); what is built in for the purpose. Others are not asked, since a
function answers for its VPD slowly, word by word."""


def split_management(
    files: RdmaFiles,
    tree: PciTree,
    hcas: Sequence[Hca],
) -> tuple[tuple[Hca, ...], tuple[Hca, ...]]:
    """Return the HCAs for jobs and those of the NVLink fabric, each in the order given.

    Asked are ConnectX-7 functions with a port that is not Ethernet, on a machine with GPUs and
    without an NVSwitch on PCI. Where their VPD cannot be read, which needs root, they count as
    for jobs, and one issue names them.
    """
    if not tree.nvidia_gpus() or tree.nvswitches():
        return tuple(hcas), ()
    verdicts = [_is_management(tree, hca) for hca in hcas]
    unknown = [hca.name for hca, verdict in zip(hcas, verdicts, strict=True) if verdict is None]
    if unknown:
        reason = "VPD cannot be read, so they may belong to the NVLink fabric and not to jobs"
        files.report(f"HCAs {', '.join(unknown)}", reason)
    return (
        tuple(hca for hca, verdict in zip(hcas, verdicts, strict=True) if not verdict),
        tuple(hca for hca, verdict in zip(hcas, verdicts, strict=True) if verdict),
    )


def _is_management(tree: PciTree, hca: Hca) -> bool | None:
    """Return whether *hca* belongs to the NVLink fabric; ``None`` if its VPD does not tell."""
    function = hca.function
    if hca.pci is None or hca.kind is not HcaKind.PHYSICAL or function is None:
        return False
    if (function.vendor, function.device) != (MELLANOX, _CONNECTX_7):
        return False
    if hca.ports and all(port.layer is LinkLayer.ETHERNET for port in hca.ports):
        return False
    return tree.is_nvlink_management(hca.pci)


_CLASS = "class/infiniband"


_PIECE = re.compile(r"([^0-9]+|(?=[0-9]))([0-9]{0,18})")


@dataclass(frozen=True, slots=True, kw_only=True)
class RdmaReading:
    """What one look at a node's RDMA devices gave; its parts as in the snapshot.

    Attributes:
        hcas: as the kernel registered them; software devices last. None loaded is an empty
            tuple, ``None`` only where the list could not be read.
        management_hcas: those of the NVLink fabric, which *hcas* does not hold.
        issues: by subject.
    """

    hcas: tuple[Hca, ...] | None = None
    data_directs: tuple[DataDirect, ...] | None = None
    management_hcas: tuple[Hca, ...] | None = None
    issues: tuple[ProbeIssue, ...] = ()


def read_rdma(sysfs: Root, tree: PciTree, *, counters: bool = False) -> RdmaReading:
    """Return all that sysfs says of the RDMA devices; what it does not is in the issues.

    Args:
        counters: also the error counters, which differ each time they are read. One that a
            driver refuses costs a firmware command and a line in the kernel log each time
            (prometheus/node_exporter issue 3434), so they are not for periodic scans.
    """
    files = RdmaFiles(sysfs)
    names = files.names(_CLASS)
    if names is None and files.issues:
        return RdmaReading(data_directs=read_data_directs(tree, ()), issues=files.issues)
    devices = read_char_devices(files) if names else {}
    found = [_hca(files, tree, name, devices, counters=counters) for name in names or ()]
    hcas, management = split_management(files, tree, sorted(found, key=_order))
    return RdmaReading(
        hcas=hcas,
        data_directs=read_data_directs(tree, hcas),
        management_hcas=management,
        issues=_by_subject(files.issues),
    )


def _order(hca: Hca) -> tuple[bool, float, list[tuple[str, int]]]:
    """Sort as nvidia-smi numbers its NICs: as the kernel registered them, software ones last.

    That is not the order of addresses (on an 8-GPU H200 with 10 NICs it is another one); real
    legends follow mlx5_0, mlx5_1, … mlx5_10, which drivers count up as they register. The number
    of a device's uverbs counts the same events, and survives a renaming of the device.
    """
    numbers = [int(name[6:]) for name in hca.char_devices if name.startswith("uverbs")]
    return hca.pci is None, min(numbers, default=inf), _natural(hca.name)


def _natural(name: str) -> list[tuple[str, int]]:
    """Return a key by which ``mlx5_2`` stands before ``mlx5_10``."""
    return [(text, int(number or 0)) for text, number in _PIECE.findall(name)]


def _by_subject(issues: Iterable[ProbeIssue]) -> tuple[ProbeIssue, ...]:
    """Order issues, so that the same trouble gives the same snapshot however it was read."""
    return tuple(sorted(issues, key=lambda issue: (issue.subject, issue.reason)))


def _hca(
    files: RdmaFiles,
    tree: PciTree,
    name: str,
    char_devices: Mapping[str, tuple[str, ...]],
    *,
    counters: bool,
) -> Hca:
    device = f"{_CLASS}/{name}"
    ports = read_ports(files, device, counters=counters)
    hca = Hca(
        name=name,
        hca_type=files.word(f"{device}/hca_type"),
        board_id=files.word(f"{device}/board_id"),
        firmware=files.word(f"{device}/fw_ver"),
        node_guid=files.word(f"{device}/node_guid"),
        sys_image_guid=files.word(f"{device}/sys_image_guid"),
        netdevs=read_netdevs(files, device, ports),
        ports=ports,
        char_devices=char_devices.get(name, ()),
    )
    return _placed(files, tree, device, hca)


def _placed(files: RdmaFiles, tree: PciTree, device: str, hca: Hca) -> Hca:
    if is_software(files, device):
        return replace(hca, kind=HcaKind.SOFTWARE)
    real = files.real(f"{device}/device")
    # A subfunction's device is `mlx5_core.sf.4` below its PCI function: path_of stops there.
    path = None if real is None else path_of(real)
    pci = None if path is None else path.hops[-1]
    function = None if pci is None else tree.function(pci)
    source: Origin = origin(files, device, pci, hca.netdevs)
    return replace(
        hca,
        kind=source.kind,
        parent=source.parent,
        subfunction=source.subfunction,
        pci=pci,
        path=path,
        function=None if function is None else function.facts,
        numa_node=None if function is None else function.numa_node,
    )
