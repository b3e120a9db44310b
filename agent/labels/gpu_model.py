"""Which GPUs the labels of a node describe, where it holds several models.

GPU Feature Discovery lets chance pick the model, so its values flap (v0.19.0, ``internal/lm``:
it iterates over a map). Here it is the model with the most GPUs, and of equals the first by name.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeVar

from agent.model.gpu import DISPLAYS, Gpu
from agent.model.snapshot import Snapshot

_Fact = TypeVar("_Fact")


def counted(snapshot: Snapshot) -> tuple[Gpu, ...]:
    """Return the GPUs to compute on, by index; a station's display adapter is none of them."""
    return tuple(gpu for gpu in snapshot.gpus if gpu.product not in DISPLAYS)


def described(snapshot: Snapshot) -> tuple[Gpu, ...]:
    """Return the GPUs of the model that the labels describe, whole ones before partitioned.

    Empty for a node without GPUs. GPUs of unknown model are described where there are no others.
    """
    gpus = counted(snapshot)
    counts = Counter(gpu.product for gpu in gpus)
    if not counts:
        return ()
    model = min(counts, key=lambda name: (name is None, -counts[name], name or ""))
    same = (gpu for gpu in gpus if gpu.product == model)
    return tuple(sorted(same, key=lambda gpu: gpu.is_divided))


def first_known(gpus: Iterable[Gpu], fact: Callable[[Gpu], _Fact | None]) -> _Fact | None:
    """Return *fact* of the first of *gpus* that tells it: a lost GPU may tell nothing."""
    return next((known for gpu in gpus if (known := fact(gpu)) is not None), None)
