"""Small machines for the tests of NCCL's paths."""

from nodetopo.model.gpu import C2c, Gpu
from nodetopo.model.hca import Hca
from nodetopo.model.numa import CpuSet, CpuTopology
from nodetopo.model.nvlink import NvLink, PeerKind
from nodetopo.model.snapshot import Snapshot
from nodetopo.nccl.routes import nccl_paths

INTEL = CpuTopology(online=CpuSet(), vendor="GenuineIntel", family=6, model_number=0x8F)
C2C = C2c(is_enabled=True, links=10, speed_mbps=45000)
AMD = CpuTopology(online=CpuSet(), vendor="AuthenticAMD", family=25, model_number=1)


def machine(*devices: Gpu | Hca, links: tuple[NvLink, ...] = (), **more: object) -> Snapshot:
    """A machine of these devices, its NVLinks known."""
    return Snapshot(
        gpus=tuple(device for device in devices if isinstance(device, Gpu)),
        hcas=tuple(device for device in devices if isinstance(device, Hca)),
        nvlinks=links,
        **{"cpu": INTEL, **more},  # type: ignore[arg-type]
    )


def nvlinks(*ends: tuple[Gpu, Gpu, int]) -> tuple[NvLink, ...]:
    """NVLinks between GPUs, both ends of each."""
    both = [(a, b, count) for one, two, count in ends for a, b in ((one, two), (two, one))]
    numbers = [
        (a, b) for a, b, count in sorted(both, key=lambda e: e[0].index) for _ in range(count)
    ]
    return tuple(
        NvLink(gpu=a.index, link=at, is_active=True, peer=b.pci, peer_kind=PeerKind.GPU)
        for at, (a, b) in enumerate(numbers)
    )


def to_switches(*gpus: Gpu, count: int = 18) -> tuple[NvLink, ...]:
    """NVLinks to switches that the driver hides."""
    return tuple(
        NvLink(gpu=one.index, link=at, is_active=True, peer_kind=PeerKind.SWITCH)
        for one in gpus
        for at in range(count)
    )


def kind(snapshot: Snapshot, a: str, b: str) -> str:
    """The type of the path between two rows."""
    return nccl_paths(snapshot)[a, b].type.name
