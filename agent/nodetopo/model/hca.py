"""RDMA host channel adapters and their ports, of every vendor."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

from msgspec import Struct

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


class Gid(Struct, frozen=True, kw_only=True):
    """An entry of a port's GID table that is set."""

    index: int
    gid: str  # eight groups of four hex digits, as sysfs prints it
    # `IB/RoCE v1` or `RoCE v2`; None where the kernel refuses (EINVAL: its network interface is in
    # another namespace)
    type: str | None = None
    netdev: str | None = None  # the network interface it belongs to


class NetDevice(Struct, frozen=True, kw_only=True):
    """A network interface of an HCA."""

    name: str
    port: PortNumber | None = None  # of the HCA, from 1; None where the interface does not say
    mtu: int | None = None
    state: str | None = None  # sysfs `operstate`
    master: str | None = None  # the bond or bridge it belongs to


class HcaPort(Struct, frozen=True, kw_only=True):
    """One port."""

    number: PortNumber
    state: str | None = None  # the word of sysfs `state`: ACTIVE, DOWN …
    physical_state: str | None = None  # the word of `phys_state`: LinkUp …
    layer: LinkLayer | None = None
    rate_gbps: float | None = None  # gigabits per second; a port that is down still states a rate
    # lid, sm_lid: InfiniBand only; 0 before a subnet manager assigned them
    lid: int | None = None
    sm_lid: int | None = None
    gids: tuple[Gid, ...] = ()  # entries that are set, by index
    # Error counters by name, only those that checks use, without those that the kernel refuses
    # (EINVAL on restricted functions).
    counters: Mapping[str, int] | None = None


class Hca(Struct, frozen=True, kw_only=True):
    """One RDMA device of ``/sys/class/infiniband``."""

    name: str  # as the kernel has it; never assume `mlx5_*`
    kind: HcaKind | None = None  # None where the source does not say (text)
    pci: PciAddress | None = None  # the nearest PCI function above; None for software devices
    path: PciPath | None = None
    function: PciFunction | None = None
    numa_node: NumaId | None = None  # None where sysfs says −1
    parent: PciAddress | None = None  # the physical function of a virtual function or subfunction
    subfunction: int | None = None  # its number (`sfnum`)
    hca_type: str | None = None
    board_id: str | None = None  # the firmware's PSID
    firmware: str | None = None
    node_guid: str | None = None
    sys_image_guid: str | None = None  # identifies the card; its functions share it
    netdevs: tuple[NetDevice, ...] = ()
    ports: Annotated[tuple[HcaPort, ...], Count(0, MAX_PORTS)] = ()
    # Names under `/dev/infiniband`, by kind (issm, umad, uverbs), then number.
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


class DataDirect(Struct, frozen=True, kw_only=True):
    """A PCI function that gives HCAs a second way to GPU memory (ConnectX-8, class 080100)."""

    pci: PciAddress | None = None
    path: PciPath | None = None
    function: PciFunction | None = None
    numa_node: NumaId | None = None
    # Names of the HCAs it serves, sorted; empty where the source does not say.
    hcas: tuple[str, ...] = ()
