"""The NVML child's answers: records shared with its parent, which never calls NVML."""

from dataclasses import dataclass, field, fields, replace
from typing import Any

from nodetopo.model.gpu import ConfidentialCompute, Gpu
from nodetopo.model.nvlink import NvLink, ReportedPair
from nodetopo.model.probe_issue import ProbeIssue


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlReading:
    """The node as NVML reports it."""

    driver_version: str | None = None
    nvml_version: str | None = None
    # (major, minor) of the newest CUDA that the driver runs.
    cuda_version: tuple[int, int] | None = None
    confidential_compute: ConfidentialCompute | None = None  # ``None`` if the GPUs lack this mode
    gpus: tuple[Gpu, ...] = ()  # by index; only NVML's fields are filled
    # By (gpu, link); ``None`` if NVML refused the links of every GPU.
    nvlinks: tuple[NvLink, ...] | None = None
    pairs: tuple[ReportedPair, ...] = ()  # pairs of GPUs with any report by NVML
    # Refusals, probe ``nvml``, in the order of :func:`nodetopo.probes.nvml.session.in_order`.
    issues: tuple[ProbeIssue, ...] = ()
    # Number of NVML calls; equal readings can have different numbers.
    calls: int = field(default=0, compare=False)
    # The transcript of the calls; empty unless it was requested.
    answers: str = field(default="", compare=False)


def with_last_known(reading: NvmlReading, previous: NvmlReading | None) -> NvmlReading:
    """Return *reading*, its GPUs without a UUID described as *previous* knew them.

    A lost GPU does not even give its UUID, and a partly failing one may withhold it; either keeps
    its index while the driver runs, and must stay the same device. Facts are carried over only if
    the same GPUs answer at all other indices. A lost GPU keeps all its last known facts, another
    one those that it withholds now.
    """
    if previous is None or len(previous.gpus) != len(reading.gpus):
        return reading
    matched = tuple(zip(reading.gpus, previous.gpus, strict=True))
    if any(now.uuid not in (None, was.uuid) for now, was in matched):
        return reading
    gpus = []
    for now, was in matched:
        if now.is_lost:
            gpus.append(replace(was, is_lost=True))
        elif now.uuid is not None:
            gpus.append(now)
        else:
            values: dict[str, Any] = {field.name: getattr(now, field.name) for field in fields(Gpu)}
            known = {name: value for name, value in values.items() if value is not None}
            gpus.append(replace(was, **known))
    return replace(reading, gpus=tuple(gpus))
