"""The network devices that NCCL's InfiniBand transport makes of the node's HCAs.

Facts: NVIDIA/nccl 2.30.7 ``src/transport/net_ib/init.cc`` (ports, order, PCI path),
``src/graph/topo.cc`` (ncclTopoAutoMerge: fusion at level PORT, the default).
"""

from collections.abc import Iterator
from itertools import groupby

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.model.hca import Hca, HcaKind, LinkLayer
from nodetopo.model.pci import PciAddress, PciPath
from nodetopo.model.snapshot import Snapshot
from nodetopo.nccl import bandwidth

MAX_FUSED = 8
"""Ports that become one device at most (NCCL_NET_MAX_DEVS_PER_NIC of net plugin v12)."""

FIRST_CPU = "first CPU"
"""The parent of a device that is no PCI function, such as a subfunction (ncclTopoFillNet)."""


class NetPort(Struct, frozen=True, kw_only=True):
    """One active port of one HCA, which is one physical device of NCCL."""

    hca: int  # position, the N of NIC<N>
    number: int | None  # from 1; None where the source names no ports
    layer: LinkLayer | None
    bandwidth_gbs: float
    # sys_image_guid and the number of the port among those of one PCI device, whose bandwidth the
    # search counts only once; None: no guid known
    card: tuple[str, int] | None = None


class Net(Struct, frozen=True, kw_only=True):
    """A network device as NCCL uses it: one port, or all ports of one card fused."""

    # The PCI device that carries it, with the device and function digits that NCCL zeroes; None for
    # one below the first CPU.
    nic: PciAddress | None
    # path, numa_node: of the function whose place NCCL uses: the HCA, or its Data Direct function
    path: PciPath | None
    numa_node: int | None
    ports: tuple[NetPort, ...]

    @property
    def hcas(self) -> tuple[int, ...]:
        """The positions of its HCAs, ascending and each once."""
        return tuple(sorted({port.hca for port in self.ports}))

    @property
    def bandwidth_gbs(self) -> float:
        """The bandwidth of all its ports; ``math.inf`` if a rate is unknown."""
        return sum(port.bandwidth_gbs for port in self.ports)


def nets(snapshot: Snapshot) -> tuple[Net, ...]:
    """Return NCCL's network devices in the order in which it numbers them, by PCI address.

    Software devices, HCAs of unknown place and ports that are not ACTIVE are left out. An HCA
    of which the source names no ports counts as one port of unknown speed.
    """
    ordered = sorted(enumerate(snapshot.hcas or ()), key=lambda numbered: numbered[1].pci_order)
    ranks = {position: rank for rank, (position, _) in enumerate(ordered)}
    single = [net for position, hca in ordered for net in _nets_of(position, hca, snapshot)]
    fused: list[Net] = []
    for _, same in groupby(sorted(single, key=_card_key), key=_card_key):
        members = list(same)
        for start in range(0, len(members), MAX_FUSED):
            chunk = members[start : start + MAX_FUSED]
            fused.append(replace(chunk[0], ports=_numbered(chunk, snapshot)))
    firsts = ((ranks[net.ports[0].hca], net.ports[0].number or 0, net) for net in fused)
    return tuple(net for *_, net in sorted(firsts, key=lambda first: first[:2]))


def _card_key(net: Net) -> tuple[str, str]:
    return (FIRST_CPU if net.nic is None else str(net.nic), str(net.ports[0].layer))


def _numbered(members: list[Net], snapshot: Snapshot) -> tuple[NetPort, ...]:
    """Return the ports of a device, each with its card.

    The functions of a card all call their port 1; NCCL distinguishes them by adding how many
    came before on the same PCI device (ncclIbGetRealPort). A topology dumped by NCCL has them
    added already.
    """
    ports = [port for net in members for port in net.ports]
    is_distinct = len({port.number for port in ports}) == len(ports)
    numbered = []
    for earlier, port in enumerate(ports):
        guid = (snapshot.hcas or ())[port.hca].sys_image_guid
        card = None
        if guid is not None and port.number is not None:
            card = guid, port.number + (0 if is_distinct else earlier)
        numbered.append(replace(port, card=card))
    return tuple(numbered)


def _nets_of(position: int, hca: Hca, snapshot: Snapshot) -> Iterator[Net]:
    """Yield a device for each active port of *hca*."""
    if hca.kind is HcaKind.SOFTWARE:
        return
    nic: PciAddress | None = None
    path: PciPath | None = None
    numa_node: int | None = None
    direct = next((dd for dd in snapshot.data_directs or () if hca.name in dd.hcas), None)
    if direct is not None and direct.path is not None and direct.path.hops:
        # init.cc shows NCCL only the Data Direct path unless NCCL_IB_DATA_DIRECT=2.
        path, numa_node = direct.path, direct.numa_node
        nic = replace(path.hops[-1], function=0)
    elif hca.kind is not HcaKind.SUBFUNCTION:
        if hca.path is None or not hca.path.hops:
            return
        # NCCL zeroes the function, and the device too, to merge virtual functions.
        path, numa_node = hca.path, hca.numa_node
        nic = replace(path.hops[-1], device=0, function=0)
    ports = [
        NetPort(
            hca=position,
            number=port.number,
            layer=port.layer,
            bandwidth_gbs=bandwidth.port(port.rate_gbps),
        )
        for port in hca.ports
        if port.state in (None, "ACTIVE")
    ]
    if not hca.ports:
        ports = [NetPort(hca=position, number=None, layer=None, bandwidth_gbs=bandwidth.UNKNOWN)]
    for port in ports:
        yield Net(nic=nic, path=path, numa_node=numa_node, ports=(port,))
