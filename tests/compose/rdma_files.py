"""RDMA devices and network interfaces in `/sys`.

Files: kernel Documentation/ABI/stable/sysfs-class-infiniband and testing/sysfs-class-net.
"""

import re
from collections.abc import Iterator

from nodetopo.model.hca import Hca, HcaKind, HcaPort, LinkLayer, NetDevice
from nodetopo.tools.capture.archive import Entry
from tests.compose.entries import file, link, real_path
from tests.compose.machine import Machine

ETHER, INFINIBAND = 1, 32
"""ARPHRD_* of a network interface's ``type``."""

_VIRTUAL = "sys/devices/virtual/net"
_SPEEDS = {10: "SDR", 25: "1X EDR", 40: "QDR", 50: "2X EDR", 56: "FDR", 100: "EDR"} | {
    200: "HDR",
    400: "NDR",
    800: "XDR",
}
_PHYSICAL = {"Polling": 2, "Disabled": 3, "LinkUp": 5}
_STATE = {"DOWN": 1, "INIT": 2, "ARMED": 3, "ACTIVE": 4}
_NUMBERED = re.compile(r"([a-z]+)[0-9]+")


def entries(machine: Machine) -> Iterator[Entry]:
    """Yield every RDMA device, every network interface, and the bonds above them."""
    snapshot = machine.snapshot
    for hca in (*(snapshot.hcas or ()), *(snapshot.management_hcas or ())):
        yield from _hca(hca)
    for it in machine.bystanders:
        if it.netdev is not None:
            yield from _netdev(real_path(it.path), it.netdev, ETHER)


def _hca(hca: Hca) -> Iterator[Entry]:
    device = device_path(hca)
    place = f"{device}/infiniband/{hca.name}"
    yield link(f"sys/class/infiniband/{hca.name}", place)
    yield link(f"{place}/device", device)
    is_efa = hca.hca_type is None
    yield file(f"{place}/node_type", "4: unspecified" if is_efa else "1: CA")
    for name, value in (
        ("hca_type", hca.hca_type),
        ("board_id", hca.board_id),
        ("fw_ver", hca.firmware),
        ("node_guid", hca.node_guid),
        ("sys_image_guid", hca.sys_image_guid),
    ):
        if value is not None:
            yield file(f"{place}/{name}", value)
    if hca.kind is HcaKind.SUBFUNCTION:
        yield from _subfunction(hca, device)
    for port in hca.ports:
        yield from _port(f"{place}/ports/{port.number}", port)
    yield from _char_devices(hca, device)
    for netdev in hca.netdevs:
        yield from _hca_netdev(hca, device, netdev)


def device_path(hca: Hca) -> str:
    """Return the device of *hca*: its PCI function, or the auxiliary device below it."""
    assert hca.path is not None
    function = real_path(hca.path)
    return function if hca.kind is not HcaKind.SUBFUNCTION else f"{function}/{_auxiliary(hca)}"


def _auxiliary(hca: Hca) -> str:
    return f"mlx5_core.sf.{hca.subfunction}"


def _subfunction(hca: Hca, device: str) -> Iterator[Entry]:
    yield link(f"sys/bus/auxiliary/devices/{_auxiliary(hca)}", device)
    yield file(f"{device}/sfnum", hca.subfunction)


def _port(place: str, port: HcaPort) -> Iterator[Entry]:
    assert port.state is not None
    assert port.physical_state is not None
    assert port.rate_gbps is not None
    speed = _SPEEDS[int(port.rate_gbps)]
    width = "" if "X" in speed else "4X "
    yield file(f"{place}/state", f"{_STATE[port.state]}: {port.state}")
    yield file(f"{place}/phys_state", f"{_PHYSICAL[port.physical_state]}: {port.physical_state}")
    yield file(f"{place}/rate", f"{port.rate_gbps:g} Gb/sec ({width}{speed})")
    yield file(f"{place}/link_layer", port.layer or "Unknown")
    if port.layer is not LinkLayer.ETHERNET:
        yield file(f"{place}/lid", f"0x{port.lid or 0:x}")
        yield file(f"{place}/sm_lid", f"0x{port.sm_lid or 0:x}")
    for gid in port.gids:
        yield file(f"{place}/gids/{gid.index}", gid.gid)
        if gid.type is not None:
            yield file(f"{place}/gid_attrs/types/{gid.index}", gid.type)
        if gid.netdev is not None:
            yield file(f"{place}/gid_attrs/ndevs/{gid.index}", gid.netdev)


def _char_devices(hca: Hca, device: str) -> Iterator[Entry]:
    ports = {"umad": iter(hca.ports), "issm": iter(hca.ports)}
    for name in hca.char_devices:
        match = _NUMBERED.fullmatch(name)
        assert match is not None
        folder = "infiniband_verbs" if match[1] == "uverbs" else "infiniband_mad"
        place = f"{device}/{folder}/{name}"
        yield link(f"sys/class/{folder}/{name}", place)
        yield file(f"{place}/ibdev", hca.name)
        if match[1] in ports:
            yield file(f"{place}/port", next(ports[match[1]]).number)


def _hca_netdev(hca: Hca, device: str, netdev: NetDevice) -> Iterator[Entry]:
    layer = next((port.layer for port in hca.ports), None)
    kind = INFINIBAND if layer is LinkLayer.INFINIBAND else ETHER
    if any(below.master == netdev.name for below in hca.netdevs):
        yield from _bond(netdev)
    else:
        yield from _netdev(device, netdev, kind)


def _bond(netdev: NetDevice) -> Iterator[Entry]:
    place = f"{_VIRTUAL}/{netdev.name}"
    yield link(f"sys/class/net/{netdev.name}", place)
    yield file(f"{place}/type", ETHER)
    yield file(f"{place}/bonding/mode", "802.3ad 4")
    yield from _settings(place, netdev)


def _netdev(device: str, netdev: NetDevice, kind: int) -> Iterator[Entry]:
    place = f"{device}/net/{netdev.name}"
    yield link(f"sys/class/net/{netdev.name}", place)
    yield link(f"{place}/device", device)
    yield file(f"{place}/type", kind)
    yield file(f"{place}/dev_port", (netdev.port or 1) - 1)
    yield from _settings(place, netdev)
    if netdev.master is not None:
        yield link(f"{place}/master", f"{_VIRTUAL}/{netdev.master}")
        yield link(f"{_VIRTUAL}/{netdev.master}/lower_{netdev.name}", place)


def _settings(place: str, netdev: NetDevice) -> Iterator[Entry]:
    if netdev.mtu is not None:
        yield file(f"{place}/mtu", netdev.mtu)
    if netdev.state is not None:
        yield file(f"{place}/operstate", netdev.state)
