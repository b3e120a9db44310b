"""Parts that the composed machines share."""

from collections.abc import Iterable
from datetime import UTC, datetime

from agent.model.gpu import Gpu, RemappedRows
from agent.model.hca import HcaPort, LinkLayer
from agent.model.nvlink import ReportedPair
from agent.model.pci import PciAddress, PcieLink, PciPath
from agent.topology.path import closeness
from tests.compose.machine import Bystander, PciIds

CAPTURED_AT = datetime(2026, 11, 1, tzinfo=UTC)
DRIVER = "580.95.05"
NVML = "13.580.95.05"
CUDA = (13, 0)
NO_REMAPPED_ROWS = RemappedRows(correctable=0, uncorrectable=0, is_pending=False, has_failed=False)
MODULES = ("ib_core", "ib_uverbs", "mlx5_core", "mlx5_ib", "nvidia", "nvidia_modeset", "nvidia_uvm")
BMC_DISPLAY = PciIds(vendor="1a03", device="2000", subsystem_vendor="1a03", subsystem_device="2000")
"""ASPEED's graphics, the console of most servers (pci.ids 1a03:2000)."""

INTEL_X550 = PciIds(vendor="8086", device="1563", subsystem_vendor="8086", subsystem_device="0001")
"""10GBASE-T Ethernet (pci.ids 8086:1563): a network interface that is no HCA."""


def at(bus: int, device: int = 0) -> PciAddress:
    """Return function 0 of a device in PCI domain 0."""
    return PciAddress(0, bus, device, 0)


def link(generation: int, width: int = 16) -> PcieLink:
    """Return a link that runs at all it can."""
    return PcieLink(generation=generation, width=width, max_generation=generation, max_width=width)


def infiniband(rate_gbps: float) -> tuple[HcaPort, ...]:
    """Return the one port of an HCA that is up."""
    return (
        HcaPort(
            number=1,
            state="ACTIVE",
            physical_state="LinkUp",
            layer=LinkLayer.INFINIBAND,
            rate_gbps=rate_gbps,
        ),
    )


def uuid(model: int, index: int) -> str:
    """Return an invented GPU UUID that tells where it was invented."""
    return f"GPU-{model:08x}-0000-4000-8000-{index:012x}"


def pairs(gpus: Iterable[Gpu], nvlink_peers: set[tuple[int, int]]) -> tuple[ReportedPair, ...]:
    """Return what NVML says of every pair of *gpus*; *nvlink_peers* have the lower index first."""
    ordered = list(gpus)
    return tuple(
        ReportedPair(
            a=a.name,
            b=b.name,
            closeness=closeness(a, b),
            p2p_nvlink=(a.index, b.index) in nvlink_peers,
        )
        for position, a in enumerate(ordered)
        for b in ordered[position + 1 :]
    )


def console() -> tuple[Bystander, ...]:
    """Return the BMC's display and a plain Ethernet port, below the first host bridge."""
    return (
        Bystander(
            path=PciPath(root="pci0000:00", hops=(at(0, 0x1C), at(1), at(2))),
            pci_class="030000",
            ids=BMC_DISPLAY,
            link=link(2, 1),
        ),
        Bystander(
            path=PciPath(root="pci0000:00", hops=(at(0, 0x1B),)),
            pci_class="020000",
            ids=INTEL_X550,
            link=link(3, 4),
            netdev="eno1",
        ),
    )


UNSOURCED = "bus numbers, PCI ids, serials and firmware versions: plausible, of no one machine"
"""Said in the provenance of every composed machine."""
