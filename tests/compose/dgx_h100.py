"""DGX H100: 8 GPUs on 4 NVSwitches, 2 sockets, one ConnectX-7 under each GPU's PCIe switch.

Sources: NVIDIA DGX H100/H200 User Guide (hardware overview, system topology: each GPU's own
NIC is one PCIe switch away, which `topo -m` prints as PXB; 2 x Xeon 8480C, 2 TB); NVIDIA
H100 datasheet (18 NVLinks); the links per NVSwitch are those of real NCCL topology dumps of
HGX H100 boards (5, 5, 4, 4). Bus numbers are typical of such boards, UUIDs and GUIDs are
invented.
"""

from dataclasses import replace

from agent.model.gpu import Fabric, FabricState, Gpu
from agent.model.hca import Hca
from agent.model.mig import Mig
from agent.model.numa import NumaNode
from agent.model.nvlink import NvLink, NvSwitch, PeerKind
from agent.model.pci import PciAddress, PciBridge, PciPath
from agent.model.snapshot import Kernel, Origin, Provenance, Snapshot
from tests.compose import parts
from tests.compose.kubelet import AS_INSTALLED, SYSTEM_MEMORY_MIB
from tests.compose.machine import Bystander, Machine, PciIds, Processor, two_sockets
from tests.compose.parts import at

GPU_BUSES = (0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF)
HCA_BUSES = (0x18, 0x40, 0x4F, 0x5E, 0x9A, 0xC0, 0xCE, 0xDC)
SWITCH_BUSES = (0x07, 0x08, 0x09, 0x0A)
SWITCH_OF_LINK = (0,) * 5 + (1,) * 5 + (2,) * 4 + (3,) * 4
NVLINK4_MBPS = 26562
"""Raw rate of one NVLink 4, one direction; what `nvidia-smi nvlink -s` prints as 26.562 GB/s."""

PROCESSOR = Processor(
    vendor="GenuineIntel",
    model="Intel(R) Xeon(R) Platinum 8480C",
    family=6,
    model_number=143,
    stepping=8,
    mhz=2000,
    cores=56,
    l1d_kib=48,
    l1i_kib=32,
    l2_kib=2048,
    l3_kib=107520,
)
NVSWITCH = PciIds(vendor="10de", device="22a3", subsystem_vendor="10de", subsystem_device="1796")


def machine() -> Machine:
    """Return the description."""
    nodes, cpu = two_sockets(PROCESSOR, memory_mib=1_031_000, distance=21)
    gpus = tuple(_gpu(index, nodes) for index in range(8))
    snapshot = Snapshot(
        node="dgx-h100",
        captured_at=parts.CAPTURED_AT,
        provenance=Provenance(
            origin=Origin.COMPOSED,
            description="8x H100 SXM, 4 NVSwitch, 2 sockets, 8 ConnectX-7",
            sources=(
                "NVIDIA DGX H100/H200 User Guide: hardware overview and system topology",
                "NVIDIA H100 Tensor Core GPU datasheet",
                parts.UNSOURCED,
            ),
        ),
        driver_version=parts.DRIVER,
        nvml_version=parts.NVML,
        cuda_version=parts.CUDA,
        product_name="DGXH100",
        kubelet=replace(
            AS_INSTALLED,
            cpu_manager_policy="static",
            memory_manager_policy="Static",
            topology_manager_policy="single-numa-node",
            reserved_system_cpus="0,56,112,168",
            system_reserved={"memory": f"{SYSTEM_MEMORY_MIB}Mi"},
        ),
        kernel=Kernel(
            release="6.8.0-60-generic",
            command_line="BOOT_IMAGE=/boot/vmlinuz-6.8.0-60-generic root=/dev/md0 ro iommu=pt",
            machine="x86_64",
            modules=tuple(sorted((*parts.MODULES, "nvidia_peermem", "rdma_ucm"))),
            sysctls={"kernel.numa_balancing": "0", "vm.zone_reclaim_mode": "0"},
        ),
        gpus=gpus,
        nvlinks=tuple(link for gpu in gpus for link in _nvlinks(gpu.index)),
        nvswitches=tuple(NvSwitch(pci=at(bus)) for bus in SWITCH_BUSES),
        pairs=parts.pairs(gpus, {(a, b) for b in range(8) for a in range(b)}),
        bridges=tuple(sorted(_bridges(), key=lambda bridge: bridge.address)),
        numa_nodes=nodes,
        cpu=cpu,
        hcas=tuple(_hca(index) for index in range(8)),
    )
    return Machine(
        shape="h100x8-nvswitch-2numa-8cx7",
        name="dgx-h100",
        snapshot=snapshot,
        processor=PROCESSOR,
        gpu_ids=PciIds(
            vendor="10de", device="2330", subsystem_vendor="10de", subsystem_device="16c1"
        ),
        nvml_architecture=9,
        hca_ids=PciIds(
            vendor="15b3", device="1021", subsystem_vendor="15b3", subsystem_device="0023"
        ),
        hca_board="MT_0000000838",
        bystanders=(*parts.console(), *(_nvswitch(at) for at in range(4))),
    )


def _gpu(index: int, nodes: tuple[NumaNode, ...]) -> Gpu:
    return Gpu(
        index=index,
        uuid=parts.uuid(0xD6C1, index),
        minor=index,
        pci=at(GPU_BUSES[index]),
        path=PciPath(root=_root(index), hops=(*_above_gpu(index), at(GPU_BUSES[index]))),
        product="NVIDIA H100 80GB HBM3",
        architecture="hopper",
        compute_capability=(9, 0),
        memory_mib=81559,
        numa_node=index // 4,
        cpu_affinity=nodes[index // 4].cpus,
        pci_class="030200",
        pcie=parts.link(5),
        persistence=True,
        ecc=True,
        mig=Mig(is_enabled=False, is_pending=False),
        fabric=Fabric(state=FabricState.COMPLETED, status=0, clique_id=0, health_mask=0),
        remapped_rows=parts.NO_REMAPPED_ROWS,
        recovery_action=0,
    )


def _hca(index: int) -> Hca:
    bus = HCA_BUSES[index]
    guid = f"a088:c203:00{index:02x}:0000"
    return Hca(
        name=f"mlx5_{index}",
        pci=at(bus),
        path=PciPath(root=_root(index), hops=(*_above_hca(index), at(bus))),
        numa_node=index // 4,
        vendor="15b3",
        device="1021",
        hca_type="MT4129",
        firmware="28.39.1002",
        node_guid=guid,
        sys_image_guid=guid,
        netdevs=(f"ibp{bus}s0",),
        ports=parts.infiniband(400.0),
        pcie=parts.link(5),
    )


def _first_bus(index: int) -> int:
    return HCA_BUSES[index] - 3


def _root(index: int) -> str:
    return f"pci0000:{_first_bus(index):02x}"


def _above_hca(index: int) -> tuple[PciAddress, ...]:
    """Return the root port, the switch's upstream port and its first downstream port."""
    bus = _first_bus(index)
    return at(bus, 1), at(bus + 1), at(bus + 2, 0)


def _above_gpu(index: int) -> tuple[PciAddress, ...]:
    """Return the same switch's second downstream port and the second switch behind it."""
    bus = _first_bus(index)
    return at(bus, 1), at(bus + 1), at(bus + 2, 1), at(bus + 4), at(bus + 5)


def _bridges() -> list[PciBridge]:
    return [
        PciBridge(
            address=hop,
            vendor="8086" if depth == 0 else "1000",
            device="352a" if depth == 0 else "c030",
            numa_node=index // 4,
            link=parts.link(5),
            acs=False,
        )
        for index in range(8)
        for depth, hop in enumerate((*_above_gpu(index), _above_hca(index)[-1]))
    ]


def _nvlinks(gpu: int) -> list[NvLink]:
    return [
        NvLink(
            gpu=gpu,
            link=number,
            is_active=True,
            version=4,
            peer=at(SWITCH_BUSES[switch]),
            peer_kind=PeerKind.SWITCH,
            speed_mbps=NVLINK4_MBPS,
        )
        for number, switch in enumerate(SWITCH_OF_LINK)
    ]


def _nvswitch(position: int) -> Bystander:
    hops = (at(0, 0x1D), at(4), at(5, position), at(SWITCH_BUSES[position]))
    return Bystander(
        path=PciPath(root="pci0000:00", hops=hops),
        pci_class="068000",
        ids=NVSWITCH,
        link=parts.link(2, 1),
    )
