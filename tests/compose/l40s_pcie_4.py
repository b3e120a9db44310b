"""A PCIe server with 4 L40S, each on a root port of its own, 2 sockets, no HCA, no NVLink.

Sources: NVIDIA L40S product brief (48 GB, PCIe Gen4 x16, no NVLink); Dell PowerEdge R760xa
technical guide (up to four double-width GPUs, two on each socket, attached without a PCIe
switch); Intel ARK for Xeon Gold 6448Y. Bus numbers are typical of that generation, UUIDs are
invented. ACS is on, as firmware leaves it where an IOMMU is in use.
"""

from agent.model.gpu import Gpu
from agent.model.numa import NumaNode
from agent.model.pci import PciBridge, PciPath
from agent.model.snapshot import Kernel, Origin, Provenance, Snapshot
from tests.compose import parts
from tests.compose.kubelet import AS_INSTALLED
from tests.compose.machine import Machine, PciIds, Processor, two_sockets
from tests.compose.parts import at

GPU_BUSES = (0x4A, 0x61, 0xCA, 0xE1)
ROOT_BUSES = (0x48, 0x5F, 0xC8, 0xDF)

PROCESSOR = Processor(
    vendor="GenuineIntel",
    model="Intel(R) Xeon(R) Gold 6448Y",
    family=6,
    model_number=143,
    stepping=8,
    mhz=2100,
    cores=32,
    l1d_kib=48,
    l1i_kib=32,
    l2_kib=2048,
    l3_kib=61440,
)


def machine() -> Machine:
    """Return the description."""
    nodes, cpu = two_sockets(PROCESSOR, memory_mib=515_000, distance=21)
    gpus = tuple(_gpu(index, nodes) for index in range(4))
    snapshot = Snapshot(
        node="l40s-pcie-4",
        captured_at=parts.CAPTURED_AT,
        provenance=Provenance(
            origin=Origin.COMPOSED,
            description="4x L40S on their own root ports, 2 sockets, no HCA",
            sources=(
                "NVIDIA L40S GPU Accelerator product brief",
                "Dell PowerEdge R760xa technical guide",
                parts.UNSOURCED,
            ),
        ),
        driver_version=parts.DRIVER,
        nvml_version=parts.NVML,
        cuda_version=parts.CUDA,
        product_name="PowerEdge R760xa",
        kubelet=AS_INSTALLED,
        kernel=Kernel(
            release="6.8.0-60-generic",
            command_line="BOOT_IMAGE=/vmlinuz-6.8.0-60-generic root=/dev/sda2 ro intel_iommu=on",
            machine="x86_64",
            modules=("nvidia", "nvidia_modeset", "nvidia_uvm"),
            sysctls={"kernel.numa_balancing": "1", "vm.zone_reclaim_mode": "0"},
        ),
        gpus=gpus,
        nvlinks=(),
        nvswitches=(),
        pairs=parts.pairs(gpus, set()),
        bridges=tuple(_bridge(index) for index in range(4)),
        numa_nodes=nodes,
        cpu=cpu,
        hcas=(),
    )
    return Machine(
        shape="l40sx4-pcie-2numa",
        name="l40s-pcie-4",
        snapshot=snapshot,
        processor=PROCESSOR,
        gpu_ids=PciIds(
            vendor="10de", device="26b9", subsystem_vendor="10de", subsystem_device="1851"
        ),
        nvml_architecture=8,
        bystanders=parts.console(),
    )


def _gpu(index: int, nodes: tuple[NumaNode, ...]) -> Gpu:
    bus, root = GPU_BUSES[index], ROOT_BUSES[index]
    return Gpu(
        index=index,
        uuid=parts.uuid(0x140, index),
        minor=index,
        pci=at(bus),
        path=PciPath(root=f"pci0000:{root:02x}", hops=(at(root, 1), at(bus))),
        product="NVIDIA L40S",
        architecture="ada-lovelace",
        compute_capability=(8, 9),
        memory_mib=46068,
        numa_node=index // 2,
        cpu_affinity=nodes[index // 2].cpus,
        pci_class="030200",
        pcie=parts.link(4),
        persistence=True,
        ecc=True,
        remapped_rows=parts.NO_REMAPPED_ROWS,
        recovery_action=0,
    )


def _bridge(index: int) -> PciBridge:
    return PciBridge(
        address=at(ROOT_BUSES[index], 1),
        vendor="8086",
        device="352a",
        numa_node=index // 2,
        link=parts.link(4),
        acs=True,
    )
