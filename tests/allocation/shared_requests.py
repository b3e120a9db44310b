"""A machine whose GPUs are shared, and requests to it."""

from collections.abc import Sequence

from nodetopo.allocation.rules import Policy, Rules
from nodetopo.machines.bundled import machine
from nodetopo.model.snapshot import Snapshot

H100 = machine("dgx-h100")
BEST = Rules()
PACKED = Rules(policy=Policy.PACKED)


def replicas(snapshot: Snapshot, per_gpu: int) -> dict[str, str]:
    """So many replicas of each GPU."""
    return {f"{gpu.id}::{n}": gpu.id for gpu in snapshot.gpus for n in range(per_gpu)}


def free(snapshot: Snapshot, per_gpu: int, counts: Sequence[int]) -> list[str]:
    """The last *counts* replicas of each GPU."""
    return [
        f"{gpu.id}::{n}"
        for gpu, count in zip(snapshot.gpus, counts, strict=True)
        for n in range(per_gpu - count, per_gpu)
    ]
