"""RDMA host channel adapters and their ports, of every vendor."""

from dataclasses import dataclass
from enum import StrEnum

from agent.model.pci import PciAddress, PcieLink, PciPath


class LinkLayer(StrEnum):
    """What the port speaks (sysfs ``link_layer``)."""

    INFINIBAND = "InfiniBand"
    ETHERNET = "Ethernet"


@dataclass(frozen=True, slots=True, kw_only=True)
class HcaPort:
    """One port.

    Attributes:
        state: the word of sysfs ``state``, e.g. ``ACTIVE``, ``DOWN``.
        physical_state: the word of ``phys_state``, e.g. ``LinkUp``.
        rate_gbps: gigabits per second; a port that is down still states a rate.
    """

    number: int
    state: str | None = None
    physical_state: str | None = None
    layer: LinkLayer | None = None
    rate_gbps: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hca:
    """One RDMA device of ``/sys/class/infiniband``.

    Attributes:
        name: as the kernel has it; never assume ``mlx5_*``.
        pci: the nearest PCI function above it; ``None`` for software devices.
        numa_node: ``None`` where sysfs says −1.
        vendor: PCI vendor id, four lower-case hex digits.
        sys_image_guid: identifies the card, shared by the functions of one card.
    """

    name: str
    pci: PciAddress | None = None
    path: PciPath | None = None
    numa_node: int | None = None
    vendor: str | None = None
    device: str | None = None
    hca_type: str | None = None
    firmware: str | None = None
    node_guid: str | None = None
    sys_image_guid: str | None = None
    netdevs: tuple[str, ...] = ()
    ports: tuple[HcaPort, ...] = ()
    pcie: PcieLink | None = None
