"""Metrics of the health of GPUs.

They have the label ``uuid``, since a GPU that the driver forgot has no index; ``gpu``, the
index, is then empty.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from agent.health.status import GpuHealth
from agent.model.gpu import Gpu
from agent.publish.metrics.family import Family, Kind, Samples
from agent.publish.metrics.state import MetricsState

_SOUND = GpuHealth()


def _known(state: MetricsState) -> Iterator[tuple[str, str, GpuHealth]]:
    """Yield (index, id, health) of the GPUs of the node, then of those only health knows."""
    gpus = state.snapshot.gpus if state.snapshot else ()
    for gpu in gpus:
        yield str(gpu.index), gpu.id, _health(gpu, state)
    named = {gpu.id for gpu in gpus}
    for uuid in sorted(state.health.keys() - named):
        yield "", uuid, state.health[uuid]


def _health(gpu: Gpu, state: MetricsState) -> GpuHealth:
    """Return how *gpu* is; a lost one is never handed out, watched or not."""
    health = state.health.get(gpu.id, _SOUND)
    return replace(health, is_healthy=False) if gpu.is_lost else health


def _each(value: Callable[[GpuHealth], bool]) -> Callable[[MetricsState], Samples]:
    return lambda state: {
        (index, uuid): float(value(health)) for index, uuid, health in _known(state)
    }


def _troubles(state: MetricsState) -> Samples:
    return {
        (index, uuid, health.kind or "", health.reason): 1
        for index, uuid, health in _known(state)
        if health.reason is not None
    }


HEALTH_FAMILIES = (
    Family(
        name="gpu_healthy",
        text="Whether the kubelet may hand the GPU out, by its health",
        labels=("gpu", "uuid"),
        samples=_each(lambda health: health.is_healthy),
    ),
    Family(
        name="gpu_degraded",
        text="Whether the GPU is healthy, but the last to be chosen",
        labels=("gpu", "uuid"),
        samples=_each(lambda health: health.is_degraded),
    ),
    Family(
        name="gpu_health_info",
        text="What is worst about a GPU that is not sound; sound ones have no sample",
        labels=("gpu", "uuid", "class", "reason"),
        samples=_troubles,
    ),
    Family(
        name="xid_events",
        text="XID errors seen; pairs of GPU and code appear with their first",
        labels=("uuid", "xid"),
        kind=Kind.COUNTER,
        samples=lambda state: {
            (uuid, str(xid)): count for (uuid, xid), count in state.xid_counts.items()
        },
    ),
)
