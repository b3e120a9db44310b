"""RDMA host channel adapters and their ports, of every vendor."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from nodetopo.model.limits import MAX_PORTS, Count, NumaId, PortNumber
from nodetopo.model.pci import PciAddress, PciFunction, PciPath

LINK_ERRORS = (
    "excessive_buffer_overrun_errors",
    "link_downed",
    "link_error_recovery",
    "local_link_integrity_errors",
    "port_rcv_errors",
    "symbol_error",
)
"""The counters of sysfs that speak of the cable and its two ends. Discards and retransmissions
are left out: a busy fabric makes them."""

ACTIVE = "ACTIVE"
"""The word of sysfs ``state`` for a port that carries traffic (ib_verbs.h ``ib_port_state``)."""


class LinkLayer(StrEnum):
    """The protocol of the port (sysfs ``link_layer``)."""

    INFINIBAND = "InfiniBand"
    ETHERNET = "Ethernet"


class HcaKind(StrEnum):
    """The kind of an RDMA device."""

    PHYSICAL = "physical"
    VIRTUAL = "virtual-function"
    SUBFUNCTION = "subfunction"
    BOND = "bond"
    SOFTWARE = "software"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gid:
    """An entry of a port's GID table that is set.

    Attributes:
        gid: eight groups of four hex digits, as sysfs prints it.
        type: ``IB/RoCE v1`` or ``RoCE v2``; ``None`` where the kernel refuses (EINVAL: its
            network interface is in another namespace).
        netdev: the network interface it belongs to.
    """

    index: int
    gid: str
    type: str | None = None
    netdev: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NetDevice:
    """A network interface of an HCA.

    Attributes:
        port: of the HCA, from 1; ``None`` where the interface does not say.
        state: sysfs ``operstate``.
        master: the bond or bridge it belongs to.
    """

    name: str
    port: PortNumber | None = None
    mtu: int | None = None
    state: str | None = None
    master: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HcaPort:
    """One port.

    Attributes:
        state: the word of sysfs ``state``, e.g. ``ACTIVE``, ``DOWN``.
        physical_state: the word of ``phys_state``, e.g. ``LinkUp``.
        rate_gbps: gigabits per second; a port that is down still states a rate.
        lid, sm_lid: of InfiniBand; 0 before a subnet manager assigned them.
        gids: the entries that are set, by index.
        counters: error counters by name, only those that checks use, without those that the
            kernel refuses (EINVAL on restricted functions); ``None`` where not read.
    """

    number: PortNumber
    state: str | None = None
    physical_state: str | None = None
    layer: LinkLayer | None = None
    rate_gbps: float | None = None
    lid: int | None = None
    sm_lid: int | None = None
    gids: tuple[Gid, ...] = ()
    counters: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hca:
    """One RDMA device of ``/sys/class/infiniband``.

    Attributes:
        name: as the kernel has it; never assume ``mlx5_*``.
        kind: ``None`` where the source does not say (text).
        pci: the nearest PCI function above it; ``None`` for software devices.
        parent: the physical function that a virtual function or a subfunction is a part of.
        subfunction: its number (``sfnum``).
        numa_node: ``None`` where sysfs says −1.
        sys_image_guid: identifies the card, shared by the functions of one card.
        board_id: the firmware's PSID.
        char_devices: names under ``/dev/infiniband``, by kind (issm, umad, uverbs), then number.
    """

    name: str
    kind: HcaKind | None = None
    pci: PciAddress | None = None
    path: PciPath | None = None
    function: PciFunction | None = None
    numa_node: NumaId | None = None
    parent: PciAddress | None = None
    subfunction: int | None = None
    hca_type: str | None = None
    board_id: str | None = None
    firmware: str | None = None
    node_guid: str | None = None
    sys_image_guid: str | None = None
    netdevs: tuple[NetDevice, ...] = ()
    ports: Annotated[tuple[HcaPort, ...], Count(0, MAX_PORTS)] = ()
    char_devices: tuple[str, ...] = ()

    @property
    def is_down(self) -> bool:
        """Whether no port carries data. A port without a state counts as active, as for NCCL."""
        states = [port.state for port in self.ports]
        return bool(states) and all(state not in (None, ACTIVE) for state in states)

    @property
    def pci_order(self) -> tuple[bool, PciAddress, str]:
        """A sort key: by address, then name; those without a PCI function last."""
        return self.pci is None, self.pci or PciAddress(0, 0, 0, 0), self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class DataDirect:
    """A PCI function that gives HCAs a second way to GPU memory (ConnectX-8, class 080100).

    Attributes:
        hcas: names of the HCAs it serves, sorted; empty where the source does not say.
    """

    pci: PciAddress | None = None
    path: PciPath | None = None
    function: PciFunction | None = None
    numa_node: NumaId | None = None
    hcas: tuple[str, ...] = ()
