"""RDMA devices of `/sys/class/infiniband`, of every vendor and under any name.

Files: kernel Documentation/ABI/stable/sysfs-class-infiniband.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from math import inf

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.model.hca import DataDirect, Hca, HcaKind, HcaPort, LinkLayer, NetDevice
from nodetopo.model.pci import PciAddress
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.probes.sysfs.pcie import MELLANOX, PCI_DEVICES, PciTree, path_of
from nodetopo.probes.sysfs.rdma_ports import RdmaFiles, read_ports
from nodetopo.probes.sysfs.tree import Root

_CLASS = "class/infiniband"
_CHAR_CLASSES = ("class/infiniband_verbs", "class/infiniband_mad")
_VIRTUAL = "devices/virtual/"

_SOFT_IWARP = "Software iWARP stack"
"""``node_desc`` of siw (kernel include/uapi/rdma/siw-abi.h, SIW_NODE_DESC_COMMON)."""

_REPRESENTOR = re.compile(r"(c[0-9]+)?pf[0-9]+(vf[0-9]+|sf[0-9]+|hpf)?")
"""``phys_port_name`` of the switch port that stands for another function; the HCA's own is
``p0`` (kernel Documentation/networking/devlink/devlink-port.rst)."""

_INFINIBAND = 32
"""ARPHRD_INFINIBAND of ``type``: IP over InfiniBand (kernel include/uapi/linux/if_arp.h)."""

_CARD = "V3"
"""VPD keyword with the UUID of a card, see :func:`read_data_directs`."""

_SERVED = (HcaKind.PHYSICAL, HcaKind.BOND)
"""Firmware gives virtual functions and subfunctions no Data Direct unless it was configured
(NVIDIA DOCA, Data Direct Control sample)."""

_CONNECTX_7 = "1021"
"""PCI device id (pci.ids) of the functions built in to manage NVSwitches. The VPD of others is not
read, since a function gives it slowly, word by word."""

_PIECE = re.compile(r"([^0-9]+|(?=[0-9]))([0-9]{0,18})")
_NUMBERED = re.compile(r"([a-z]+)([0-9]{1,9})")


class RdmaReading(Struct, frozen=True, kw_only=True):
    """A node's RDMA devices; its parts as in the snapshot."""

    # As the kernel registered them; software devices last. Without any it is an empty tuple;
    # ``None`` only if the list could not be read.
    hcas: tuple[Hca, ...] | None = None
    data_directs: tuple[DataDirect, ...] | None = None
    # HCAs of the NVLink fabric, which are not in *hcas*.
    management_hcas: tuple[Hca, ...] | None = None
    issues: tuple[ProbeIssue, ...] = ()  # by subject


def read_rdma(sysfs: Root, tree: PciTree, *, counters: bool = False) -> RdmaReading:
    """Return all RDMA devices in sysfs; read errors are issues.

    Args:
        counters: also the error counters, which differ at each reading. A refused one costs a
            firmware command and a line in the kernel log each time (prometheus/node_exporter issue
            3434), so they are not for periodic scans.
    """
    files = RdmaFiles(sysfs)
    names = files.names(_CLASS)
    if names is None and files.issues:
        return RdmaReading(data_directs=read_data_directs(tree, ()), issues=files.issues)
    char_devices = read_char_devices(files) if names else {}
    hcas = []
    for name in names or ():
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
        hcas.append(_with_place(files, tree, device, hca))
    for_jobs, management = split_management(files, tree, sorted(hcas, key=_order))
    return RdmaReading(
        hcas=for_jobs,
        data_directs=read_data_directs(tree, for_jobs),
        management_hcas=management,
        # Sorted, so that the same errors give the same snapshot in any order.
        issues=tuple(sorted(files.issues, key=lambda issue: (issue.subject, issue.reason))),
    )


def read_char_devices(files: RdmaFiles) -> Mapping[str, tuple[str, ...]]:
    """Return RDMA device → names under ``/dev/infiniband``, sorted by kind and number.

    These are the character devices through which programs use it (kernel
    Documentation/ABI/stable/sysfs-class-infiniband, ``infiniband_verbs`` and ``infiniband_mad``).
    Each port has a umad and an issm, so a device can have several.
    """
    numbered: dict[str, list[tuple[str, int]]] = {}
    for folder in _CHAR_CLASSES:
        for name in files.names(folder) or ():
            match = _NUMBERED.fullmatch(name)
            device = files.offered(f"{folder}/{name}/ibdev") if match else None
            if match and device:
                numbered.setdefault(device, []).append((match[1], int(match[2])))
    return {
        device: tuple(f"{kind}{number}" for kind, number in sorted(names))
        for device, names in numbered.items()
    }


def read_netdevs(
    files: RdmaFiles,
    device: str,
    ports: Sequence[HcaPort],
) -> tuple[NetDevice, ...]:
    """Return the interfaces of the RDMA device whose directory is *device*, by name.

    These are the interfaces of its function, and those named by its GIDs: the bond above them,
    VLANs, the interface below a software device. Representors of other functions are left out.
    Files: kernel Documentation/ABI/testing/sysfs-class-net. An interface of an InfiniBand HCA hangs
    below the same device as the HCA itself (drivers/infiniband/ulp/ipoib), so no hardware address
    has to be compared with any GUID.
    """
    own = []
    for name in files.names(f"{device}/device/net") or ():
        port = files.offered(f"{device}/device/net/{name}/phys_port_name")
        if port is None or _REPRESENTOR.fullmatch(port) is None:
            own.append(name)
    of_gids = {gid.netdev for port in ports for gid in port.gids if gid.netdev is not None}
    netdevs = []
    for name in sorted({*own, *of_gids}):
        place = f"{device}/device/net/{name}" if name in own else f"class/net/{name}"
        netdevs.append(
            NetDevice(
                name=name,
                port=_port_of(files, place, name, ports),
                mtu=files.number(f"{place}/mtu"),
                state=files.word(f"{place}/operstate"),
                master=files.link_name(f"{place}/master"),
            )
        )
    return tuple(netdevs)


def split_management(
    files: RdmaFiles,
    tree: PciTree,
    hcas: Sequence[Hca],
) -> tuple[tuple[Hca, ...], tuple[Hca, ...]]:
    """Return the HCAs for jobs and the HCAs of the NVLink fabric, each in the given order.

    On HGX B200 and B300 the NVSwitches are no PCI functions. Fabric Manager reaches them through
    ConnectX-7 functions that look like any other HCA, except that they speak InfiniBand and have
    ``SMDL=SW_MNG`` in their VPD (:mod:`nodetopo.probes.sysfs.pci_config`). nvidia-smi leaves them
    out of its matrix.

    The VPD is read of ConnectX-7 functions with a port that is not Ethernet, on a machine with GPUs
    and without an NVSwitch on PCI. If it cannot be read, which needs root, they count as HCAs for
    jobs, and one issue names them.
    """
    if not tree.nvidia_gpus() or tree.nvswitches():
        return tuple(hcas), ()
    for_jobs: list[Hca] = []
    management: list[Hca] = []
    unknown: list[str] = []
    for hca in hcas:
        function = hca.function
        is_management: bool | None = False
        if (
            hca.pci is not None
            and hca.kind is HcaKind.PHYSICAL
            and function is not None
            and (function.vendor, function.device) == (MELLANOX, _CONNECTX_7)
            and not (hca.ports and all(port.layer is LinkLayer.ETHERNET for port in hca.ports))
        ):
            is_management = tree.is_nvlink_management(hca.pci)
        if is_management is None:
            unknown.append(hca.name)
        (management if is_management else for_jobs).append(hca)
    if unknown:
        reason = "VPD cannot be read, so they may belong to the NVLink fabric and not to jobs"
        files.report(f"HCAs {', '.join(unknown)}", reason)
    return tuple(for_jobs), tuple(management)


def read_data_directs(tree: PciTree, hcas: Iterable[Hca]) -> tuple[DataDirect, ...] | None:
    """Return the Data Direct functions by address; ``None`` where there is no PCI bus to read.

    They are a second way from a ConnectX-8 to GPU memory. Which RDMA device one serves is known
    to the firmware alone: the kernel compares the VPD keyword VU of the function with the answer
    to a command that it gives the adapter (kernel drivers/infiniband/hw/mlx5/data_direct.c and
    main.c, mlx5_ib_data_direct_init), and rdma-core hands programs the outcome
    (mlx5dv_get_data_direct_sysfs_path). sysfs does not show it. What it shows is the card:
    NVIDIA's mstflint takes an adapter and a Data Direct function for one card when their VPD
    keywords V3, the card's UUID, are equal.

    A function serves the HCAs of its card; where a card has two functions, sysfs does not show
    which serves which HCA, so neither is given any.
    """
    if not tree.is_readable:
        return None
    functions = tree.data_direct()
    cards = [(tree.vpd(function.address) or {}).get(_CARD) for function in functions]
    served: dict[str, list[str]] = {}
    for hca in hcas if functions else ():
        is_served = hca.kind in _SERVED and hca.function and hca.function.vendor == MELLANOX
        card = (tree.vpd(hca.pci) or {}).get(_CARD) if is_served and hca.pci else None
        if card:
            served.setdefault(card, []).append(hca.name)
    return tuple(
        DataDirect(
            pci=function.address,
            path=function.path,
            function=function.facts,
            numa_node=function.numa_node,
            hcas=tuple(sorted(served.get(card, ()))) if card and cards.count(card) == 1 else (),
        )
        for function, card in zip(functions, cards, strict=True)
    )


def _with_place(files: RdmaFiles, tree: PciTree, device: str, hca: Hca) -> Hca:
    """Return *hca* with its kind and its place, which do not depend on its name.

    A virtual function has ``physfn`` (Documentation/ABI/testing/sysfs-bus-pci); a function passed
    through to this virtual machine has none and counts as physical. A subfunction is an auxiliary
    device with ``sfnum`` (drivers mlx5 and ice).
    """
    if _is_software(files, device):
        return replace(hca, kind=HcaKind.SOFTWARE)
    real = files.real(f"{device}/device")
    # A subfunction's device is `mlx5_core.sf.4` below its PCI function: path_of stops there.
    path = None if real is None else path_of(real)
    pci = None if path is None else path.hops[-1]
    function = None if pci is None else tree.function(pci)
    link = None if pci is None else files.link_name(f"{PCI_DEVICES}/{pci}/physfn")
    physical = None if link is None else PciAddress.parse_or_none(link)
    subfunction = files.number(f"{device}/device/sfnum")
    parent = physical
    if subfunction is not None:
        kind, parent = HcaKind.SUBFUNCTION, physical or pci
    elif physical is not None:
        kind = HcaKind.VIRTUAL
    else:
        kind = HcaKind.BOND if _is_bond(files, device, hca.netdevs) else HcaKind.PHYSICAL
    return replace(
        hca,
        kind=kind,
        parent=parent,
        subfunction=subfunction,
        pci=pci,
        path=path,
        function=None if function is None else function.facts,
        numa_node=None if function is None else function.numa_node,
    )


def _is_software(files: RdmaFiles, device: str) -> bool:
    """Return whether the kernel emulates this device on top of a network interface.

    The device link does not show it: older kernels make the PCI function of that interface the
    parent of siw and rxe. rxe names the interface in its attribute ``parent``
    (drivers/infiniband/sw/rxe/rxe_verbs.c), and has no ``hca_type``.
    """
    place = files.real(f"{device}/device")
    if place is None or place.startswith(_VIRTUAL):
        return True
    if files.word(f"{device}/hca_type") is not None:
        return False
    description = files.offered(f"{device}/node_desc") or ""
    return bool(files.offered(f"{device}/parent")) or description.startswith(_SOFT_IWARP)


def _is_bond(files: RdmaFiles, device: str, netdevs: Sequence[NetDevice]) -> bool:
    """Return whether one RDMA device serves the ports of several functions.

    When RoCE link aggregation is active, mlx5 registers a single RDMA device for the card
    (drivers/infiniband/hw/mlx5/main.c, ``mlx5_bond_%d``): below the bond there is then an interface
    of the same vendor whose function has none. With a software bond, each function keeps its own.
    """
    vendor = files.word(f"{device}/device/vendor")
    own = {netdev.name for netdev in netdevs}
    masters = {netdev.master for netdev in netdevs if netdev.master is not None}
    bonds = [
        name for name in sorted(masters) if files.names(f"class/net/{name}/bonding") is not None
    ]
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


def _order(hca: Hca) -> tuple[bool, float, list[tuple[str, int]]]:
    """Sort as nvidia-smi numbers its NICs: as the kernel registered them, software ones last.

    It differs from the order of addresses (e.g. on an 8-GPU H200 with 10 NICs); real legends follow
    mlx5_0, mlx5_1, … mlx5_10, which drivers count up as they register. The number of a device's
    uverbs counts the same events, and survives a renaming of the device. By name, ``mlx5_2`` stands
    before ``mlx5_10``.
    """
    numbers = [int(name[6:]) for name in hca.char_devices if name.startswith("uverbs")]
    natural = [(text, int(number or 0)) for text, number in _PIECE.findall(hca.name)]
    return hca.pci is None, min(numbers, default=inf), natural


def _port_of(files: RdmaFiles, place: str, name: str, ports: Sequence[HcaPort]) -> int | None:
    """Return the port of the HCA that an interface belongs to.

    Its GIDs name it, or the HCA has only one port; a driver can number a card's ports in
    ``dev_port`` although each HCA only has its port 1. Old kernels left ``dev_port`` 0 for IP over
    InfiniBand and gave ``dev_id`` (systemd, src/udev/udev-builtin-net_id.c).
    """
    named = {port.number for port in ports if any(gid.netdev == name for gid in port.gids)}
    numbers = {port.number for port in ports}
    if len(named) == 1 or len(numbers) == 1:
        return min(named or numbers)
    index = files.number(f"{place}/dev_port")
    if not index and files.number(f"{place}/type") == _INFINIBAND:
        with suppress(ValueError):  # no such file, or not hexadecimal
            index = int(files.text(f"{place}/dev_id") or "", 16) or index
    return index + 1 if index is not None and index + 1 in numbers else None
