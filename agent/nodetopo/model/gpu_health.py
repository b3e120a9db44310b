"""The verdict on one GPU."""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct


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


class GpuHealth(Struct, frozen=True, kw_only=True):
    """How one GPU is."""

    is_healthy: bool = True  # the kubelet can allocate it
    is_degraded: bool = False  # healthy, but chosen last
    reason: str | None = None  # short, like a Kubernetes condition's: Xid79, GpuLost; None if sound
    said: str | None = None  # the same as a sentence; None if sound
    kind: HealthClass | None = None  # the class of its worst fault; None if sound


HealthView: TypeAlias = Mapping[str, GpuHealth]
"""By :attr:`nodetopo.model.gpu.Gpu.id`; a missing GPU is presumed sound."""
