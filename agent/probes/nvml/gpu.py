"""One GPU, as NVML describes it: what stays while the driver runs, and what may change.

Both depths of a reading use the functions of this module, so that they agree; the sample is of
whole ones alone.
"""

import ctypes
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any, cast

from agent.model.gpu import C2c, EccErrors, Fabric, Gpu, Mig, MigInstance
from agent.model.nvlink import PeerAccess, ReportedPair
from agent.model.pci import PcieLink
from agent.probes.nvml import values
from agent.probes.nvml.session import Answer, Asker, Session

# Pairs of GPUs, as NVML tells of them.

_READ, _WRITE, _NVLINK = 0, 1, 2
"""``nvmlGpuP2PCapsIndex_t``. Our own numbers: pynvml's name for the first is a tuple."""


def pairs(session: Session, handles: Mapping[int, Any]) -> tuple[ReportedPair, ...]:
    """Return what NVML says of every two GPUs of *handles*, by index.

    Closeness from ``nvmlDeviceGetTopologyCommonAncestor``, peer access both ways from
    ``nvmlDeviceGetP2PStatus``. A pair of which nothing is known is left out.
    """
    found = (
        _pair(session.asker(f"GPU{a} GPU{b}"), (a, b), (handles[a], handles[b]))
        for a, b in combinations(sorted(handles), 2)
    )
    return tuple(pair for pair in found if pair is not None)


def _pair(asker: Asker, names: tuple[int, int], handles: tuple[Any, Any]) -> ReportedPair | None:
    level = "nvmlDeviceGetTopologyCommonAncestor"
    pair = ReportedPair(
        a=f"GPU{names[0]}",
        b=f"GPU{names[1]}",
        closeness=asker.ask(level, *handles, convert=values.closeness),
        forward=_access(asker, handles),
        backward=_access(asker, handles[::-1]),
    )
    return None if pair == ReportedPair(a=pair.a, b=pair.b) else pair


def _access(asker: Asker, handles: tuple[Any, Any]) -> PeerAccess | None:
    """Read ``nvmlDeviceGetP2PStatus`` of three capabilities; None if all are unknown."""

    def ask(capability: int) -> Any:
        call = "nvmlDeviceGetP2PStatus"
        return asker.ask(call, *handles, capability, convert=values.p2p_status)

    access = PeerAccess(read=ask(_READ), write=ask(_WRITE), nvlink=ask(_NVLINK))
    return None if access == PeerAccess() else access


AFFINITY_WORDS = 128
"""64-bit words of the CPU mask: 8192 CPUs, the most that Linux builds for x86 take (NR_CPUS)."""


NODE_WORDS = 16
"""64-bit words of the mask of NUMA nodes: 1024, the most that Linux takes (NODES_SHIFT 10)."""


MAX_C2C_LINKS = 64
"""Upper bound on the chip-to-chip links asked about; Grace Hopper has 10, Grace Blackwell 5 (its
``nvidia-smi c2c``)."""


_UNCORRECTED = 1  # nvmlMemoryErrorType_t


_VOLATILE, _AGGREGATE = 0, 1  # nvmlEccCounterType_t


_SCOPE_NODE = 0  # nvmlAffinityScope_t


_WRONG_VERSION = 25  # NVML_ERROR_ARGUMENT_VERSION_MISMATCH


def gpu_uuid(asker: Asker, handle: Any) -> str | None:
    """Read ``nvmlDeviceGetUUID`` of a GPU or a MIG device."""
    return asker.ask("nvmlDeviceGetUUID", handle, convert=values.text)


def lasting(asker: Asker, index: int, handle: Any) -> Gpu:
    """Read what stays the same until the GPU is reset or the driver loaded anew.

    The pending ECC mode alone is a setting that an administrator may change meanwhile. Each
    field is from the call named beside it; what NVML would not say is ``None``. Affinity to
    memory is that of scope NODE, which is what ``nvidia-smi topo -m`` prints.
    """

    def ask(call: str, *args: Any, convert: Any = values.text) -> Any:
        return asker.ask(call, handle, *args, convert=convert)

    uuid = gpu_uuid(asker, handle)
    ecc, ecc_pending = ask("nvmlDeviceGetEccMode", convert=_flags) or (None, None)
    return Gpu(
        index=index,
        uuid=uuid,
        minor=ask("nvmlDeviceGetMinorNumber", convert=values.small),
        pci=ask("nvmlDeviceGetPciInfo_v3", convert=values.pci_address),
        product=ask("nvmlDeviceGetName"),
        architecture=ask("nvmlDeviceGetArchitecture", convert=values.architecture),
        compute_capability=ask("nvmlDeviceGetCudaComputeCapability", convert=values.capability),
        memory_mib=ask("nvmlDeviceGetMemoryInfo", convert=values.memory_mib),
        serial=ask("nvmlDeviceGetSerial"),
        vbios=ask("nvmlDeviceGetVbiosVersion"),
        # 0 is what NVML documents for a GPU that sits on no baseboard. The argument keeps
        # pynvml from writing into one default that it shares between calls.
        module_id=ask("nvmlDeviceGetModuleId", ctypes.c_uint(), convert=values.positive),
        board_id=ask("nvmlDeviceGetBoardId", convert=values.board),
        numa_affinity=ask(
            "nvmlDeviceGetMemoryAffinity", NODE_WORDS, _SCOPE_NODE, convert=values.node_set
        ),
        memory_numa_node=ask("nvmlDeviceGetNumaNodeId", convert=values.numa_node),
        cpu_affinity=ask("nvmlDeviceGetCpuAffinity", AFFINITY_WORDS, convert=values.cpu_set),
        pcie=_pcie_most(asker, handle),
        virtualization=ask("nvmlDeviceGetVirtualizationMode", convert=values.virtualization),
        ecc=ecc,
        ecc_pending=ecc_pending,
        c2c=_c2c(asker, handle),
    )


def with_changing(asker: Asker, handle: Any, gpu: Gpu) -> Gpu:
    """Return *gpu* with what can change at any time read anew; MIG is apart from it.

    Persistence mode, the PCIe link's present speed, the fabric, and the health of memory and
    GPU, each from the call named beside it.
    """
    return replace(
        gpu,
        pcie=_pcie_now(asker, handle, gpu.pcie or PcieLink()),
        persistence=asker.ask("nvmlDeviceGetPersistenceMode", handle, convert=values.flag),
        ecc_errors=_ecc_errors(asker, handle),
        fabric=_fabric(asker, handle),
        remapped_rows=asker.ask("nvmlDeviceGetRemappedRows", handle, convert=values.remapped_rows),
        retired_pages_pending=asker.ask(
            "nvmlDeviceGetRetiredPagesPendingStatus", handle, convert=values.flag
        ),
        recovery_action=_recovery_action(asker, handle),
    )


def with_sample(asker: Asker, handle: Any, gpu: Gpu) -> Gpu:
    """Return *gpu* with what changes from second to second, of which whole readings take a sample.

    ``nvmlDeviceGetCurrentClocksEventReasons``, and where the library does not have it, the same by
    its older name, ``nvmlDeviceGetCurrentClocksThrottleReasons``.
    """
    reasons = asker.answer("nvmlDeviceGetCurrentClocksEventReasons", handle, convert=values.count)
    if reasons.code == asker.nvml.NVML_ERROR_FUNCTION_NOT_FOUND:
        older = "nvmlDeviceGetCurrentClocksThrottleReasons"
        reasons = asker.answer(older, handle, convert=values.count)
    return replace(gpu, throttle_reasons=reasons.value)


def _flags(modes: Any) -> tuple[bool, ...]:
    return tuple(map(values.flag, modes))


def _pcie_most(asker: Asker, handle: Any) -> PcieLink | None:
    """Read ``nvmlDeviceGetMaxPcieLink{Generation,Width}``; None if both are unknown."""
    link = PcieLink(
        max_generation=asker.ask(
            "nvmlDeviceGetMaxPcieLinkGeneration", handle, convert=values.positive
        ),
        max_width=asker.ask("nvmlDeviceGetMaxPcieLinkWidth", handle, convert=values.positive),
    )
    return None if link == PcieLink() else link


def _pcie_now(asker: Asker, handle: Any, known: PcieLink) -> PcieLink | None:
    """Read ``nvmlDeviceGetCurrPcieLink{Generation,Width}`` into *known*; None if all is unknown."""
    link = replace(
        known,
        generation=asker.ask(
            "nvmlDeviceGetCurrPcieLinkGeneration", handle, convert=values.positive
        ),
        width=asker.ask("nvmlDeviceGetCurrPcieLinkWidth", handle, convert=values.positive),
    )
    return None if link == PcieLink() else link


def _ecc_errors(asker: Asker, handle: Any) -> EccErrors | None:
    """Read ``nvmlDeviceGetTotalEccErrors``, uncorrected ones; None if both are unknown."""

    def ask(counter: int) -> Any:
        call = "nvmlDeviceGetTotalEccErrors"
        return asker.ask(call, handle, _UNCORRECTED, counter, convert=values.count)

    errors = EccErrors(volatile=ask(_VOLATILE), aggregate=ask(_AGGREGATE))
    return None if errors == EccErrors() else errors


def _fabric(asker: Asker, handle: Any) -> Fabric | None:
    """Read ``nvmlDeviceGetGpuFabricInfoV``, on older libraries ``nvmlDeviceGetGpuFabricInfo``.

    Of the versions of the struct the first is asked for that every driver with the call took
    so far; nvml.h says that a later one will replace it.
    """
    nvml = asker.nvml
    for call, struct in (
        ("nvmlDeviceGetGpuFabricInfoV", nvml.c_nvmlGpuFabricInfo_v2_t),
        ("nvmlDeviceGetGpuFabricInfoV", nvml.c_nvmlGpuFabricInfo_v3_t),
        ("nvmlDeviceGetGpuFabricInfo", nvml.c_nvmlGpuFabricInfo_t),
    ):
        answer = _filled(asker, call, handle, struct())
        if answer.code not in (_WRONG_VERSION, nvml.NVML_ERROR_FUNCTION_NOT_FOUND):
            return cast("Fabric | None", answer.value)
    return None


def _filled(asker: Asker, call: str, handle: Any, info: Any) -> Answer:
    return asker.answer(
        call,
        handle,
        ctypes.byref(info),
        convert=lambda _: values.fabric(info),
        absent=(_WRONG_VERSION,),
    )


def _recovery_action(asker: Asker, handle: Any) -> int | None:
    """Read field ``NVML_FI_DEV_GET_GPU_RECOVERY_ACTION``; a new action keeps its number."""
    wanted = (asker.nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, 0)
    return asker.field_value(asker.fields(handle, [wanted])[0], values.field_value)


def _c2c(asker: Asker, handle: Any) -> C2c | None:
    """Read ``nvmlDeviceGetC2cModeInfoV``, and where it is on, the fields of its links."""
    is_enabled = asker.ask(
        "nvmlDeviceGetC2cModeInfoV", handle, convert=lambda info: values.flag(info.isC2cEnabled)
    )
    if not is_enabled:
        return None if is_enabled is None else C2c(is_enabled=False)
    links, speed = asker.nvml.NVML_FI_DEV_C2C_LINK_COUNT, asker.nvml.NVML_FI_DEV_C2C_LINK_GET_MAX_BW
    count = asker.field_value(asker.fields(handle, [(links, 0)])[0], values.field_value)
    wanted = [(speed, link) for link in range(min(count or 0, MAX_C2C_LINKS))]
    speeds = [asker.field_value(f, values.field_value) for f in asker.fields(handle, wanted)]
    # A link that is down has no speed, or 0.
    return C2c(is_enabled=True, links=count, speed_mbps=max(filter(None, speeds), default=None))


# MIG: whether a GPU is partitioned, and into what.

MAX_MIG_DEVICES = 64
"""Upper bound on slots asked; today's GPUs have 7 (NVIDIA MIG User Guide)."""


def with_mig(asker: Asker, handle: Any, gpu: Gpu) -> Gpu:
    """Return *gpu* with its MIG state: ``nvmlDeviceGetMigMode``, now and after the next reset.

    A GPU that is partitioned tells its slots (``nvmlDeviceGetMaxMigDeviceCount``, which answers
    0 while MIG is off) and the device in each.
    """
    mig = _modes(asker, handle)
    if mig is None or not mig.is_enabled:
        return replace(gpu, mig=mig)
    slots = asker.ask("nvmlDeviceGetMaxMigDeviceCount", handle, convert=values.positive)
    instances = tuple(
        _instance(asker, handle, device, MigInstance(uuid=uuid, parent_uuid=gpu.uuid))
        for device, uuid in _devices(asker, handle, slots)
    )
    return replace(gpu, mig=replace(mig, max_instances=slots, instances=instances))


def with_known_mig(asker: Asker, handle: Any, gpu: Gpu) -> Gpu | None:
    """Return *gpu* with its pending MIG mode read anew; ``None`` if more than that changed.

    A MIG device keeps its UUID and what it consists of for as long as it lives, so the UUIDs
    by slot tell whether the known devices are still those.
    """
    mig, known = _modes(asker, handle), gpu.mig
    if mig is None or known is None:
        return gpu if mig is known else None
    if mig.is_enabled is not known.is_enabled:
        return None
    found = _devices(asker, handle, known.max_instances) if mig.is_enabled else ()
    if [uuid for _, uuid in found] != [instance.uuid for instance in known.instances]:
        return None
    return replace(gpu, mig=replace(known, is_pending=mig.is_pending))


def _modes(asker: Asker, handle: Any) -> Mig | None:
    modes = asker.ask("nvmlDeviceGetMigMode", handle, convert=lambda m: tuple(map(values.flag, m)))
    if modes is None:
        return None
    return Mig(is_enabled=modes[0], is_pending=modes[0] != modes[1])


def _devices(asker: Asker, handle: Any, slots: int | None) -> Iterator[tuple[Any, str]]:
    """Yield each MIG device and its UUID; an empty slot is NOT_FOUND."""
    for slot in range(min(slots or 0, MAX_MIG_DEVICES)):
        device = asker.answer(
            "nvmlDeviceGetMigDeviceHandleByIndex",
            handle,
            slot,
            absent=(asker.nvml.NVML_ERROR_NOT_FOUND,),
        ).value
        uuid = device and gpu_uuid(asker, device)
        if uuid:
            yield device, uuid


def _instance(asker: Asker, parent: Any, device: Any, instance: MigInstance) -> MigInstance:
    """Read one MIG device.

    Its profile is the end of ``nvmlDeviceGetName``; its GPU instance's number and place come
    from ``nvmlGpuInstanceGetInfo`` of the handle that ``nvmlDeviceGetGpuInstanceById`` gives
    to the privileged.
    """

    def ask(call: str, convert: Any) -> Any:
        return asker.ask(call, device, convert=convert)

    gpu_instance = ask("nvmlDeviceGetGpuInstanceId", values.small)
    profile_id, placement = _place(asker, parent, gpu_instance) or (None, None)
    return replace(
        instance,
        profile=ask("nvmlDeviceGetName", values.mig_profile),
        profile_id=profile_id,
        placement=placement,
        gpu_instance=gpu_instance,
        compute_instance=ask("nvmlDeviceGetComputeInstanceId", values.small),
        memory_mib=ask("nvmlDeviceGetMemoryInfo", values.memory_mib),
        attributes=ask("nvmlDeviceGetAttributes_v2", values.mig_attributes),
    )


def _place(asker: Asker, parent: Any, gpu_instance: int | None) -> Any:
    if gpu_instance is None:
        return None
    found = asker.ask("nvmlDeviceGetGpuInstanceById", parent, gpu_instance)
    if found is None:
        return None
    return asker.ask("nvmlGpuInstanceGetInfo", found, convert=values.mig_place)
