"""The GPUs of this node, read through NVML with the real ``pynvml``, in two depths.

:func:`read_nvml` and :func:`refresh_nvml` run in the NVML child process only
(:mod:`agent.probes.nvml.child`): a call can wait for ever in the driver. Importing this module
does not load ``pynvml``, so that the parent can share :class:`NvmlReading` without its cost.

Neither keeps NVML initialised: an open handle would keep the driver from being unloaded. Only
who wants events does (:mod:`agent.probes.nvml.events`).
"""

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from agent.errors import NvmlUnavailable
from agent.model.gpu import ConfidentialCompute, Gpu
from agent.model.nvlink import NvLink, ReportedPair
from agent.model.snapshot import ProbeIssue
from agent.probes.nvml import values
from agent.probes.nvml.gpu import (
    gpu_uuid,
    lasting,
    pairs,
    with_changing,
    with_known_mig,
    with_mig,
    with_sample,
)
from agent.probes.nvml.links import are_links_as_known, links, uneven, with_peer_kinds
from agent.probes.nvml.session import Answer, Asker, Session, in_order

MAX_GPUS = 64
"""More GPUs than one node has; a higher count is a broken answer, not a machine."""

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
        confidential_compute: ``None`` where the GPUs have no such mode.
        gpus: by index; only the fields that NVML knows are filled.
        nvlinks: by (gpu, link); ``None`` if NVML let us ask no GPU at all.
        pairs: every two GPUs about which NVML said anything.
        issues: what it refused, probe ``nvml``, in the order of
            :func:`agent.probes.nvml.session.in_order`.
        calls: how many NVML functions were called for it; equal readings may have cost
            different numbers.
    """

    driver_version: str | None = None
    nvml_version: str | None = None
    cuda_version: tuple[int, int] | None = None
    confidential_compute: ConfidentialCompute | None = None
    gpus: tuple[Gpu, ...] = ()
    nvlinks: tuple[NvLink, ...] | None = None
    pairs: tuple[ReportedPair, ...] = ()
    issues: tuple[ProbeIssue, ...] = ()
    calls: int = field(default=0, compare=False)


def read_nvml(around: Callable[[Any], Any] | None = None) -> NvmlReading:
    """Initialise NVML, read everything once, and shut it down.

    Args:
        around: takes the module ``pynvml`` and returns what is asked in its place
            (:class:`agent.probes.nvml.recorder.Recorder`).

    Raises:
        NvmlUnavailable: the library does not load, does not initialise, does not count its
            GPUs, or answers for none of them.
    """
    with nvml_session(around) as session:
        reading = _whole(session)
    return replace(reading, calls=session.calls)


def refresh_nvml(previous: NvmlReading) -> NvmlReading:
    """Initialise NVML, read what can change, and shut it down; the rest is that of *previous*.

    Read are the PCIe links' present speed, persistence and pending MIG mode, the fabric, the
    health of memory and GPU, and whether the NVLinks are up. Everything is read as by
    :func:`read_nvml` where that is not all that changed: another driver, other GPUs or MIG
    devices, a GPU that is or was lost, an NVLink that went up or down (its far end must tell
    again), a fabric in another state (which decides on peer access). Of a node that stays as
    it is, both give equal readings.

    Raises:
        NvmlUnavailable: as :func:`read_nvml`.
    """
    with nvml_session() as session:
        reading = _refreshed(session, previous) or _whole(session)
    return replace(reading, calls=session.calls)


@contextmanager
def nvml_session(around: Callable[[Any], Any] | None = None) -> Iterator[Session]:
    """Yield a session with NVML initialised.

    NVML counts who initialised it in a process: the first one makes it look for GPUs, the last
    one to leave has it forget them.

    Raises:
        NvmlUnavailable: the library does not load or does not initialise.
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
        _shut_down(pynvml)


def _shut_down(nvml: Any) -> None:
    # Whatever it says, the reading is complete, and real trouble shows in the next one.
    with suppress(nvml.NVMLError):
        nvml.nvmlShutdown()


def _unavailable(what: str, error: Any) -> NvmlUnavailable:
    if error.value == 12:  # NVML_ERROR_LIBRARY_NOT_FOUND hides the loader's own words
        cause = f"cannot load libnvidia-ml.so.1{_loader_says()}"
        return NvmlUnavailable(cause, _INSTALL, code=error.value)
    return NvmlUnavailable(f"{what}: {error}", _CURES.get(error.value, ""), code=error.value)


def _loader_says() -> str:
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as error:
        text = str(error)
        return "" if text.startswith("libnvidia-ml.so.1: cannot open") else f": {text}"
    return ""


def _whole(session: Session) -> NvmlReading:
    versions = _versions(session.asker("system"))
    askers = [session.asker(f"GPU{index}") for index in range(_count(session))]
    answers = _opened(askers)
    _check_some_answer(askers, answers)
    handles = _handles(answers)
    gpus = [_gpu(asker, index, handles.get(index)) for index, asker in enumerate(askers)]
    _check_some_name(askers, gpus)
    nvlinks = [links(askers[index], gpus[index], handle) for index, handle in handles.items()]
    gpus = [replace(g, is_lost=asker.is_lost) for g, asker in zip(gpus, askers, strict=True)]
    told = with_peer_kinds([link for of_gpu in nvlinks for link in of_gpu or ()], gpus)
    alive = {index: handle for index, handle in handles.items() if not askers[index].is_lost}
    found_pairs = pairs(session, alive)
    return replace(
        versions,
        gpus=tuple(gpus),
        nvlinks=None if gpus and all(of_gpu is None for of_gpu in nvlinks) else told,
        pairs=found_pairs,
        issues=in_order((*session.issues, *uneven(told, gpus))),
    )


def _versions(asker: Asker) -> NvmlReading:
    """Read ``nvmlSystemGet{DriverVersion,NVMLVersion,CudaDriverVersion_v2,ConfComputeState}``."""
    newest = "nvmlSystemGetCudaDriverVersion_v2"
    cuda = asker.answer(newest, convert=values.cuda_version)
    if cuda.code == asker.nvml.NVML_ERROR_FUNCTION_NOT_FOUND:
        cuda = asker.answer("nvmlSystemGetCudaDriverVersion", convert=values.cuda_version)
    return NvmlReading(
        driver_version=_driver_version(asker),
        nvml_version=asker.ask("nvmlSystemGetNVMLVersion"),
        cuda_version=cuda.value,
        confidential_compute=asker.ask(
            "nvmlSystemGetConfComputeState", convert=values.confidential_compute
        ),
    )


def _driver_version(asker: Asker) -> str | None:
    return asker.ask("nvmlSystemGetDriverVersion")


def _count(session: Session) -> int:
    """Return ``nvmlDeviceGetCount_v2``, without which there is nothing to read."""
    session.calls += 1
    try:
        count = int(session.nvml.nvmlDeviceGetCount())
    except session.nvml.NVMLError as error:
        raise _unavailable("NVML does not count its GPUs", error) from None
    if count > MAX_GPUS:
        raise NvmlUnavailable(f"NVML claims {count} GPUs", "check the driver's installation")
    return count


def _opened(askers: Sequence[Asker]) -> list[Answer]:
    """Return the answers of ``nvmlDeviceGetHandleByIndex_v2``, by index."""
    return [asker.answer("nvmlDeviceGetHandleByIndex", i) for i, asker in enumerate(askers)]


def _handles(answers: Sequence[Answer]) -> dict[int, Any]:
    """Return the handle of each GPU that gives one, by index."""
    return {i: answer.value for i, answer in enumerate(answers) if answer.value is not None}


def _check_some_answer(askers: Sequence[Asker], answers: Sequence[Answer]) -> None:
    """Tell an agent cut off from the devices (all fail alike) from GPUs that are lost."""
    if _handles(answers) or not askers or any(asker.is_lost for asker in askers):
        return
    reasons = sorted({issue.reason for asker in askers for issue in asker.issues})
    raise NvmlUnavailable(
        f"NVML opens none of its {len(askers)} GPUs: {', '.join(reasons)}",
        _CURES[999],
        code=answers[0].code,
    )


def _check_some_name(askers: Sequence[Asker], gpus: Sequence[Gpu]) -> None:
    """Tell the same where the handles are given and nothing can be asked of them.

    GPUs without their UUIDs would be other devices to everybody who knew them.
    """
    codes = [asker.refusal("nvmlDeviceGetUUID") for asker in askers]
    if not any(codes) or any(g.uuid for g in gpus) or any(asker.is_lost for asker in askers):
        return
    code = next(filter(None, codes))
    what = f"NVML names none of its {len(gpus)} GPUs: {askers[0].nvml.NVMLError(code)}"
    raise NvmlUnavailable(what, _CURES[999], code=code)


def _gpu(asker: Asker, index: int, handle: Any) -> Gpu:
    if handle is None:
        return Gpu(index=index)
    gpu = with_changing(asker, handle, lasting(asker, index, handle))
    return with_mig(asker, handle, with_sample(asker, handle, gpu))


def _refreshed(session: Session, previous: NvmlReading) -> NvmlReading | None:
    """Return *previous* with what may change, or ``None`` if all must be read again."""
    attempt = Session(session.nvml)
    try:
        return _changes(attempt, previous)
    finally:
        session.calls += attempt.calls


def _changes(attempt: Session, previous: NvmlReading) -> NvmlReading | None:
    if _driver_version(attempt.asker("system")) != previous.driver_version:
        return None
    if _count(attempt) != len(previous.gpus) or any(gpu.is_lost for gpu in previous.gpus):
        return None
    askers = [attempt.asker(known.name) for known in previous.gpus]
    handles = _handles(_opened(askers))
    gpus: list[Gpu] = []
    for asker, known in zip(askers, previous.gpus, strict=True):
        gpu = _changed(attempt, asker, handles.get(known.index), known, previous.nvlinks or ())
        if gpu is None:
            return None
        gpus.append(gpu)
    kept = (issue for issue in previous.issues if not attempt.was_asked(issue))
    return replace(previous, gpus=tuple(gpus), issues=in_order((*kept, *attempt.issues)))


def _changed(
    attempt: Session, asker: Asker, handle: Any, known: Gpu, nvlinks: Sequence[NvLink]
) -> Gpu | None:
    """Return *known* with what may change; ``None`` if it is not the GPU that was known."""
    if handle is None:
        return known if known == Gpu(index=known.index) and not asker.is_lost else None
    if known == Gpu(index=known.index) or gpu_uuid(asker, handle) != known.uuid:
        return None
    gpu = with_known_mig(asker, handle, with_changing(asker, handle, known))
    state = gpu and gpu.fabric and gpu.fabric.state
    if gpu is None or asker.is_lost or state != (known.fabric and known.fabric.state):
        return None
    own = [link for link in nvlinks if link.gpu == known.index]
    silent = attempt.asker(known.name, is_silent=True)
    return gpu if are_links_as_known(silent, handle, own) else None
