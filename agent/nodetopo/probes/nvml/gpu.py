"""One GPU in NVML: lasting facts, and facts that can change while the driver runs.

Whole readings and refreshes use the same functions, so that they agree; only whole readings sample
facts that change every second.
"""

import ctypes
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any, TypeVar

from msgspec.structs import replace

from nodetopo.model.gpu import (
    FIRST_WITH_ROW_REMAPPING,
    C2c,
    EccErrors,
    Fabric,
    Gpu,
    Mig,
    MigInstance,
)
from nodetopo.model.nvlink import PeerAccess, ReportedPair
from nodetopo.model.pci import PcieLink
from nodetopo.probes.nvml import values
from nodetopo.probes.nvml.session import Caller, Session

AFFINITY_WORDS = 128
"""64-bit words of the CPU mask: 8192 CPUs, the most that Linux builds for x86 take (NR_CPUS)."""

NODE_WORDS = 16
"""64-bit words of the mask of NUMA nodes: 1024, the most that Linux takes (NODES_SHIFT 10)."""

MAX_C2C_LINKS = 64
"""Upper bound on the chip-to-chip links read; Grace Hopper has 10, Grace Blackwell 5 (its
``nvidia-smi c2c``)."""

MAX_MIG_DEVICES = 64
"""Upper bound on the slots read; today's GPUs have 7 (NVIDIA MIG User Guide)."""

_UNCORRECTED = 1  # nvmlMemoryErrorType_t
_VOLATILE, _AGGREGATE = 0, 1  # nvmlEccCounterType_t
_SCOPE_NODE = 0  # nvmlAffinityScope_t
_WRONG_VERSION = 25  # NVML_ERROR_ARGUMENT_VERSION_MISMATCH
_READ, _WRITE, _NVLINK = 0, 1, 2
"""``nvmlGpuP2PCapsIndex_t``. Our own numbers: pynvml's name for the first is a tuple."""

T = TypeVar("T")


def gpu_uuid(caller: Caller, handle: Any) -> str | None:
    """Read ``nvmlDeviceGetUUID`` of a GPU or a MIG device."""
    return caller.get("nvmlDeviceGetUUID", handle, convert=values.text)


def read_lasting(caller: Caller, index: int, handle: Any) -> Gpu:
    """Read the facts that last until the GPU is reset or the driver is reloaded.

    Only the pending ECC mode is a setting that an administrator can change meanwhile. Each field is
    from the call named next to it; refused facts are ``None``. Affinity to memory has scope NODE,
    as in ``nvidia-smi topo -m``.
    """

    def get(call: str, *args: Any, convert: Any = values.text) -> Any:
        return caller.get(call, handle, *args, convert=convert)

    uuid = gpu_uuid(caller, handle)
    ecc, ecc_pending = get("nvmlDeviceGetEccMode", convert=values.flags) or (None, None)
    return Gpu(
        index=index,
        uuid=uuid,
        minor=get("nvmlDeviceGetMinorNumber", convert=values.small),
        pci=get("nvmlDeviceGetPciInfo_v3", convert=values.pci_address),
        product=get("nvmlDeviceGetName"),
        architecture=get("nvmlDeviceGetArchitecture", convert=values.architecture),
        compute_capability=get("nvmlDeviceGetCudaComputeCapability", convert=values.capability),
        memory_mib=get("nvmlDeviceGetMemoryInfo", convert=values.memory_mib),
        serial=get("nvmlDeviceGetSerial"),
        vbios=get("nvmlDeviceGetVbiosVersion"),
        # 0 is documented for a GPU without a baseboard. The argument keeps
        # pynvml from writing into one default that it shares between calls.
        module_id=get("nvmlDeviceGetModuleId", ctypes.c_uint(), convert=values.positive),
        board_id=get("nvmlDeviceGetBoardId", convert=values.board),
        numa_affinity=get(
            "nvmlDeviceGetMemoryAffinity", NODE_WORDS, _SCOPE_NODE, convert=values.node_set
        ),
        memory_numa_node=get("nvmlDeviceGetNumaNodeId", convert=values.numa_node),
        cpu_affinity=get("nvmlDeviceGetCpuAffinity", AFFINITY_WORDS, convert=values.cpu_set),
        pcie=_unless_empty(
            PcieLink(
                max_generation=get("nvmlDeviceGetMaxPcieLinkGeneration", convert=values.positive),
                max_width=get("nvmlDeviceGetMaxPcieLinkWidth", convert=values.positive),
            ),
            PcieLink(),
        ),
        virtualization=get("nvmlDeviceGetVirtualizationMode", convert=values.virtualization),
        ecc=ecc,
        ecc_pending=ecc_pending,
        c2c=_c2c(caller, handle),
    )


def with_changing(caller: Caller, handle: Any, gpu: Gpu) -> Gpu:
    """Return *gpu* with its changing facts reread, except for MIG.

    Persistence mode, the PCIe link's present speed, the fabric, and the health of memory and GPU,
    each from the call named next to it. A new recovery action keeps its number. The constant number
    of NVLinks comes at no cost with the call for the recovery action.
    """

    def get(call: str, *args: Any, convert: Any) -> Any:
        return caller.get(call, handle, *args, convert=convert)

    def uncorrected(counter: int) -> Any:
        return get("nvmlDeviceGetTotalEccErrors", _UNCORRECTED, counter, convert=values.count)

    nvml = caller.nvml
    numbers = [nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, nvml.NVML_FI_DEV_NVLINK_LINK_COUNT]
    recovery_action, nvlink_count = map(
        caller.number, caller.fields(handle, [(field, 0) for field in numbers])
    )
    if nvlink_count is not None and nvlink_count > nvml.NVML_NVLINK_MAX_LINKS:
        nvlink_count = None
    capability, retires = gpu.compute_capability, "nvmlDeviceGetRetiredPagesPendingStatus"
    is_older = None if capability is None else capability < FIRST_WITH_ROW_REMAPPING
    return replace(
        gpu,
        pcie=_unless_empty(
            replace(
                gpu.pcie or PcieLink(),
                generation=get("nvmlDeviceGetCurrPcieLinkGeneration", convert=values.positive),
                width=get("nvmlDeviceGetCurrPcieLinkWidth", convert=values.positive),
            ),
            PcieLink(),
        ),
        persistence=get("nvmlDeviceGetPersistenceMode", convert=values.flag),
        ecc_errors=_unless_empty(
            EccErrors(volatile=uncorrected(_VOLATILE), aggregate=uncorrected(_AGGREGATE)),
            EccErrors(),
        ),
        fabric=_fabric(caller, handle),
        remapped_rows=get("nvmlDeviceGetRemappedRows", convert=values.remapped_rows),
        # Calls for older GPUs only, and for newer ones only; both if unknown.
        retired_pages_pending=None if is_older is False else get(retires, convert=values.flag),
        is_over_sram_threshold=None if is_older else _sram_threshold(caller, handle),
        recovery_action=recovery_action,
        nvlink_count=nvlink_count,
    )


def with_sample(caller: Caller, handle: Any, gpu: Gpu) -> Gpu:
    """Return *gpu* with facts that change every second; only whole readings sample them.

    From ``nvmlDeviceGetCurrentClocksEventReasons``, or if the library lacks it, from the same call
    by its older name, ``nvmlDeviceGetCurrentClocksThrottleReasons``.
    """
    reasons = caller.call("nvmlDeviceGetCurrentClocksEventReasons", handle, convert=values.count)
    if reasons.code == caller.nvml.NVML_ERROR_FUNCTION_NOT_FOUND:
        older = "nvmlDeviceGetCurrentClocksThrottleReasons"
        reasons = caller.call(older, handle, convert=values.count)
    return replace(gpu, throttle_reasons=reasons.value)


def with_mig(caller: Caller, handle: Any, gpu: Gpu) -> Gpu:
    """Return *gpu* with its MIG state: ``nvmlDeviceGetMigMode``, now and after the next reset.

    A partitioned GPU also has its number of slots (``nvmlDeviceGetMaxMigDeviceCount``, which
    answers 0 while MIG is off) and the device in each.
    """
    mig = _mig_modes(caller, handle)
    if mig is None or not mig.is_enabled:
        return replace(gpu, mig=mig)
    slots = caller.get("nvmlDeviceGetMaxMigDeviceCount", handle, convert=values.positive)
    instances = tuple(
        _mig_instance(caller, handle, device, MigInstance(uuid=uuid, parent_uuid=gpu.uuid))
        for device, uuid in _mig_devices(caller, handle, slots)
    )
    return replace(gpu, mig=replace(mig, max_instances=slots, instances=instances))


def with_refreshed_mig(caller: Caller, handle: Any, gpu: Gpu) -> Gpu | None:
    """Return *gpu* with its pending MIG mode read again; ``None`` if more than that changed.

    A MIG device keeps its UUID and its composition for its lifetime, so the UUIDs by slot show
    whether the devices are still the same.
    """
    mig, known = _mig_modes(caller, handle), gpu.mig
    if mig is None or known is None:
        return gpu if mig is known else None
    if mig.is_enabled is not known.is_enabled:
        return None
    devices = _mig_devices(caller, handle, known.max_instances) if mig.is_enabled else ()
    if [uuid for _, uuid in devices] != [instance.uuid for instance in known.instances]:
        return None
    return replace(gpu, mig=replace(known, is_pending=mig.is_pending))


def read_pairs(session: Session, handles: Mapping[int, Any]) -> tuple[ReportedPair, ...]:
    """Return NVML's facts on each pair of the GPUs in *handles*, by index.

    Closeness from ``nvmlDeviceGetTopologyCommonAncestor``, peer access both ways from
    ``nvmlDeviceGetP2PStatus``. A pair without known facts is left out.
    """
    pairs = []
    for a, b in combinations(sorted(handles), 2):
        caller, ends = session.caller(f"GPU{a} GPU{b}"), (handles[a], handles[b])
        unknown = ReportedPair(a=f"GPU{a}", b=f"GPU{b}")
        level = "nvmlDeviceGetTopologyCommonAncestor"
        pair = replace(
            unknown,
            closeness=caller.get(level, *ends, convert=values.closeness),
            forward=_peer_access(caller, ends),
            backward=_peer_access(caller, ends[::-1]),
        )
        if pair != unknown:
            pairs.append(pair)
    return tuple(pairs)


def _peer_access(caller: Caller, handles: tuple[Any, Any]) -> PeerAccess | None:
    """Read ``nvmlDeviceGetP2PStatus`` of three capabilities; None if all are unknown."""

    def get(capability: int) -> Any:
        call = "nvmlDeviceGetP2PStatus"
        return caller.get(call, *handles, capability, convert=values.p2p_status)

    access = PeerAccess(read=get(_READ), write=get(_WRITE), nvlink=get(_NVLINK))
    return _unless_empty(access, PeerAccess())


def _unless_empty(value: T, empty: T) -> T | None:
    return None if value == empty else value


def _sram_threshold(caller: Caller, handle: Any) -> bool | None:
    """Read ``nvmlDeviceGetSramEccErrorStatus``.

    nvml.h asks for root; the open kernel module does not (its control NV2080_CTRL_CMD_ECC_GET_…
    is not privileged). A driver that insists gives no answer, as a library without the call.
    """
    status = caller.nvml.c_nvmlEccSramErrorStatus_v1_t()
    is_over: bool | None = caller.call(
        "nvmlDeviceGetSramEccErrorStatus",
        handle,
        ctypes.byref(status),
        convert=lambda _: values.sram_threshold(status),
        absent=(_WRONG_VERSION, caller.nvml.NVML_ERROR_NO_PERMISSION),
    ).value
    return is_over


def _fabric(caller: Caller, handle: Any) -> Fabric | None:
    """Read ``nvmlDeviceGetGpuFabricInfoV``, on older libraries ``nvmlDeviceGetGpuFabricInfo``.

    The first version of the struct is tried first: every driver with the call has accepted it so
    far, although nvml.h announces a replacement.
    """
    nvml = caller.nvml
    for call, struct in (
        ("nvmlDeviceGetGpuFabricInfoV", nvml.c_nvmlGpuFabricInfo_v2_t),
        ("nvmlDeviceGetGpuFabricInfoV", nvml.c_nvmlGpuFabricInfo_v3_t),
        ("nvmlDeviceGetGpuFabricInfo", nvml.c_nvmlGpuFabricInfo_t),
    ):
        info = struct()
        reply = caller.call(
            call,
            handle,
            ctypes.byref(info),
            convert=lambda _: values.fabric(info),  # noqa: B023 - converted before the next
            absent=(_WRONG_VERSION,),
        )
        if reply.code not in (_WRONG_VERSION, nvml.NVML_ERROR_FUNCTION_NOT_FOUND):
            fabric: Fabric | None = reply.value
            return fabric
    return None


def _c2c(caller: Caller, handle: Any) -> C2c | None:
    """Read ``nvmlDeviceGetC2cModeInfoV``, and where it is on, the fields of its links."""
    is_enabled = caller.get(
        "nvmlDeviceGetC2cModeInfoV", handle, convert=lambda info: values.flag(info.isC2cEnabled)
    )
    if not is_enabled:
        return None if is_enabled is None else C2c(is_enabled=False)
    count = caller.field(handle, caller.nvml.NVML_FI_DEV_C2C_LINK_COUNT)
    speed = caller.nvml.NVML_FI_DEV_C2C_LINK_GET_MAX_BW
    wanted = [(speed, link) for link in range(min(count or 0, MAX_C2C_LINKS))]
    speeds = map(caller.number, caller.fields(handle, wanted))
    # A link that is down has no speed, or 0.
    return C2c(is_enabled=True, links=count, speed_mbps=max(filter(None, speeds), default=None))


def _mig_modes(caller: Caller, handle: Any) -> Mig | None:
    modes = caller.get("nvmlDeviceGetMigMode", handle, convert=values.flags)
    return modes and Mig(is_enabled=modes[0], is_pending=modes[0] != modes[1])


def _mig_devices(caller: Caller, handle: Any, slots: int | None) -> Iterator[tuple[Any, str]]:
    """Yield each MIG device and its UUID; an empty slot is NOT_FOUND."""
    for slot in range(min(slots or 0, MAX_MIG_DEVICES)):
        device = caller.call(
            "nvmlDeviceGetMigDeviceHandleByIndex",
            handle,
            slot,
            absent=(caller.nvml.NVML_ERROR_NOT_FOUND,),
        ).value
        uuid = device and gpu_uuid(caller, device)
        if uuid:
            yield device, uuid


def _mig_instance(caller: Caller, parent: Any, device: Any, instance: MigInstance) -> MigInstance:
    """Read one MIG device.

    Its profile is the end of ``nvmlDeviceGetName``; its GPU instance's number and place come
    from ``nvmlGpuInstanceGetInfo`` of the handle that ``nvmlDeviceGetGpuInstanceById`` gives
    to the privileged.
    """

    def get(call: str, convert: Any) -> Any:
        return caller.get(call, device, convert=convert)

    gpu_instance = get("nvmlDeviceGetGpuInstanceId", values.small)
    handle, place = None, None
    if gpu_instance is not None:
        handle = caller.get("nvmlDeviceGetGpuInstanceById", parent, gpu_instance)
    if handle is not None:
        place = caller.get("nvmlGpuInstanceGetInfo", handle, convert=values.mig_place)
    profile_id, placement = place or (None, None)
    return replace(
        instance,
        profile=get("nvmlDeviceGetName", values.mig_profile),
        profile_id=profile_id,
        placement=placement,
        gpu_instance=gpu_instance,
        compute_instance=get("nvmlDeviceGetComputeInstanceId", values.small),
        memory_mib=get("nvmlDeviceGetMemoryInfo", values.memory_mib),
        attributes=get("nvmlDeviceGetAttributes_v2", values.mig_attributes),
    )
