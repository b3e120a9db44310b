"""The GPUs of this node, read through NVML with the real ``pynvml``, whole or refreshed.

:func:`read_nvml` and :func:`refresh_nvml` run in the NVML child process only
(:mod:`nodetopo.probes.nvml.child`): a call can wait for ever in the driver.

Neither keeps NVML initialised: an open handle would keep the driver from being unloaded. Only
the listener for events does (:mod:`nodetopo.probes.nvml.events`).
"""

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from msgspec.structs import replace

from nodetopo.errors import NvmlUnavailable
from nodetopo.model.gpu import Gpu
from nodetopo.probes.nvml import values
from nodetopo.probes.nvml.gpu import (
    gpu_uuid,
    read_lasting,
    read_pairs,
    with_changing,
    with_mig,
    with_refreshed_mig,
    with_sample,
)
from nodetopo.probes.nvml.library import NOT_FOUND, SONAME
from nodetopo.probes.nvml.links import are_links_unchanged, read_links, uneven, with_peer_kinds
from nodetopo.probes.nvml.record import NvmlReading
from nodetopo.probes.nvml.session import Caller, Reply, Session, in_order

MAX_GPUS = 64
"""More GPUs than one node has; a higher count is a broken answer, not a machine."""

_INSTALL = "install the NVIDIA driver, or name its library with --nvml-library"
_DEVICES_WITHDRAWN = (
    "in a container, start it anew: the device access it was given may have been withdrawn"
)
_CURES = {  # by nvmlReturn_t
    4: "run as a user who may open /dev/nvidiactl and /dev/nvidia*",
    9: "load the NVIDIA kernel module, and look into `dmesg` for why it is not there",
    NOT_FOUND: _INSTALL,
    18: "the driver was replaced while its kernel module runs: reload the module, or reboot",
    999: _DEVICES_WITHDRAWN,
}


def read_nvml(around: Callable[[Any], Any] | None = None) -> NvmlReading:
    """Initialise NVML, read everything once, and shut it down.

    Args:
        around: takes the module ``pynvml`` and returns its replacement
            (:class:`nodetopo.probes.nvml.recorder.Recorder`).
    """
    with nvml_session(around) as session:
        reading = _read_whole(session)
    return replace(reading, calls=session.calls)


def refresh_nvml(previous: NvmlReading) -> NvmlReading:
    """Initialise NVML, read changing facts, and shut it down; the rest is from *previous*.

    Read are the PCIe links' present speed, persistence and pending MIG mode, the fabric, the health
    of memory and GPU, and whether the NVLinks are up. Everything is read as by :func:`read_nvml`
    after any other change: another driver, other GPUs or MIG devices, a GPU that is or was lost, an
    NVLink that went up or down (its far end must be read again), a fabric in another state (which
    decides on peer access). For an unchanged node both give equal readings.
    """
    with nvml_session() as session:
        attempt = Session(session.nvml)
        reading = _refreshed(attempt, previous)
        session.calls += attempt.calls
        reading = reading or _read_whole(session)
    return replace(reading, calls=session.calls)


@contextmanager
def nvml_session(around: Callable[[Any], Any] | None = None) -> Iterator[Session]:
    """Yield a session with NVML initialised.

    NVML counts its users in a process: the first makes it look for GPUs, the last to leave
    makes it forget them.
    """
    import pynvml  # noqa: PLC0415 - 6 MiB that only the child process pays

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise _unavailable("NVML does not initialise", error) from None
    session = Session(pynvml if around is None else around(pynvml))
    session.calls += 2  # nvmlInit, and the nvmlShutdown below
    try:
        yield session
    finally:
        # Whatever it answers, the reading is complete, and real trouble shows in the next one.
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _read_whole(session: Session) -> NvmlReading:
    system = _read_system(session.caller("system"))
    callers = [session.caller(f"GPU{index}") for index in range(_count(session))]
    replies, handles = _open(callers)
    # Without any handle the agent is cut off from the devices, unless GPUs are lost.
    if callers and not handles and not any(caller.is_lost for caller in callers):
        reasons = sorted({issue.reason for caller in callers for issue in caller.issues})
        cause = f"NVML opens none of its {len(callers)} GPUs: {', '.join(reasons)}"
        raise NvmlUnavailable(cause, _DEVICES_WITHDRAWN, code=replies[0].code)
    gpus = []
    for index, caller in enumerate(callers):
        gpu, handle = Gpu(index=index), handles.get(index)
        if handle is not None:
            gpu = with_changing(caller, handle, read_lasting(caller, index, handle))
            gpu = with_mig(caller, handle, with_sample(caller, handle, gpu))
        gpus.append(gpu)
    # The same without any UUID; GPUs without theirs would be taken for other devices.
    code = next(filter(None, (caller.refusal("nvmlDeviceGetUUID") for caller in callers)), None)
    if code and not any(gpu.uuid for gpu in gpus) and not any(caller.is_lost for caller in callers):
        cause = f"NVML names none of its {len(gpus)} GPUs: {session.nvml.NVMLError(code)}"
        raise NvmlUnavailable(cause, _DEVICES_WITHDRAWN, code=code)

    by_gpu = [read_links(callers[index], gpus[index], it, gpus) for index, it in handles.items()]
    gpus = [replace(gpu, is_lost=it.is_lost) for gpu, it in zip(gpus, callers, strict=True)]
    nvlinks = with_peer_kinds([link for links in by_gpu for link in links or ()], gpus)
    pairs = read_pairs(session, {i: it for i, it in handles.items() if not callers[i].is_lost})
    return replace(
        system,
        gpus=tuple(gpus),
        nvlinks=None if gpus and all(links is None for links in by_gpu) else nvlinks,
        pairs=pairs,
        issues=in_order((*session.issues, *uneven(nvlinks, gpus))),
    )


def _refreshed(attempt: Session, previous: NvmlReading) -> NvmlReading | None:
    """Return *previous* with its changing facts reread, or ``None`` if all must be reread."""
    version = attempt.caller("system").get("nvmlSystemGetDriverVersion")
    if version != previous.driver_version:
        return None
    if _count(attempt) != len(previous.gpus) or any(gpu.is_lost for gpu in previous.gpus):
        return None
    callers = [attempt.caller(known.name) for known in previous.gpus]
    _, handles = _open(callers)
    gpus: list[Gpu] = []
    for caller, known in zip(callers, previous.gpus, strict=True):
        handle, is_unread = handles.get(known.index), known == Gpu(index=known.index)
        if handle is None and is_unread and not caller.is_lost:
            gpus.append(known)
            continue
        if handle is None or is_unread or gpu_uuid(caller, handle) != known.uuid:
            return None
        gpu = with_refreshed_mig(caller, handle, with_changing(caller, handle, known))
        state = gpu and gpu.fabric and gpu.fabric.state
        if gpu is None or caller.is_lost or state != (known.fabric and known.fabric.state):
            return None
        if gpu.nvlink_count != known.nvlink_count:
            return None
        own = [link for link in previous.nvlinks or () if link.gpu == known.index]
        if not are_links_unchanged(attempt.caller(known.name, is_silent=True), handle, own):
            return None
        gpus.append(gpu)
    kept = (issue for issue in previous.issues if not attempt.has_asked(issue))
    return replace(previous, gpus=tuple(gpus), issues=in_order((*kept, *attempt.issues)))


def _read_system(caller: Caller) -> NvmlReading:
    """Read ``nvmlSystemGet{DriverVersion,NVMLVersion,CudaDriverVersion_v2,ConfComputeState}``."""
    cuda = caller.call("nvmlSystemGetCudaDriverVersion_v2", convert=values.cuda_version)
    if cuda.code == caller.nvml.NVML_ERROR_FUNCTION_NOT_FOUND:
        cuda = caller.call("nvmlSystemGetCudaDriverVersion", convert=values.cuda_version)
    return NvmlReading(
        driver_version=caller.get("nvmlSystemGetDriverVersion"),
        nvml_version=caller.get("nvmlSystemGetNVMLVersion"),
        cuda_version=cuda.value,
        confidential_compute=caller.get(
            "nvmlSystemGetConfComputeState", convert=values.confidential_compute
        ),
    )


def _count(session: Session) -> int:
    """Return ``nvmlDeviceGetCount_v2``, without which no reading is possible."""
    session.calls += 1
    try:
        count = int(session.nvml.nvmlDeviceGetCount())
    except session.nvml.NVMLError as error:
        raise _unavailable("NVML does not count its GPUs", error) from None
    if count > MAX_GPUS:
        raise NvmlUnavailable(f"NVML claims {count} GPUs", "check the driver's installation")
    return count


def _open(callers: Sequence[Caller]) -> tuple[list[Reply], dict[int, Any]]:
    """Return the replies of ``nvmlDeviceGetHandleByIndex_v2``, and the handles by index."""
    replies = [it.call("nvmlDeviceGetHandleByIndex", index) for index, it in enumerate(callers)]
    return replies, {i: reply.value for i, reply in enumerate(replies) if reply.value is not None}


def _unavailable(problem: str, error: Any) -> NvmlUnavailable:
    cause, cure = f"{problem}: {error}", _CURES.get(error.value, "")
    if error.value == NOT_FOUND:  # hides the loader's own words
        cause = f"cannot load {SONAME}"
        try:
            ctypes.CDLL(SONAME)
        except OSError as refusal:
            if not str(refusal).startswith(f"{SONAME}: cannot open"):
                cause += f": {refusal}"
    return NvmlUnavailable(cause, cure, code=error.value)
