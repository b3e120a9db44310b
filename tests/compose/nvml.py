"""What the NVML library answers on a composed machine, one line an answer.

Names and values are those of nvml.h; what a snapshot does not say is not listed, and so
answers 3, NOT_SUPPORTED.
"""

from collections.abc import Iterator, Mapping

from nodetopo.model.gpu import FabricState, Gpu, MigInstance, Virtualization
from nodetopo.model.numa import CpuSet
from nodetopo.model.nvlink import NvLink, P2pStatus, PeerAccess, PeerKind, ReportedPair
from nodetopo.model.pci import PciAddress
from nodetopo.model.snapshot import Snapshot
from nodetopo.probes.nvml.values import ARCHITECTURES
from tests.compose.machine import Machine
from tests.compose.sysfs import head

MIB = 1024 * 1024
USED_MIB = 512
"""Memory that the driver itself takes; no reader looks at it."""

FAR_LINK, SPEED, STATE = 146, 164, 165
"""NVML_FI_DEV_NVLINK_REMOTE_NVLINK_ID, …_GET_SPEED (MB/s), …_GET_STATE; the scope is the link."""

C2C_LINKS, C2C_SPEED = 170, 172
"""NVML_FI_DEV_C2C_LINK_COUNT, …_C2C_LINK_GET_MAX_BW (MB/s; the scope is the link)."""

RECOVERY, LINK_COUNT = 230, 91
"""NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, NVML_FI_DEV_NVLINK_LINK_COUNT."""

SRAM_COUNTS = 11
"""Counts in an ``nvmlEccSramErrorStatus_v1_t``, before the threshold."""

RECOVERIES, FAILED_RECOVERIES = 162, 214
"""NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY, and what counts from NVLink 5 on,
NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS; the scope is the link."""

NOT_FOUND, UNKNOWN_ERROR, P2P_UNKNOWN = 6, 999, 6
"""NVML_ERROR_NOT_FOUND, NVML_ERROR_UNKNOWN, NVML_P2P_STATUS_UNKNOWN."""

HIDDEN = "FFFFFFFF:FF:FF.F"
"""The address behind which drivers hide NVSwitches."""

_ARCHITECTURE = {name: number for number, name in ARCHITECTURES.items()}
_FABRIC: Mapping[FabricState, int] = {
    state: value for value, state in enumerate(FabricState)
}  # nvmlGpuFabricState_t counts in this order
_VIRTUALIZATION = {mode: value for value, mode in enumerate(Virtualization)}
_P2P = {status: value for value, status in enumerate(P2pStatus)}
_PEER = {PeerKind.GPU: 0, PeerKind.SWITCH: 2, PeerKind.CPU: 1}
"""nvmlIntNvLinkDeviceType_t: GPU 0, IBMNPU 1, SWITCH 2."""

_VERSION = {1: 1, 2: 2, 3: 4, 4: 6, 5: 7, 6: 8}
"""NVLink generation to ``nvmlNvlinkVersion_t``, which also counts 2.2 and 3.1."""

At = tuple[int | str, ...]


def nvml_text(machine: Machine) -> str:
    """Return the whole file."""
    return "\n".join(_lines(machine)) + "\n"


def _lines(machine: Machine) -> Iterator[str]:
    snapshot = machine.snapshot
    yield from head(machine).splitlines()
    yield from _system(snapshot)
    for gpu in snapshot.gpus:
        yield ""
        yield from _gpu(gpu)
        for link in snapshot.nvlinks or ():
            if link.gpu == gpu.index:
                yield from _nvlink(link)
    yield ""
    for pair in snapshot.pairs:
        yield from _pair(pair)


def answer(function: str, arguments: At, *values: object, code: int = 0) -> str:
    """Return the line of a call, which succeeds unless *code* says otherwise."""
    call = " ".join([function, *map(str, arguments)])
    return f"{call} = {code} {' | '.join(map(str, values))}".rstrip()


def _known(function: str, arguments: At, value: object) -> Iterator[str]:
    """Yield the line of a call with one value, if there is one."""
    if value is not None:
        yield answer(function, arguments, int(value) if isinstance(value, bool) else value)


def _system(snapshot: Snapshot) -> Iterator[str]:
    yield from _known("nvmlSystemGetDriverVersion", (), snapshot.driver_version)
    yield from _known("nvmlSystemGetNVMLVersion", (), snapshot.nvml_version)
    if snapshot.cuda_version is not None:
        major, minor = snapshot.cuda_version
        yield answer("nvmlSystemGetCudaDriverVersion_v2", (), major * 1000 + minor * 10)
    if (state := snapshot.confidential_compute) is not None:
        production = 2  # NVML_CC_SYSTEM_ENVIRONMENT_PROD
        flags = int(state.is_enabled), int(bool(state.is_dev_tools))
        yield answer("nvmlSystemGetConfComputeState", (), production, *flags)
    yield answer("nvmlDeviceGetCount_v2", (), len(snapshot.gpus))


def _gpu(gpu: Gpu) -> Iterator[str]:
    at = (gpu.index,)
    yield from _known("nvmlDeviceGetUUID", at, gpu.uuid)
    yield from _known("nvmlDeviceGetName", at, gpu.product)
    if gpu.pci is not None:
        assert gpu.function is not None
        assert gpu.function.device is not None
        assert gpu.function.vendor is not None
        device = f"0x{gpu.function.device.upper()}{gpu.function.vendor.upper()}"
        yield answer("nvmlDeviceGetPciInfo_v3", at, _bus(gpu.pci), device)
    yield from _known("nvmlDeviceGetMinorNumber", at, gpu.minor)
    yield from _memory(at, gpu.memory_mib)
    if gpu.compute_capability is not None:
        yield answer("nvmlDeviceGetCudaComputeCapability", at, *gpu.compute_capability)
    if gpu.architecture is not None:
        yield answer("nvmlDeviceGetArchitecture", at, _ARCHITECTURE[gpu.architecture])
    yield from _board(gpu)
    yield from _pcie(gpu)
    yield from _settings(gpu)
    yield from _health(gpu)
    yield from _c2c(gpu)
    yield from _mig(gpu)


def _bus(address: PciAddress) -> str:
    domain, bus = f"{address.domain:08X}", f"{address.bus:02X}"
    return f"{domain}:{bus}:{address.device:02X}.{address.function:X}"


def _memory(at: At, mib: int | None) -> Iterator[str]:
    if mib is not None:
        used = min(USED_MIB, mib) * MIB
        yield answer("nvmlDeviceGetMemoryInfo", at, mib * MIB, mib * MIB - used, used)


def _board(gpu: Gpu) -> Iterator[str]:
    at = (gpu.index,)
    yield from _known("nvmlDeviceGetSerial", at, gpu.serial)
    yield from _known("nvmlDeviceGetVbiosVersion", at, gpu.vbios)
    yield from _known("nvmlDeviceGetModuleId", at, gpu.module_id)
    yield from _known("nvmlDeviceGetBoardId", at, gpu.board_id)
    yield from _known("nvmlDeviceGetNumaNodeId", at, gpu.memory_numa_node)
    yield from _known("nvmlDeviceGetCpuAffinity", at, gpu.cpu_affinity)
    if gpu.numa_affinity:
        nodes = CpuSet.of(gpu.numa_affinity)  # the kernel writes both kinds of list alike
        yield answer("nvmlDeviceGetMemoryAffinity", (gpu.index, 0), nodes)


def _pcie(gpu: Gpu) -> Iterator[str]:
    at = (gpu.index,)
    if (link := gpu.pcie) is not None:
        yield from _known("nvmlDeviceGetCurrPcieLinkGeneration", at, link.generation)
        yield from _known("nvmlDeviceGetCurrPcieLinkWidth", at, link.width)
        yield from _known("nvmlDeviceGetMaxPcieLinkGeneration", at, link.max_generation)
        yield from _known("nvmlDeviceGetMaxPcieLinkWidth", at, link.max_width)


def _settings(gpu: Gpu) -> Iterator[str]:
    at = (gpu.index,)
    yield from _known("nvmlDeviceGetPersistenceMode", at, gpu.persistence)
    if gpu.virtualization is not None:
        yield answer("nvmlDeviceGetVirtualizationMode", at, _VIRTUALIZATION[gpu.virtualization])
    if gpu.ecc is not None:  # one call tells both, or neither
        pending = gpu.ecc if gpu.ecc_pending is None else gpu.ecc_pending
        yield answer("nvmlDeviceGetEccMode", at, int(gpu.ecc), int(pending))


def _health(gpu: Gpu) -> Iterator[str]:
    at = (gpu.index,)
    if gpu.fabric is not None:
        yield answer(
            "nvmlDeviceGetGpuFabricInfoV",
            at,
            _FABRIC[gpu.fabric.state],
            gpu.fabric.status or 0,
            gpu.fabric.cluster_uuid or "00000000-0000-0000-0000-000000000000",
            gpu.fabric.clique_id or 0,
            gpu.fabric.health_mask or 0,
        )
    if (rows := gpu.remapped_rows) is not None:
        flags = int(rows.is_pending), int(rows.has_failed)
        yield answer("nvmlDeviceGetRemappedRows", at, rows.correctable, rows.uncorrectable, *flags)
    if (errors := gpu.ecc_errors) is not None:
        yield from _known("nvmlDeviceGetTotalEccErrors", (gpu.index, 1, 0), errors.volatile)
        yield from _known("nvmlDeviceGetTotalEccErrors", (gpu.index, 1, 1), errors.aggregate)
    yield from _known("nvmlDeviceGetRetiredPagesPendingStatus", at, gpu.retired_pages_pending)
    if gpu.is_over_sram_threshold is not None:
        counts = [0] * SRAM_COUNTS  # which no reader looks at
        yield answer(
            "nvmlDeviceGetSramEccErrorStatus", at, *counts, int(gpu.is_over_sram_threshold)
        )
    yield from _known("nvmlDeviceGetFieldValue", (gpu.index, RECOVERY), gpu.recovery_action)
    yield from _known("nvmlDeviceGetFieldValue", (gpu.index, LINK_COUNT), gpu.nvlink_count)
    yield from _known("nvmlDeviceGetCurrentClocksEventReasons", at, gpu.throttle_reasons)


def _c2c(gpu: Gpu) -> Iterator[str]:
    if gpu.c2c is not None:
        yield answer("nvmlDeviceGetC2cModeInfoV", (gpu.index,), int(gpu.c2c.is_enabled))
        yield from _known("nvmlDeviceGetFieldValue", (gpu.index, C2C_LINKS), gpu.c2c.links)
        for link in range(gpu.c2c.links or 0):
            at = (gpu.index, C2C_SPEED, link)
            yield from _known("nvmlDeviceGetFieldValue", at, gpu.c2c.speed_mbps)


def _mig(gpu: Gpu) -> Iterator[str]:
    at = (gpu.index,)
    if gpu.mig is None:
        return
    pending = gpu.mig.is_enabled is not bool(gpu.mig.is_pending)
    yield answer("nvmlDeviceGetMigMode", at, int(gpu.mig.is_enabled), int(pending))
    if not gpu.mig.is_enabled:
        return
    slots = gpu.mig.max_instances or len(gpu.mig.instances)
    yield answer("nvmlDeviceGetMaxMigDeviceCount", at, slots)
    for slot, instance in enumerate(gpu.mig.instances):
        yield answer("nvmlDeviceGetMigDeviceHandleByIndex", (gpu.index, slot))
        yield from _mig_device(gpu, f"{gpu.index}:{slot}", instance)
    for slot in range(len(gpu.mig.instances), slots):
        yield answer("nvmlDeviceGetMigDeviceHandleByIndex", (gpu.index, slot), code=NOT_FOUND)


def _mig_device(gpu: Gpu, name: str, instance: MigInstance) -> Iterator[str]:
    at = (name,)
    yield answer("nvmlDeviceGetUUID", at, instance.uuid)
    profile = "" if instance.profile is None else f" MIG {instance.profile}"
    yield answer("nvmlDeviceGetName", at, f"{gpu.product}{profile}")
    yield from _known("nvmlDeviceGetGpuInstanceId", at, instance.gpu_instance)
    yield from _known("nvmlDeviceGetComputeInstanceId", at, instance.compute_instance)
    yield from _memory(at, instance.memory_mib)
    if (has := instance.attributes) is not None:
        yield answer(
            "nvmlDeviceGetAttributes_v2",
            at,
            has.multiprocessors,
            has.copy_engines,
            has.decoders,
            has.encoders,
            has.jpeg_engines,
            has.ofa_engines,
            has.gpu_instance_slices,
            has.compute_instance_slices,
            has.memory_mib,
        )
    if (place := instance.placement) is not None:
        assert instance.gpu_instance is not None
        where = (gpu.index, instance.gpu_instance)
        yield answer("nvmlDeviceGetGpuInstanceById", where)
        yield answer("nvmlGpuInstanceGetInfo", where, instance.profile_id, place.start, place.size)


def _nvlink(link: NvLink) -> Iterator[str]:
    at = (link.gpu, link.link)
    if link.is_active is None:
        yield answer("nvmlDeviceGetNvLinkState", at, code=UNKNOWN_ERROR)
    yield from _known("nvmlDeviceGetNvLinkState", at, link.is_active)
    yield from _known("nvmlDeviceGetFieldValue", (link.gpu, STATE, link.link), link.is_active)
    if link.version is not None:
        yield answer("nvmlDeviceGetNvLinkVersion", at, _VERSION[link.version])
    if link.peer is not None or link.peer_kind is PeerKind.SWITCH:
        bus = HIDDEN if link.peer is None else _bus(link.peer)
        yield answer("nvmlDeviceGetNvLinkRemotePciInfo_v2", at, bus)
    if link.peer_kind is not None:
        yield answer("nvmlDeviceGetNvLinkRemoteDeviceType", at, _PEER[link.peer_kind])
    yield from _known("nvmlDeviceGetFieldValue", (link.gpu, FAR_LINK, link.link), link.peer_link)
    yield from _known("nvmlDeviceGetFieldValue", (link.gpu, SPEED, link.link), link.speed_mbps)
    recoveries = FAILED_RECOVERIES if (link.version or 0) >= 5 else RECOVERIES  # nvml.h
    yield from _known("nvmlDeviceGetFieldValue", (link.gpu, recoveries, link.link), link.recoveries)


def _pair(pair: ReportedPair) -> Iterator[str]:
    a, b = int(pair.a.removeprefix("GPU")), int(pair.b.removeprefix("GPU"))
    for one, other, access in ((a, b, pair.forward), (b, a, pair.backward)):
        level = None if pair.closeness is None else int(pair.closeness)
        yield from _known("nvmlDeviceGetTopologyCommonAncestor", (one, other), level)
        if access is not None:
            yield from _access(one, other, access)


def _access(one: int, other: int, access: PeerAccess) -> Iterator[str]:
    capabilities = (access.read, access.write, access.nvlink)  # nvmlGpuP2PCapsIndex_t
    for capability, status in enumerate(capabilities):
        number = P2P_UNKNOWN if status is None else _P2P[status]
        yield answer("nvmlDeviceGetP2PStatus", (one, other, capability), number)
