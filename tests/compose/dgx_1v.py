"""DGX-1 with V100: 8 GPUs in a hybrid cube mesh, 2 sockets, 4 ConnectX-4, no NVSwitch.

Sources: NVIDIA DGX-1 with Tesla V100 System Architecture whitepaper (WP-08437-002: figure of
the cube mesh, two GPUs and one NIC on each PCIe switch, 2 x Xeon E5-2698 v4, 512 GB); the
links per pair are those of `nvidia-smi topo -m` on real DGX-1V machines. Bus numbers follow
such captures, UUIDs and GUIDs are invented.
"""

from dataclasses import replace

from agent.model.gpu import Gpu
from agent.model.hca import Hca
from agent.model.numa import NumaNode
from agent.model.nvlink import NvLink, PeerKind
from agent.model.pci import PciAddress, PciBridge, PciPath
from agent.model.snapshot import Kernel, Origin, Provenance, Snapshot
from tests.compose import parts
from tests.compose.kubelet import AS_INSTALLED
from tests.compose.machine import Machine, PciIds, Processor, two_sockets
from tests.compose.parts import at

GPU_BUSES = (0x06, 0x07, 0x0A, 0x0B, 0x85, 0x86, 0x89, 0x8A)
HCA_BUSES = (0x05, 0x0C, 0x84, 0x8B)
SWITCH_BUSES = (0x03, 0x08, 0x82, 0x87)
"""Of each PCIe switch's upstream port; its downstream ports are on the next bus."""

DOUBLE = ((0, 3), (0, 4), (1, 2), (1, 5), (2, 3), (4, 7), (5, 6), (6, 7))
SINGLE = ((0, 1), (0, 2), (1, 3), (2, 6), (3, 7), (4, 5), (4, 6), (5, 7))
NVLINK2_MBPS = 25781
"""Raw rate of one NVLink 2, one direction; what `nvidia-smi nvlink -s` prints as 25.781 GB/s."""

PROCESSOR = Processor(
    vendor="GenuineIntel",
    model="Intel(R) Xeon(R) CPU E5-2698 v4 @ 2.20GHz",
    family=6,
    model_number=79,
    stepping=1,
    mhz=2200,
    cores=20,
    l1d_kib=32,
    l1i_kib=32,
    l2_kib=256,
    l3_kib=51200,
)


def machine() -> Machine:
    """Return the description."""
    nodes, cpu = two_sockets(PROCESSOR, memory_mib=257_600, distance=21)
    gpus = tuple(_gpu(index, nodes) for index in range(8))
    snapshot = Snapshot(
        node="dgx-1v",
        captured_at=parts.CAPTURED_AT,
        provenance=Provenance(
            origin=Origin.COMPOSED,
            description="8x V100 SXM2 in a hybrid cube mesh, 2 sockets, 4 ConnectX-4",
            sources=(
                "NVIDIA DGX-1 with Tesla V100 System Architecture whitepaper WP-08437-002",
                "NVIDIA DGX-1 User Guide: hardware specifications",
                parts.UNSOURCED,
            ),
        ),
        driver_version=parts.DRIVER,
        nvml_version=parts.NVML,
        cuda_version=parts.CUDA,
        product_name="NVIDIA DGX-1 with V100",
        kubelet=replace(
            AS_INSTALLED,
            cpu_manager_policy="static",
            reserved_system_cpus="0,20,40,60",
        ),
        kernel=Kernel(
            release="6.8.0-60-generic",
            command_line="BOOT_IMAGE=/boot/vmlinuz-6.8.0-60-generic root=/dev/sda2 ro",
            machine="x86_64",
            modules=tuple(sorted((*parts.MODULES, "nvidia_peermem", "rdma_ucm"))),
            sysctls={"kernel.numa_balancing": "0", "vm.zone_reclaim_mode": "0"},
        ),
        gpus=gpus,
        nvlinks=_nvlinks(gpus),
        nvswitches=(),
        pairs=parts.pairs(gpus, {*DOUBLE, *SINGLE}),
        bridges=tuple(sorted(_bridges(), key=lambda bridge: bridge.address)),
        numa_nodes=nodes,
        cpu=cpu,
        hcas=tuple(_hca(switch) for switch in range(4)),
    )
    return Machine(
        shape="v100x8-cubemesh-2numa-4cx4",
        name="dgx-1v",
        snapshot=snapshot,
        processor=PROCESSOR,
        gpu_ids=PciIds(
            vendor="10de", device="1db5", subsystem_vendor="10de", subsystem_device="1249"
        ),
        nvml_architecture=5,
        hca_ids=PciIds(
            vendor="15b3", device="1013", subsystem_vendor="15b3", subsystem_device="0033"
        ),
        hca_board="MT_2180110032",
        bystanders=parts.console(),
    )


def _gpu(index: int, nodes: tuple[NumaNode, ...]) -> Gpu:
    switch, port = divmod(index, 2)
    return Gpu(
        index=index,
        uuid=parts.uuid(0xD61F, index),
        minor=index,
        pci=at(GPU_BUSES[index]),
        path=PciPath(root=_root(switch), hops=(*_above(switch, port), at(GPU_BUSES[index]))),
        product="Tesla V100-SXM2-32GB",
        architecture="volta",
        compute_capability=(7, 0),
        memory_mib=32768,
        numa_node=switch // 2,
        cpu_affinity=nodes[switch // 2].cpus,
        pci_class="030200",
        pcie=parts.link(3),
        persistence=True,
        ecc=True,
        recovery_action=0,
    )


def _hca(switch: int) -> Hca:
    guid = f"506b:4b03:00{switch:02x}:0000"
    return Hca(
        name=f"mlx5_{switch}",
        pci=at(HCA_BUSES[switch]),
        path=PciPath(root=_root(switch), hops=(*_above(switch, 2), at(HCA_BUSES[switch]))),
        numa_node=switch // 2,
        vendor="15b3",
        device="1013",
        hca_type="MT4115",
        firmware="12.28.1002",
        node_guid=guid,
        sys_image_guid=guid,
        netdevs=(f"ib{switch}",),
        ports=parts.infiniband(100.0),
        pcie=parts.link(3),
    )


def _root_bus(switch: int) -> int:
    return (0x00, 0x80)[switch // 2]


def _root(switch: int) -> str:
    return f"pci0000:{_root_bus(switch):02x}"


def _above(switch: int, port: int) -> tuple[PciAddress, ...]:
    """Return the root port, the switch's upstream port and one of its downstream ports."""
    upstream = SWITCH_BUSES[switch]
    device = (0x08, 0x10, 0x14)[port]
    return at(_root_bus(switch), 2 + switch % 2), at(upstream), at(upstream + 1, device)


def _bridges() -> list[PciBridge]:
    return [
        PciBridge(
            address=hop,
            vendor="8086" if hop.bus == _root_bus(switch) else "10b5",
            device="6f04" if hop.bus == _root_bus(switch) else "8796",
            numa_node=switch // 2,
            link=parts.link(3),
            acs=False,
        )
        for switch in range(4)
        for hop in sorted({hop for port in range(3) for hop in _above(switch, port)})
    ]


def _nvlinks(gpus: tuple[Gpu, ...]) -> tuple[NvLink, ...]:
    """Return both ends of every link; a GPU's links are numbered in the order of the tables."""
    peers: dict[int, list[int]] = {gpu.index: [] for gpu in gpus}
    for a, b in (pair for pair in (*DOUBLE, *SINGLE) for _ in range(1 + (pair in DOUBLE))):
        peers[a].append(b)
        peers[b].append(a)
    return tuple(
        NvLink(
            gpu=gpu,
            link=number,
            is_active=True,
            version=2,
            peer=gpus[peer].pci,
            peer_kind=PeerKind.GPU,
            speed_mbps=NVLINK2_MBPS,
        )
        for gpu, others in peers.items()
        for number, peer in enumerate(others)
    )
