"""Two A100s joined by two NVLinks, the first cut into MIG devices: answers and their meaning."""

from agent.model.gpu import Fabric, FabricState, Gpu, RemappedRows
from agent.model.mig import Mig, MigInstance
from agent.model.numa import CpuSet
from agent.model.nvlink import Closeness, NvLink, PeerKind, ReportedPair
from agent.model.pci import PciAddress, PcieLink
from agent.probes.nvml import NvmlReading

CLUSTER = "4a5b6c7d-0001-4002-8003-aabbccddeeff"


def _gpu_answers(index: int) -> str:
    bus = f"00000000:{0x10 + index:02X}:00.0"
    peer = f"00000000:{0x11 - index:02X}:00.0"
    return f"""
nvmlDeviceGetUUID {index} = 0 GPU-0000000{index}
nvmlDeviceGetName {index} = 0 NVIDIA A100-SXM4-40GB
nvmlDeviceGetPciInfo_v3 {index} = 0 {bus} | 0x20B010DE
nvmlDeviceGetMinorNumber {index} = 0 {index + 4}
nvmlDeviceGetMemoryInfo {index} = 0 42949672960 | 42000000000 | 949672960
nvmlDeviceGetCudaComputeCapability {index} = 0 8 | 0
nvmlDeviceGetArchitecture {index} = 0 7
nvmlDeviceGetPersistenceMode {index} = 0 1
nvmlDeviceGetEccMode {index} = 0 1 | 0
nvmlDeviceGetCurrPcieLinkGeneration {index} = 0 1
nvmlDeviceGetCurrPcieLinkWidth {index} = 0 16
nvmlDeviceGetMaxPcieLinkGeneration {index} = 0 4
nvmlDeviceGetMaxPcieLinkWidth {index} = 0 16
nvmlDeviceGetCpuAffinity {index} = 0 0-2,64,127-128
nvmlDeviceGetRemappedRows {index} = 0 1 | 2 | 1 | 0
nvmlDeviceGetFieldValue {index} 230 = 0 4
nvmlDeviceGetGpuFabricInfoV {index} = 0 3 | 0 | {CLUSTER} | 7 | 5
nvmlDeviceGetNvLinkState {index} 0 = 0 1
nvmlDeviceGetNvLinkVersion {index} 0 = 0 4
nvmlDeviceGetNvLinkRemotePciInfo_v2 {index} 0 = 0 {peer}
nvmlDeviceGetNvLinkRemoteDeviceType {index} 0 = 0 0
nvmlDeviceGetFieldValue {index} 164 0 = 0 25781
nvmlDeviceGetNvLinkState {index} 1 = 0 0
nvmlDeviceGetNvLinkVersion {index} 1 = 0 4
nvmlDeviceGetNvLinkState {index} 3 = 0 1    # a gap: link 2 does not exist
nvmlDeviceGetNvLinkVersion {index} 3 = 0 4
nvmlDeviceGetNvLinkRemotePciInfo_v2 {index} 3 = 0 FFFFFFFF:FF:FF.F
nvmlDeviceGetNvLinkRemoteDeviceType {index} 3 = 0 2
"""


ANSWERS = f"""# two GPUs
nvmlSystemGetDriverVersion = 0 580.95.05
nvmlSystemGetNVMLVersion = 0 13.580.95.05
nvmlSystemGetCudaDriverVersion_v2 = 0 12040
nvmlDeviceGetCount_v2 = 0 2
{_gpu_answers(0)}
nvmlDeviceGetMigMode 0 = 0 1 | 1
nvmlDeviceGetMaxMigDeviceCount 0 = 0 7
nvmlDeviceGetMigDeviceHandleByIndex 0 0 = 0
nvmlDeviceGetMigDeviceHandleByIndex 0 1 = 6
nvmlDeviceGetMigDeviceHandleByIndex 0 2 = 0
nvmlDeviceGetUUID 0:0 = 0 MIG-aaaa
nvmlDeviceGetName 0:0 = 0 NVIDIA A100-SXM4-40GB MIG 3g.20gb
nvmlDeviceGetGpuInstanceId 0:0 = 0 2
nvmlDeviceGetComputeInstanceId 0:0 = 0 0
nvmlDeviceGetMemoryInfo 0:0 = 0 20937965568 | 1 | 1
nvmlDeviceGetUUID 0:2 = 0 MIG-bbbb
nvmlDeviceGetName 0:2 = 0 NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb+me
{_gpu_answers(1)}
nvmlDeviceGetMigMode 1 = 0 0 | 1
nvmlDeviceGetTopologyCommonAncestor 0 1 = 0 20
nvmlDeviceGetP2PStatus 0 1 2 = 0 0
"""

MIG_INSTANCES = (
    MigInstance(
        uuid="MIG-aaaa",
        profile="3g.20gb",
        gpu_instance=2,
        compute_instance=0,
        memory_mib=19968,
    ),
    MigInstance(uuid="MIG-bbbb", profile="1c.3g.20gb+me"),
)


def _gpu(index: int, mig: Mig) -> Gpu:
    return Gpu(
        index=index,
        uuid=f"GPU-0000000{index}",
        minor=index + 4,
        pci=PciAddress(0, 0x10 + index, 0, 0),
        product="NVIDIA A100-SXM4-40GB",
        architecture="ampere",
        compute_capability=(8, 0),
        memory_mib=40960,
        cpu_affinity=CpuSet.of((0, 1, 2, 64, 127, 128)),
        pcie=PcieLink(generation=1, width=16, max_generation=4, max_width=16),
        persistence=True,
        ecc=True,
        mig=mig,
        fabric=Fabric(
            state=FabricState.COMPLETED,
            status=0,
            cluster_uuid=CLUSTER,
            clique_id=7,
            health_mask=5,
        ),
        remapped_rows=RemappedRows(
            correctable=1,
            uncorrectable=2,
            is_pending=True,
            has_failed=False,
        ),
        recovery_action=4,
    )


def _links(gpu: int) -> tuple[NvLink, ...]:
    return (
        NvLink(
            gpu=gpu,
            link=0,
            is_active=True,
            version=3,
            peer=PciAddress(0, 0x11 - gpu, 0, 0),
            peer_kind=PeerKind.GPU,
            speed_mbps=25781,
        ),
        NvLink(gpu=gpu, link=1, is_active=False, version=3),
        NvLink(gpu=gpu, link=3, is_active=True, version=3, peer_kind=PeerKind.SWITCH),
    )


READING = NvmlReading(
    driver_version="580.95.05",
    nvml_version="13.580.95.05",
    cuda_version=(12, 4),
    gpus=(
        _gpu(0, Mig(is_enabled=True, is_pending=False, instances=MIG_INSTANCES)),
        _gpu(1, Mig(is_enabled=False, is_pending=True)),
    ),
    nvlinks=(*_links(0), *_links(1)),
    pairs=(ReportedPair(a="GPU0", b="GPU1", closeness=Closeness.PXB, p2p_nvlink=True),),
)
