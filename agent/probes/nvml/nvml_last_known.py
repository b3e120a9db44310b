"""What is still known of a GPU that does not tell itself any more."""

from dataclasses import fields, replace
from typing import Any

from agent.model.gpu import Gpu
from agent.probes.nvml.reading import NvmlReading


def with_last_known(reading: NvmlReading, previous: NvmlReading | None) -> NvmlReading:
    """Return *reading*, its GPUs without a UUID described as *previous* knew them.

    A lost GPU does not even tell its UUID, and one that answers only some calls may withhold it;
    either keeps its index while the driver runs, and must stay the device that it was. Nothing
    is carried over unless the same GPUs answer at all other indices. Of a lost GPU all is as it
    was last known, of another one what it does not tell now.
    """
    if previous is None or len(previous.gpus) != len(reading.gpus):
        return reading
    matched = tuple(zip(reading.gpus, previous.gpus, strict=True))
    if any(now.uuid not in (None, was.uuid) for now, was in matched):
        return reading
    return replace(reading, gpus=tuple(_merged(now, was) for now, was in matched))


def _merged(now: Gpu, was: Gpu) -> Gpu:
    if now.is_lost:
        return replace(was, is_lost=True)
    if now.uuid is not None:
        return now
    told: dict[str, Any] = {field.name: getattr(now, field.name) for field in fields(Gpu)}
    known = {name: value for name, value in told.items() if value is not None}
    return replace(was, **known)
