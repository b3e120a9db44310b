"""Snapshots that no bundled machine is: as small as the case needs."""

from msgspec.structs import replace

from nodetopo.machines.bundled import machine
from nodetopo.model.gpu import C2c, Gpu, Mig, MigInstance
from nodetopo.model.hca import Hca, HcaKind
from nodetopo.model.numa import CpuSet, CpuTopology, NumaNode, Socket
from nodetopo.model.nvlink import NvLink, PeerKind
from nodetopo.model.pci import PciAddress, PcieLink, PciPath
from nodetopo.model.snapshot import Snapshot

GEN5 = PcieLink(generation=5, width=16, max_generation=5, max_width=16)
_MEMORY_NODES = (2, 10, 18, 26)


def tray() -> Snapshot:
    """Return a Grace node: two sockets, four GPUs on C2C, and 32 NUMA nodes of GPU memory."""
    nodes = [
        NumaNode(id=at, cpus=CpuSet.of(range(72 * at, 72 * at + 72)), memory_mib=490_000)
        for at in range(2)
    ]
    nodes += [
        NumaNode(id=at, cpus=CpuSet(), memory_mib=188_416 if at in _MEMORY_NODES else 0)
        for at in range(2, 34)
    ]
    return Snapshot(
        node="tray",
        gpus=tuple(_grace_gpu(index) for index in range(4)),
        nvlinks=tuple(
            NvLink(gpu=gpu, link=link, is_active=True, peer_kind=PeerKind.SWITCH, speed_mbps=53125)
            for gpu in range(4)
            for link in range(18)
        ),
        nvswitches=(),
        bridges=(),
        numa_nodes=tuple(nodes),
        cpu=CpuTopology(
            online=CpuSet.of(range(144)),
            sockets=tuple(Socket(id=node.id, cpus=node.cpus) for node in nodes[:2]),
        ),
        hcas=(),
    )


def _grace_gpu(index: int) -> Gpu:
    domain = (0x8, 0x9, 0x18, 0x19)[index]
    pci = PciAddress(domain, 1, 0, 0)
    return Gpu(
        index=index,
        pci=pci,
        path=PciPath(root=f"pci{domain:04x}:00", hops=(PciAddress(domain, 0, 0, 0), pci)),
        product="NVIDIA GB200",
        numa_node=index // 2,
        memory_numa_node=_MEMORY_NODES[index],
        c2c=C2c(is_enabled=True, links=10, speed_mbps=44712),
        pcie=GEN5,
    )


def collapsed() -> Snapshot:
    """Return what an NCCL XML tells: switches without ports, and no host bridges."""
    switches = [PciAddress(0, bus, 0, 0) for bus in (0x16, 0x97)]

    def path(switch: int, bus: int) -> PciPath:
        hops = (switches[switch], PciAddress(0, bus, 0, 0))
        return PciPath(root=None, hops=hops, is_collapsed=True)

    def gpu(index: int, switch: int, bus: int) -> Gpu:
        place = path(switch, bus)
        return Gpu(index=index, pci=place.hops[-1], path=place, numa_node=switch, pcie=GEN5)

    return Snapshot(gpus=(gpu(0, 0, 0x1B), gpu(1, 0, 0x1C), gpu(2, 1, 0x9B)))


def crowded() -> Snapshot:
    """Return dgx-h100 with MIG instances on GPU1, GPU2 lost, and functions of mlx5_0."""
    base = machine("dgx-h100")
    hcas, gpus = base.hcas, list(base.gpus)
    assert hcas is not None
    whole = hcas[0]
    instances = tuple(
        MigInstance(uuid=f"MIG-{at}", profile="1g.10gb", gpu_instance=7 + at, compute_instance=0)
        for at in range(2)
    )
    gpus[1] = replace(gpus[1], mig=Mig(is_enabled=True, instances=instances))
    gpus[2] = replace(gpus[2], is_lost=True)
    parts = tuple(_part(whole, at) for at in range(1, 4))
    others = tuple(replace(hca, name=f"mlx5_{at + 4}") for at, hca in enumerate(hcas[1:]))
    manager = replace(hcas[-1], name="mlx5_99", pci=PciAddress(0, 0xEF, 0, 0), path=None)
    return replace(
        base,
        gpus=tuple(gpus),
        hcas=(whole, *parts, *others),
        management_hcas=(manager,),
    )


def _part(whole: Hca, at: int) -> Hca:
    assert whole.pci is not None
    assert whole.path is not None
    pci = replace(whole.pci, function=at)
    is_virtual = at > 1
    return replace(
        whole,
        name=f"mlx5_{at}",
        pci=pci,
        path=replace(whole.path, hops=(*whole.path.hops[:-1], pci)),
        kind=HcaKind.VIRTUAL if is_virtual else HcaKind.PHYSICAL,
        parent=whole.pci if is_virtual else None,
    )
