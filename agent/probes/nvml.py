"""The GPUs of this node, read through NVML with the real ``pynvml``.

:func:`read_nvml` runs in the NVML child process only (:mod:`agent.probes.nvml_child`): a call
can wait for ever in the driver. Importing this module does not load ``pynvml``, so that the
parent can share :class:`NvmlReading` without its cost.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from agent.errors import NvmlUnavailable
from agent.model.gpu import Fabric, Gpu
from agent.model.mig import Mig, MigInstance
from agent.model.nvlink import NvLink, ReportedPair
from agent.model.pci import PcieLink
from agent.model.snapshot import ProbeIssue
from agent.probes import nvml_values as values
from agent.probes.nvml_ask import Asker
from agent.probes.nvml_links import fields, links, pairs, with_what_gpus_tell

MAX_GPUS = 64
"""More GPUs than one node has; a higher count is a broken answer, not a machine."""

MAX_MIG_DEVICES = 64
"""Upper bound on slots asked; today's GPUs have 7 (NVIDIA MIG User Guide)."""

AFFINITY_WORDS = 128
"""64-bit words of the CPU mask: 8192 CPUs, the most that Linux builds for x86 take (NR_CPUS)."""

_INSTALL = "install the NVIDIA driver, or name its library with --nvml-library"
_CURES = {  # by nvmlReturn_t
    4: "run as a user who may open /dev/nvidiactl and /dev/nvidia*",
    9: "load the NVIDIA kernel module, and look into `dmesg` for why it is not there",
    12: _INSTALL,
    18: "the driver was replaced while its kernel module runs: reload the module, or reboot",
    999: "in a container, start it anew: the device access it was given may have been withdrawn",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlReading:
    """What NVML says of the node.

    Attributes:
        cuda_version: (major, minor) of the newest CUDA that the driver runs.
        gpus: by index; only the fields that NVML knows are filled.
        nvlinks: by (gpu, link); ``None`` if NVML let us ask no GPU at all.
        pairs: every two GPUs about which NVML said anything.
        issues: what it refused, probe ``nvml``.
    """

    driver_version: str | None = None
    nvml_version: str | None = None
    cuda_version: tuple[int, int] | None = None
    gpus: tuple[Gpu, ...] = ()
    nvlinks: tuple[NvLink, ...] | None = None
    pairs: tuple[ReportedPair, ...] = ()
    issues: tuple[ProbeIssue, ...] = ()


def read_nvml() -> NvmlReading:
    """Initialise NVML, read everything once, and shut it down.

    Raises:
        NvmlUnavailable: the library does not load, does not initialise, does not count its
            GPUs, or answers for none of them.
    """
    import pynvml  # noqa: PLC0415 - 6 MiB that only the child process pays

    with _initialised(pynvml):
        return _reading(pynvml)


def with_last_known(reading: NvmlReading, previous: NvmlReading | None) -> NvmlReading:
    """Return *reading*, its lost GPUs described as *previous* knew them.

    A lost GPU does not even tell its UUID, but keeps its index while the driver runs; the
    same GPUs must answer at all other indices, else nothing is carried over.
    """
    if previous is None or len(previous.gpus) != len(reading.gpus):
        return reading
    matched = tuple(zip(reading.gpus, previous.gpus, strict=True))
    if any(now.uuid not in (None, was.uuid) for now, was in matched):
        return reading
    return replace(
        reading,
        gpus=tuple(replace(was, is_lost=True) if now.is_lost else now for now, was in matched),
    )


@contextmanager
def _initialised(nvml: Any) -> Iterator[None]:
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise _unavailable("NVML does not initialise", error) from None
    try:
        yield
    finally:
        _shut_down(nvml)


def _shut_down(nvml: Any) -> None:
    # Whatever it says, the reading is complete, and real trouble shows in the next one.
    with suppress(nvml.NVMLError):
        nvml.nvmlShutdown()


def _unavailable(what: str, error: Any) -> NvmlUnavailable:
    if error.value == 12:  # NVML_ERROR_LIBRARY_NOT_FOUND hides the loader's own words
        return NvmlUnavailable(f"cannot load libnvidia-ml.so.1{_loader_says()}", _INSTALL)
    return NvmlUnavailable(f"{what}: {error}", _CURES.get(error.value, ""))


def _loader_says() -> str:
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as error:
        text = str(error)
        return "" if text.startswith("libnvidia-ml.so.1: cannot open") else f": {text}"
    return ""


def _reading(nvml: Any) -> NvmlReading:
    system = Asker(nvml, "system")
    versions = _versions(system)
    askers = [Asker(nvml, f"GPU{index}") for index in range(_count(nvml))]
    handles = {i: asker.ask("nvmlDeviceGetHandleByIndex", i) for i, asker in enumerate(askers)}
    handles = {index: handle for index, handle in handles.items() if handle is not None}
    _check_some_answer(askers, handles)
    gpus = tuple(_gpu(asker, i, handles.get(i)) for i, asker in enumerate(askers))
    nvlinks = [links(askers[index], index, handle) for index, handle in handles.items()]
    told = [link for of_gpu in nvlinks for link in of_gpu or ()]
    alive = {index: handle for index, handle in handles.items() if not askers[index].is_lost}
    found_pairs, pair_issues = pairs(nvml, alive)
    return replace(
        versions,
        gpus=tuple(
            replace(gpu, is_lost=asker.is_lost) for gpu, asker in zip(gpus, askers, strict=True)
        ),
        nvlinks=None
        if all(n is None for n in nvlinks) and gpus
        else with_what_gpus_tell(told, gpus),
        pairs=found_pairs,
        issues=(*system.issues, *(i for asker in askers for i in asker.issues), *pair_issues),
    )


def _versions(asker: Asker) -> NvmlReading:
    """Read ``nvmlSystemGetDriverVersion``, ``…NVMLVersion``, ``…CudaDriverVersion[_v2]``."""
    newest = "nvmlSystemGetCudaDriverVersion_v2"
    cuda = asker.ask(newest, convert=values.cuda_version)
    if newest in asker.missing:
        cuda = asker.ask("nvmlSystemGetCudaDriverVersion", convert=values.cuda_version)
    return NvmlReading(
        driver_version=asker.ask("nvmlSystemGetDriverVersion"),
        nvml_version=asker.ask("nvmlSystemGetNVMLVersion"),
        cuda_version=cuda,
    )


def _count(nvml: Any) -> int:
    """Return ``nvmlDeviceGetCount_v2``, without which there is nothing to read."""
    try:
        count = int(nvml.nvmlDeviceGetCount())
    except nvml.NVMLError as error:
        raise _unavailable("NVML does not count its GPUs", error) from None
    if count > MAX_GPUS:
        raise NvmlUnavailable(f"NVML claims {count} GPUs", "check the driver's installation")
    return count


def _check_some_answer(askers: list[Asker], handles: dict[int, Any]) -> None:
    """Tell an agent cut off from the devices (all fail alike) from GPUs that are lost."""
    if handles or not askers or any(asker.is_lost for asker in askers):
        return
    reasons = sorted({issue.reason for asker in askers for issue in asker.issues})
    raise NvmlUnavailable(
        f"NVML opens none of its {len(askers)} GPUs: {', '.join(reasons)}",
        _CURES[999],
    )


def _gpu(asker: Asker, index: int, handle: Any) -> Gpu:
    """Read one GPU; each field from the call named beside it, or None with an issue."""
    if handle is None:
        return Gpu(index=index)
    ask = asker.ask
    return Gpu(
        index=index,
        uuid=ask("nvmlDeviceGetUUID", handle),
        minor=ask("nvmlDeviceGetMinorNumber", handle, convert=values.small),
        pci=ask("nvmlDeviceGetPciInfo_v3", handle, convert=values.pci_address),
        product=ask("nvmlDeviceGetName", handle),
        architecture=ask("nvmlDeviceGetArchitecture", handle, convert=values.architecture),
        compute_capability=ask(
            "nvmlDeviceGetCudaComputeCapability",
            handle,
            convert=values.capability,
        ),
        memory_mib=ask("nvmlDeviceGetMemoryInfo", handle, convert=values.memory_mib),
        cpu_affinity=ask(
            "nvmlDeviceGetCpuAffinity",
            handle,
            AFFINITY_WORDS,
            convert=values.cpu_set,
        ),
        pcie=_pcie(asker, handle),
        persistence=ask("nvmlDeviceGetPersistenceMode", handle, convert=values.flag),
        ecc=ask("nvmlDeviceGetEccMode", handle, convert=lambda modes: values.flag(modes[0])),
        mig=_mig(asker, handle),
        fabric=_fabric(asker, handle),
        remapped_rows=ask("nvmlDeviceGetRemappedRows", handle, convert=values.remapped_rows),
        recovery_action=_recovery_action(asker, handle),
    )


def _pcie(asker: Asker, handle: Any) -> PcieLink | None:
    """Read ``nvmlDeviceGet{Curr,Max}PcieLink{Generation,Width}``; None if all are unknown."""
    link = PcieLink(
        generation=asker.ask(
            "nvmlDeviceGetCurrPcieLinkGeneration", handle, convert=values.positive
        ),
        width=asker.ask("nvmlDeviceGetCurrPcieLinkWidth", handle, convert=values.positive),
        max_generation=asker.ask(
            "nvmlDeviceGetMaxPcieLinkGeneration", handle, convert=values.positive
        ),
        max_width=asker.ask("nvmlDeviceGetMaxPcieLinkWidth", handle, convert=values.positive),
    )
    return None if link == PcieLink() else link


def _fabric(asker: Asker, handle: Any) -> Fabric | None:
    """Read ``nvmlDeviceGetGpuFabricInfoV``, on older libraries ``nvmlDeviceGetGpuFabricInfo``."""
    call = "nvmlDeviceGetGpuFabricInfoV"
    info = asker.nvml.c_nvmlGpuFabricInfoV_t()
    found = asker.ask(call, handle, ctypes.byref(info), convert=lambda _: values.fabric(info))
    if call not in asker.missing:
        return found
    call, info = "nvmlDeviceGetGpuFabricInfo", asker.nvml.c_nvmlGpuFabricInfo_t()
    return asker.ask(call, handle, ctypes.byref(info), convert=lambda _: values.fabric(info))


def _recovery_action(asker: Asker, handle: Any) -> int | None:
    """Read field ``NVML_FI_DEV_GET_GPU_RECOVERY_ACTION`` (230)."""
    return fields(asker, handle, [(asker.nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, 0)])[0]


def _mig(asker: Asker, handle: Any) -> Mig | None:
    """Read ``nvmlDeviceGetMigMode``: the mode now, and whether another waits for a reset."""
    modes = asker.ask("nvmlDeviceGetMigMode", handle, convert=lambda m: tuple(map(values.flag, m)))
    if modes is None:
        return None
    current, pending = modes
    return Mig(
        is_enabled=current,
        is_pending=current != pending,
        instances=tuple(_mig_instances(asker, handle)) if current else (),
    )


def _mig_instances(asker: Asker, handle: Any) -> Iterator[MigInstance]:
    """Walk the slots of ``nvmlDeviceGetMaxMigDeviceCount``; an empty one is NOT_FOUND."""
    slots = asker.ask("nvmlDeviceGetMaxMigDeviceCount", handle, convert=values.small) or 0
    for slot in range(min(slots, MAX_MIG_DEVICES)):
        device = asker.answer(
            "nvmlDeviceGetMigDeviceHandleByIndex",
            handle,
            slot,
            absent=(asker.nvml.NVML_ERROR_NOT_FOUND,),
        ).value
        uuid = device and asker.ask("nvmlDeviceGetUUID", device)
        if uuid:
            yield _mig_instance(asker, device, uuid)


def _mig_instance(asker: Asker, device: Any, uuid: str) -> MigInstance:
    """Read one MIG device; its profile is the end of ``nvmlDeviceGetName``."""
    return MigInstance(
        uuid=uuid,
        profile=asker.ask("nvmlDeviceGetName", device, convert=values.mig_profile),
        gpu_instance=asker.ask("nvmlDeviceGetGpuInstanceId", device, convert=values.small),
        compute_instance=asker.ask("nvmlDeviceGetComputeInstanceId", device, convert=values.small),
        memory_mib=asker.ask("nvmlDeviceGetMemoryInfo", device, convert=values.memory_mib),
    )
