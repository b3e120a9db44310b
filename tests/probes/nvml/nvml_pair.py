"""Two A100s joined by an NVLink, the first cut into MIG devices: answers and their meaning.

They tell everything that NVML can, also what no one machine has at once.
"""

from nodetopo.model.gpu import (
    C2c,
    ConfidentialCompute,
    EccErrors,
    Fabric,
    FabricState,
    Gpu,
    Mig,
    MigAttributes,
    MigInstance,
    MigPlacement,
    RemappedRows,
    Virtualization,
)
from nodetopo.model.numa import CpuSet
from nodetopo.model.nvlink import Closeness, NvLink, P2pStatus, PeerAccess, PeerKind, ReportedPair
from nodetopo.model.pci import PciAddress, PcieLink
from nodetopo.probes.nvml.record import NvmlReading

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
nvmlDeviceGetSerial {index} = 0 165432{index}
nvmlDeviceGetVbiosVersion {index} = 0 92.00.45.00.05
nvmlDeviceGetModuleId {index} = 0 {index + 1}
nvmlDeviceGetBoardId {index} = 0 {0x90600 + index}
nvmlDeviceGetNumaNodeId {index} = 0 {index + 2}
nvmlDeviceGetMemoryAffinity {index} 0 = 0 0,{index + 2},9-10
nvmlDeviceGetVirtualizationMode {index} = 0 1
nvmlDeviceGetPersistenceMode {index} = 0 1
nvmlDeviceGetEccMode {index} = 0 1 | 0
nvmlDeviceGetTotalEccErrors {index} 1 0 = 0 3
nvmlDeviceGetTotalEccErrors {index} 1 1 = 0 5000000000
nvmlDeviceGetTotalEccErrors {index} 0 0 = 0 77    # corrected ones
nvmlDeviceGetRetiredPagesPendingStatus {index} = 0 1    # of GPUs older than this one
nvmlDeviceGetSramEccErrorStatus {index} = 0 5 | 1 | 9 | 0 | 0 | 2 | 4 | 1 | 0 | 1 | 0 | 1
nvmlDeviceGetC2cModeInfoV {index} = 0 1
nvmlDeviceGetFieldValue {index} 170 = 0 2
nvmlDeviceGetFieldValue {index} 172 1 = 0 44712    # link 0 is down and has no speed
nvmlDeviceGetCurrPcieLinkGeneration {index} = 0 1
nvmlDeviceGetCurrPcieLinkWidth {index} = 0 16
nvmlDeviceGetMaxPcieLinkGeneration {index} = 0 4
nvmlDeviceGetMaxPcieLinkWidth {index} = 0 16
nvmlDeviceGetCpuAffinity {index} = 0 0-2,64,127-128
nvmlDeviceGetRemappedRows {index} = 0 1 | 2 | 1 | 0
nvmlDeviceGetFieldValue {index} 230 = 0 4
nvmlDeviceGetFieldValue {index} 91 = 0 3
nvmlDeviceGetCurrentClocksEventReasons {index} = 0 68
nvmlDeviceGetGpuFabricInfoV {index} = 0 3 | 0 | {CLUSTER} | 7 | 5
nvmlDeviceGetNvLinkState {index} 0 = 0 1
nvmlDeviceGetNvLinkVersion {index} 0 = 0 4
nvmlDeviceGetNvLinkRemotePciInfo_v2 {index} 0 = 0 {peer}
nvmlDeviceGetNvLinkRemoteDeviceType {index} 0 = 0 0
nvmlDeviceGetFieldValue {index} 146 0 = 0 0
nvmlDeviceGetFieldValue {index} 164 0 = 0 25781
nvmlDeviceGetFieldValue {index} 162 0 = 0 2
nvmlDeviceGetFieldValue {index} 214 0 = 0 6    # of NVLink 5, which this is not
nvmlDeviceGetFieldValue {index} 165 0 = 0 1
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
nvmlSystemGetConfComputeState = 0 2 | 1 | 0
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
nvmlDeviceGetAttributes_v2 0:0 = 0 42 | 3 | 2 | 0 | 1 | 4 | 3 | 2 | 19968
nvmlDeviceGetGpuInstanceById 0 2 = 0
nvmlGpuInstanceGetInfo 0 2 = 0 9 | 4 | 4
nvmlDeviceGetUUID 0:2 = 0 MIG-bbbb
nvmlDeviceGetName 0:2 = 0 NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb+me
{_gpu_answers(1)}
nvmlDeviceGetMigMode 1 = 0 0 | 1
nvmlDeviceGetTopologyCommonAncestor 0 1 = 0 20
nvmlDeviceGetP2PStatus 0 1 0 = 0 0
nvmlDeviceGetP2PStatus 0 1 1 = 0 3
nvmlDeviceGetP2PStatus 0 1 2 = 0 0
nvmlDeviceGetP2PStatus 1 0 0 = 0 1
nvmlDeviceGetP2PStatus 1 0 1 = 0 6
nvmlDeviceGetP2PStatus 1 0 2 = 0 5
"""

MIG_INSTANCES = (
    MigInstance(
        uuid="MIG-aaaa",
        parent_uuid="GPU-00000000",
        profile="3g.20gb",
        profile_id=9,
        placement=MigPlacement(start=4, size=4),
        gpu_instance=2,
        compute_instance=0,
        memory_mib=19968,
        attributes=MigAttributes(
            multiprocessors=42,
            copy_engines=3,
            decoders=2,
            encoders=0,
            jpeg_engines=1,
            ofa_engines=4,
            gpu_instance_slices=3,
            compute_instance_slices=2,
            memory_mib=19968,
        ),
    ),
    MigInstance(uuid="MIG-bbbb", parent_uuid="GPU-00000000", profile="1c.3g.20gb+me"),
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
        serial=f"165432{index}",
        vbios="92.00.45.00.05",
        module_id=index + 1,
        board_id=0x90600 + index,
        numa_affinity=(0, index + 2, 9, 10),
        memory_numa_node=index + 2,
        cpu_affinity=CpuSet.of((0, 1, 2, 64, 127, 128)),
        pcie=PcieLink(generation=1, width=16, max_generation=4, max_width=16),
        persistence=True,
        virtualization=Virtualization.PASSTHROUGH,
        ecc=True,
        ecc_pending=False,
        ecc_errors=EccErrors(volatile=3, aggregate=5_000_000_000),
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
        c2c=C2c(is_enabled=True, links=2, speed_mbps=44712),
        nvlink_count=3,
        is_over_sram_threshold=True,
        recovery_action=4,
        throttle_reasons=68,
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
            peer_link=0,
            speed_mbps=25781,
            recoveries=2,
        ),
        NvLink(gpu=gpu, link=1, is_active=False, version=3),
        NvLink(gpu=gpu, link=3, is_active=True, version=3, peer_kind=PeerKind.SWITCH),
    )


READING = NvmlReading(
    driver_version="580.95.05",
    nvml_version="13.580.95.05",
    cuda_version=(12, 4),
    confidential_compute=ConfidentialCompute(is_enabled=True, is_dev_tools=False),
    gpus=(
        _gpu(0, Mig(is_enabled=True, is_pending=False, max_instances=7, instances=MIG_INSTANCES)),
        _gpu(1, Mig(is_enabled=False, is_pending=True)),
    ),
    nvlinks=(*_links(0), *_links(1)),
    pairs=(
        ReportedPair(
            a="GPU0",
            b="GPU1",
            closeness=Closeness.PXB,
            forward=PeerAccess(
                read=P2pStatus.OK,
                write=P2pStatus.TOPOLOGY_NOT_SUPPORTED,
                nvlink=P2pStatus.OK,
            ),
            backward=PeerAccess(
                read=P2pStatus.CHIPSET_NOT_SUPPORTED,
                nvlink=P2pStatus.NOT_SUPPORTED,
            ),
        ),
    ),
)
