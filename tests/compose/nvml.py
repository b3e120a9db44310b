"""What the NVML library answers on a composed machine, one line an answer.

Names and values are those of nvml.h; what is not listed answers 3, NOT_SUPPORTED.
"""

from collections.abc import Iterator, Mapping

from agent.model.gpu import FabricState, Gpu
from agent.model.nvlink import NvLink, PeerKind, ReportedPair
from tests.compose.machine import Machine

MIB = 1024 * 1024
NVLINK_SPEED_FIELD = 164
"""NVML_FI_DEV_NVLINK_GET_SPEED, scope is the link; MB/s."""

RECOVERY_FIELD = 230
"""NVML_FI_DEV_GET_GPU_RECOVERY_ACTION."""

P2P_NVLINK = 2
"""NVML_P2P_CAPS_INDEX_NVLINK."""

P2P_OK, P2P_NOT_SUPPORTED = 0, 5
"""NVML_P2P_STATUS_*."""

_FABRIC: Mapping[FabricState, int] = {
    state: value for value, state in enumerate(FabricState)
}  # nvmlGpuFabricState_t counts in this order
_PEER = {PeerKind.GPU: 0, PeerKind.SWITCH: 2, PeerKind.CPU: 1}
"""nvmlIntNvLinkDeviceType_t: GPU 0, IBMNPU 1, SWITCH 2."""


def nvml_text(machine: Machine) -> str:
    """Return the whole file."""
    return "\n".join(_lines(machine)) + "\n"


def _lines(machine: Machine) -> Iterator[str]:
    snapshot = machine.snapshot
    assert snapshot.cuda_version is not None
    major, minor = snapshot.cuda_version
    yield f"# {machine.shape}: written by `python -m tests.compose`"
    yield answer("nvmlSystemGetDriverVersion", (), snapshot.driver_version)
    yield answer("nvmlSystemGetNVMLVersion", (), snapshot.nvml_version)
    yield answer("nvmlSystemGetCudaDriverVersion_v2", (), major * 1000 + minor * 10)
    yield answer("nvmlDeviceGetCount_v2", (), len(snapshot.gpus))
    for gpu in snapshot.gpus:
        yield ""
        yield from _gpu(gpu, machine)
        for link in snapshot.nvlinks or ():
            if link.gpu == gpu.index:
                yield from _nvlink(link)
    yield ""
    for pair in snapshot.pairs:
        yield from _pair(pair)


def answer(function: str, arguments: tuple[int, ...], *values: object) -> str:
    """Return the line of a call that succeeds."""
    call = " ".join([function, *map(str, arguments)])
    return f"{call} = 0 {' | '.join(map(str, values))}"


def _gpu(gpu: Gpu, machine: Machine) -> Iterator[str]:
    assert gpu.pci is not None
    assert gpu.memory_mib is not None
    assert gpu.compute_capability is not None
    at = (gpu.index,)
    ids, total = machine.gpu_ids, gpu.memory_mib * MIB
    used = 512 * MIB
    yield answer("nvmlDeviceGetUUID", at, gpu.uuid)
    yield answer("nvmlDeviceGetName", at, gpu.product)
    bus = f"{gpu.pci.domain:08X}:{gpu.pci.bus:02X}:{gpu.pci.device:02X}.{gpu.pci.function:X}"
    device = f"0x{ids.device.upper()}{ids.vendor.upper()}"
    yield answer("nvmlDeviceGetPciInfo_v3", at, bus, device)
    yield answer("nvmlDeviceGetMinorNumber", at, gpu.minor)
    yield answer("nvmlDeviceGetMemoryInfo", at, total, total - used, used)
    yield answer("nvmlDeviceGetCudaComputeCapability", at, *gpu.compute_capability)
    yield answer("nvmlDeviceGetArchitecture", at, machine.nvml_architecture)
    yield answer("nvmlDeviceGetPersistenceMode", at, int(bool(gpu.persistence)))
    yield answer("nvmlDeviceGetEccMode", at, int(bool(gpu.ecc)), int(bool(gpu.ecc)))
    if gpu.mig is not None:
        is_pending = int(bool(gpu.mig.is_pending))
        yield answer("nvmlDeviceGetMigMode", at, int(gpu.mig.is_enabled), is_pending)
    if gpu.pcie is not None:
        yield answer("nvmlDeviceGetCurrPcieLinkGeneration", at, gpu.pcie.generation)
        yield answer("nvmlDeviceGetCurrPcieLinkWidth", at, gpu.pcie.width)
        yield answer("nvmlDeviceGetMaxPcieLinkGeneration", at, gpu.pcie.max_generation)
        yield answer("nvmlDeviceGetMaxPcieLinkWidth", at, gpu.pcie.max_width)
    yield answer("nvmlDeviceGetCpuAffinity", at, gpu.cpu_affinity)
    yield from _health(gpu)


def _health(gpu: Gpu) -> Iterator[str]:
    at = (gpu.index,)
    if gpu.fabric is not None:
        cluster = gpu.fabric.cluster_uuid or "00000000-0000-0000-0000-000000000000"
        yield answer(
            "nvmlDeviceGetGpuFabricInfoV",
            at,
            _FABRIC[gpu.fabric.state],
            gpu.fabric.status,
            cluster,
            gpu.fabric.clique_id,
            gpu.fabric.health_mask,
        )
    if (rows := gpu.remapped_rows) is not None:
        flags = int(rows.is_pending), int(rows.has_failed)
        yield answer("nvmlDeviceGetRemappedRows", at, rows.correctable, rows.uncorrectable, *flags)
    if gpu.recovery_action is not None:
        yield answer("nvmlDeviceGetFieldValue", (gpu.index, RECOVERY_FIELD), gpu.recovery_action)


_VERSION = {1: 1, 2: 2, 3: 4, 4: 6, 5: 7}
"""NVLink generation to ``nvmlNvlinkVersion_t``, which also counts 2.2 and 3.1."""


def _nvlink(link: NvLink) -> Iterator[str]:
    assert link.peer is not None
    assert link.peer_kind is not None
    at = (link.gpu, link.link)
    peer = link.peer
    bus = f"{peer.domain:08X}:{peer.bus:02X}:{peer.device:02X}.{peer.function:X}"
    yield answer("nvmlDeviceGetNvLinkState", at, int(bool(link.is_active)))
    assert link.version is not None
    yield answer("nvmlDeviceGetNvLinkVersion", at, _VERSION[link.version])
    yield answer("nvmlDeviceGetNvLinkRemotePciInfo_v2", at, bus)
    yield answer("nvmlDeviceGetNvLinkRemoteDeviceType", at, _PEER[link.peer_kind])
    speed = (link.gpu, NVLINK_SPEED_FIELD, link.link)
    yield answer("nvmlDeviceGetFieldValue", speed, link.speed_mbps)


def _pair(pair: ReportedPair) -> Iterator[str]:
    assert pair.closeness is not None
    a, b = int(pair.a.removeprefix("GPU")), int(pair.b.removeprefix("GPU"))
    status = P2P_OK if pair.p2p_nvlink else P2P_NOT_SUPPORTED
    for one, other in ((a, b), (b, a)):
        level = int(pair.closeness)
        yield answer("nvmlDeviceGetTopologyCommonAncestor", (one, other), level)
        yield answer("nvmlDeviceGetP2PStatus", (one, other, P2P_NVLINK), status)
