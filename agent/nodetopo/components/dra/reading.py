"""What the metrics of DRA are made from; it loads no library of metrics."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class DraState:
    """The state of our DRA driver.

    Attributes:
        is_registered: whether the kubelet has registered it.
        claims: prepared claims.
        claimed_gpus: GPUs behind them.
        writes, errors: slices written, and failed attempts.
        shared_gpus: GPUs that another DRA driver also publishes.
        dropped: fields of slices that the API server does not keep.
    """

    is_registered: bool
    claims: int
    claimed_gpus: int
    writes: int
    errors: int
    shared_gpus: int = 0
    dropped: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class DraReading:
    """The devices that DRA drivers give out on the node.

    Attributes:
        dra_gpus: driver → GPUs that it publishes; empty where no driver publishes any.
        dra: our driver; ``None`` if it is off.
    """

    dra_gpus: Mapping[str, int] = field(default_factory=dict)
    dra: DraState | None = None
