"""The NVML child's answers: records shared with its parent, which never calls NVML."""

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.model.gpu import ConfidentialCompute, Gpu
from nodetopo.model.nvlink import NvLink, ReportedPair
from nodetopo.model.probe_issue import ProbeIssue


class NvmlReading(Struct, frozen=True, kw_only=True):  # noqa: PLW1641 - nobody hashes one
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
    calls: int = 0  # of NVML
    # The transcript of the calls; empty unless it was requested.
    answers: str = ""

    def __eq__(self, other: object) -> bool:
        """Return whether both say the same, whatever it cost to read."""
        return isinstance(other, NvmlReading) and all(
            getattr(self, name) == getattr(other, name)
            for name in self.__struct_fields__
            if name not in ("calls", "answers")
        )


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
            values: dict[str, Any] = {name: getattr(now, name) for name in Gpu.__struct_fields__}
            known = {name: value for name, value in values.items() if value is not None}
            gpus.append(replace(was, **known))
    return replace(reading, gpus=tuple(gpus))
