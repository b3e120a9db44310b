"""What the metrics of DRA are made from; it loads no library of metrics."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class DraState:
    """The state of our DRA driver."""

    is_registered: bool  # by the kubelet
    claims: int  # prepared ones
    claimed_gpus: int  # GPUs behind them
    # writes, errors: slices written, and failed attempts
    writes: int
    errors: int
    shared_gpus: int = 0  # that another DRA driver also publishes
    dropped: frozenset[str] = frozenset()  # fields of slices that the API server does not keep


@dataclass(frozen=True, slots=True, kw_only=True)
class DraReading:
    """The devices that DRA drivers give out on the node."""

    dra_gpus: Mapping[str, int] = field(default_factory=dict)  # driver → GPUs that it publishes
    dra: DraState | None = None  # None if the driver is off
