"""RDMA devices of a machine, of each kind, from where they are plugged in.

What ports print: public `ibstat`, `ibv_devinfo` and sysfs listings. GUIDs and addresses are
invented.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from nodetopo.model.hca import DataDirect, Gid, Hca, HcaKind, HcaPort, LinkLayer, NetDevice
from tests.compose.hca_models import (
    BLUEFIELD_3,
    CONNECTX_4,
    CONNECTX_5,
    CONNECTX_6,
    CONNECTX_7,
    CONNECTX_8,
    DATA_DIRECT,
    EFA_2,
    ETHERNET,
    INFINIBAND,
    MANAGEMENT_CONNECTX_7,
    VIRTUAL_FUNCTION,
    HcaModel,
    guid,
    on_ethernet,
)
from tests.compose.pci_tree import Place

__all__ = [
    "BLUEFIELD_3",
    "CONNECTX_4",
    "CONNECTX_5",
    "CONNECTX_6",
    "CONNECTX_7",
    "CONNECTX_8",
    "DATA_DIRECT",
    "EFA_2",
    "ETHERNET",
    "INFINIBAND",
    "MANAGEMENT_CONNECTX_7",
    "VIRTUAL_FUNCTION",
    "HcaModel",
    "data_direct",
    "efa",
    "guid",
    "in_order",
    "infiniband",
    "on_ethernet",
    "roce",
    "subfunction",
    "virtual_function",
]
"""With the adapters of :mod:`tests.compose.hca_models`: all that a machine needs of HCAs."""

IB_MTU, ROCE_MTU = 4092, 9000
"""IP over InfiniBand with packets of 4096 bytes; jumbo frames."""


def infiniband(
    name: str,
    place: Place,
    model: HcaModel,
    *,
    number: int,
    netdev: str | None = None,
    state: str = "ACTIVE",
    lid: int | None = None,
) -> Hca:
    """Return an HCA with one InfiniBand port, up unless *state* says otherwise.

    Args:
        name: of the RDMA device.
        place: of its PCI function.
        model: which adapter.
        number: tells its invented GUID and LID from those of its neighbours.
        netdev: IP over InfiniBand; ``None`` without.
        state: of the port; one that is down polls.
        lid: that the subnet manager gave it; from *number* if not given.
    """
    is_up = state == "ACTIVE"
    own = 0x40 + number if lid is None else lid
    port = HcaPort(
        number=1,
        state=state,
        physical_state="LinkUp" if is_up else "Polling",
        layer=LinkLayer.INFINIBAND,
        rate_gbps=model.rate_gbps,
        lid=own if is_up else 0,
        sm_lid=1 if is_up else 0,
        gids=(
            Gid(
                index=0,
                gid=f"fe80:0000:0000:0000:{guid(model, number)}",
                type="IB/RoCE v1",
            ),
        ),
    )
    return _hca(
        name, place, model, number=number, ports=(port,), netdevs=_netdev(netdev, IB_MTU, is_up)
    )


def roce(
    name: str,
    place: Place,
    model: HcaModel,
    *,
    number: int,
    netdev: str,
    address: str | None = None,
    state: str = "ACTIVE",
    bond: str | None = None,
) -> Hca:
    """Return an HCA with one Ethernet port.

    Args:
        name: of the RDMA device.
        place: of its PCI function.
        model: which adapter, its card :func:`on_ethernet`.
        number: tells its invented GUID from those of its neighbours.
        netdev: its network interface.
        address: IPv4, which adds two GIDs to the two of the link-local address.
        state: of the port; one that is down is disabled and has no address.
        bond: the interface above *netdev*, whose GIDs the HCA then has: one RDMA device for
            the whole card (RoCE LAG).
    """
    is_up = state == "ACTIVE"
    port = HcaPort(
        number=1,
        state=state,
        physical_state="LinkUp" if is_up else "Disabled",
        layer=LinkLayer.ETHERNET,
        rate_gbps=model.rate_gbps,
        gids=_roce_gids(model, number, bond or netdev, address) if is_up else (),
    )
    own = _netdev(netdev, ROCE_MTU, is_up, master=bond)
    above = _netdev(bond, ROCE_MTU, is_up)
    found = _hca(name, place, model, number=number, ports=(port,), netdevs=(*own, *above))
    return found if bond is None else replace(found, kind=HcaKind.BOND)


def virtual_function(hca: Hca, place: Place, parent: Place) -> Hca:
    """Return *hca* as a virtual function of the function at *parent*."""
    return replace(_moved(hca, place), kind=HcaKind.VIRTUAL, parent=parent.pci)


def subfunction(hca: Hca, parent: Place, number: int) -> Hca:
    """Return *hca* as subfunction *number* (``sfnum``) of the function at *parent*."""
    return replace(
        _moved(hca, parent), kind=HcaKind.SUBFUNCTION, parent=parent.pci, subfunction=number
    )


def efa(name: str, place: Place, *, number: int, model: HcaModel = EFA_2) -> Hca:
    """Return an Elastic Fabric Adapter, which speaks neither InfiniBand nor Ethernet."""
    port = HcaPort(
        number=1,
        state="ACTIVE",
        physical_state="LinkUp",
        rate_gbps=model.rate_gbps,
        lid=0,
        sm_lid=1,
        gids=(Gid(index=0, gid=f"fe80:0000:0000:0000:0000:00ff:fe{number:02x}:0001"),),
    )
    return _hca(name, place, model, number=number, ports=(port,))


def data_direct(place: Place, *hcas: str) -> DataDirect:
    """Return a Data Direct function and the names of the HCAs that it serves."""
    return DataDirect(
        pci=place.pci,
        path=place.path,
        function=place.function,
        numa_node=place.numa_node,
        hcas=tuple(sorted(hcas)),
    )


def in_order(*hcas: Hca, as_given: bool = False) -> tuple[Hca, ...]:
    """Return *hcas* as registered by PCI address, or *as_given*, with their character devices.

    Every device has a uverbs, every port of a Mellanox one a umad, every InfiniBand port an
    issm (kernel drivers/infiniband/core/{uverbs_main,user_mad}.c).
    """
    ordered = list(hcas)
    if not as_given:
        ordered.sort(key=lambda hca: (hca.pci is None, hca.pci, hca.name))
    numbered, mads = [], 0
    for position, hca in enumerate(ordered):
        ports = [port for port in hca.ports if port.layer is not None]
        names = [(_ISSM, mads + at) for at, port in enumerate(ports) if _is_infiniband(port)]
        names += [(_UMAD, mads + at) for at in range(len(ports))]
        names.append((_UVERBS, position))
        mads += len(ports)
        char_devices = tuple(f"{kind}{number}" for kind, number in names)
        numbered.append(replace(hca, char_devices=char_devices))
    return tuple(numbered)


_ISSM, _UMAD, _UVERBS = "issm", "umad", "uverbs"


def _is_infiniband(port: HcaPort) -> bool:
    return port.layer is LinkLayer.INFINIBAND


def _hca(
    name: str,
    place: Place,
    model: HcaModel,
    *,
    number: int,
    ports: tuple[HcaPort, ...],
    netdevs: Sequence[NetDevice] = (),
) -> Hca:
    return Hca(
        name=name,
        kind=HcaKind.PHYSICAL,
        pci=place.pci,
        path=place.path,
        function=place.function,
        numa_node=place.numa_node,
        hca_type=model.hca_type,
        board_id=model.board_id,
        firmware=model.firmware,
        node_guid=guid(model, number),
        sys_image_guid=guid(model, number),
        netdevs=tuple(sorted(netdevs, key=lambda netdev: netdev.name)),
        ports=ports,
    )


def _moved(hca: Hca, place: Place) -> Hca:
    return replace(
        hca,
        pci=place.pci,
        path=place.path,
        function=place.function,
        numa_node=place.numa_node,
    )


def _netdev(
    name: str | None, mtu: int, is_up: bool, master: str | None = None
) -> tuple[NetDevice, ...]:
    if name is None:
        return ()
    state = "up" if is_up else "down"
    return (NetDevice(name=name, port=1, mtu=mtu, state=state, master=master),)


def _roce_gids(model: HcaModel, number: int, netdev: str, address: str | None) -> tuple[Gid, ...]:
    """Return the link-local and the IPv4-mapped GID, each of both versions."""
    first, second, third, _ = guid(model, number).split(":")
    link_local = f"fe80:0000:0000:0000:{first}:{second[:2]}ff:fe{second[2:]}:{third}"
    gids = [link_local]
    if address is not None:
        a, b, c, d = map(int, address.split("."))
        gids.append(f"0000:0000:0000:0000:0000:ffff:{a:02x}{b:02x}:{c:02x}{d:02x}")
    kinds = [(gid, kind) for gid in gids for kind in ("IB/RoCE v1", "RoCE v2")]
    return tuple(
        Gid(index=index, gid=gid, type=kind, netdev=netdev)
        for index, (gid, kind) in enumerate(kinds)
    )
