"""MIG: whether a GPU is partitioned, and into what."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from agent.model.gpu import Gpu
from agent.model.mig import Mig, MigInstance
from agent.probes.nvml import values
from agent.probes.nvml.gpu import gpu_uuid
from agent.probes.nvml.session import Asker

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
