"""Which network devices NCCL's InfiniBand transport makes of the node's HCAs.

Facts: NVIDIA/nccl 2.30.7 ``src/transport/net_ib/init.cc`` (ports, order, PCI path),
``src/graph/topo.cc`` (ncclTopoAutoMerge: fusion at level PORT, the default).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby

from agent.model.hca import DataDirect, Hca, HcaKind, HcaPort, LinkLayer
from agent.model.pci import PciAddress, PciPath
from agent.model.snapshot import Snapshot
from agent.nccl import bandwidth

MAX_FUSED = 8
"""Ports that become one device at most (NCCL_NET_MAX_DEVS_PER_NIC of net plugin v12)."""

FIRST_CPU = "first CPU"
"""Where a device that is no PCI function hangs, a subfunction above all (ncclTopoFillNet)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetPort:
    """One active port of one HCA, which is one physical device of NCCL.

    Attributes:
        hca: its position, the N of ``NIC<N>``.
        number: from 1; ``None`` where the source names no ports.
        card: what the search counts the bandwidth of only once: sys_image_guid and the
            number of the port among those of one PCI device; ``None``: no guid known.
    """

    hca: int
    number: int | None
    layer: LinkLayer | None
    bandwidth_gbs: float
    card: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Net:
    """A network device as NCCL uses it: one port, or all ports of one card fused.

    Attributes:
        nic: the PCI device that carries it, with the device and function digits that NCCL
            zeroes; ``None`` for one that hangs below the first CPU.
        path, numa_node: of the function whose place NCCL takes: the HCA's, or that of its
            Data Direct function.
        bandwidth_gbs: of all its ports; ``math.inf`` where a rate is not known.
    """

    nic: PciAddress | None
    path: PciPath | None
    numa_node: int | None
    ports: tuple[NetPort, ...]

    @property
    def hcas(self) -> tuple[int, ...]:
        """The positions of its HCAs, ascending and each once."""
        return tuple(sorted({port.hca for port in self.ports}))

    @property
    def bandwidth_gbs(self) -> float:  # noqa: D102
        return sum(port.bandwidth_gbs for port in self.ports)


def nets(snapshot: Snapshot) -> tuple[Net, ...]:
    """Return NCCL's network devices in the order in which it numbers them, by PCI address.

    Software devices, HCAs of unknown place and ports that are not ACTIVE are none. An HCA of
    which the source names no ports counts as one of unknown speed.
    """
    ordered = sorted(enumerate(snapshot.hcas or ()), key=lambda numbered: numbered[1].pci_order)
    ranks = {position: rank for rank, (position, _) in enumerate(ordered)}
    single = [net for position, hca in ordered for net in _of(position, hca, snapshot)]
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

    The functions of a card all call their port 1; NCCL tells them apart by adding how many
    came before on the same PCI device (ncclIbGetRealPort). A topology that NCCL dumped has
    them added already.
    """
    ports = [port for net in members for port in net.ports]
    is_distinct = len({port.number for port in ports}) == len(ports)
    return tuple(
        replace(port, card=_card(port, 0 if is_distinct else earlier, snapshot))
        for earlier, port in enumerate(ports)
    )


def _card(port: NetPort, earlier: int, snapshot: Snapshot) -> tuple[str, int] | None:
    guid = (snapshot.hcas or ())[port.hca].sys_image_guid
    return None if guid is None or port.number is None else (guid, port.number + earlier)


def _of(position: int, hca: Hca, snapshot: Snapshot) -> Iterator[Net]:
    if hca.kind is HcaKind.SOFTWARE:
        return
    direct = _data_direct(hca, snapshot)
    nic, path, numa_node = _place(hca, direct)
    if nic is None and hca.kind is not HcaKind.SUBFUNCTION:
        return
    for port in _active(position, hca):
        yield Net(nic=nic, path=path, numa_node=numa_node, ports=(port,))


def _place(
    hca: Hca,
    direct: DataDirect | None,
) -> tuple[PciAddress | None, PciPath | None, int | None]:
    if direct is not None and direct.path is not None and direct.path.hops:
        # init.cc shows NCCL only the Data Direct way unless NCCL_IB_DATA_DIRECT=2.
        return _whole(direct.path.hops[-1]), direct.path, direct.numa_node
    if hca.kind is HcaKind.SUBFUNCTION or hca.path is None or not hca.path.hops:
        return None, None, None
    # NCCL zeroes the function, and the device too, to merge virtual functions.
    function = hca.path.hops[-1]
    return replace(function, device=0, function=0), hca.path, hca.numa_node


def _whole(function: PciAddress) -> PciAddress:
    return replace(function, function=0)


def _data_direct(hca: Hca, snapshot: Snapshot) -> DataDirect | None:
    return next((dd for dd in snapshot.data_directs or () if hca.name in dd.hcas), None)


def _active(position: int, hca: Hca) -> Iterator[NetPort]:
    if not hca.ports:
        yield NetPort(hca=position, number=None, layer=None, bandwidth_gbs=bandwidth.UNKNOWN)
    for port in hca.ports:
        if port.state in (None, "ACTIVE"):
            yield _net_port(position, port)


def _net_port(position: int, port: HcaPort) -> NetPort:
    return NetPort(
        hca=position,
        number=port.number,
        layer=port.layer,
        bandwidth_gbs=bandwidth.port(port.rate_gbps),
    )
