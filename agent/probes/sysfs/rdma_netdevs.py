"""The network interfaces of one RDMA device.

Files: kernel Documentation/ABI/testing/sysfs-class-net, and the interfaces that GIDs name.
An interface of an InfiniBand HCA hangs below the same device as the HCA itself
(drivers/infiniband/ulp/ipoib), so no hardware address has to be compared with any GUID.
"""

import re
from collections.abc import Sequence

from agent.model.hca import HcaPort, NetDevice
from agent.probes.sysfs.rdma_files import RdmaFiles

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
