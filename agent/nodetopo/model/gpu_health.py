"""The verdict on one GPU."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


class HealthClass(StrEnum):
    """The consequence of an error, from the mildest to the worst.

    ``app``: the work on the GPU is at fault, or nothing is: the GPU stays Healthy. ``degraded``:
    Healthy, but given out only where no sound GPU is left. ``reset``: Unhealthy until a reset was
    seen to have helped. ``reboot``: Unhealthy until the node has rebooted. ``rma``: Unhealthy until
    an operator overrides it.
    """

    APP = "app"
    DEGRADED = "degraded"
    RESET = "reset"
    REBOOT = "reboot"
    RMA = "rma"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuHealth:
    """How one GPU is.

    Attributes:
        is_healthy: whether the kubelet may hand it out.
        is_degraded: Healthy, and the last to be chosen.
        reason: short, in the form of a Kubernetes condition's (``Xid79``, ``GpuLost``);
            ``None`` for a sound GPU.
        said: the same for a person, in a sentence; ``None`` for a sound GPU.
        kind: the class of what is worst about it; ``None`` for a sound GPU.
    """

    is_healthy: bool = True
    is_degraded: bool = False
    reason: str | None = None
    said: str | None = None
    kind: HealthClass | None = None


HealthView: TypeAlias = Mapping[str, GpuHealth]
"""By :attr:`nodetopo.model.gpu.Gpu.id`; a missing GPU is presumed sound."""
