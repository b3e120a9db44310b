"""What one answer costs: CPU time of NVIDIA's library, of ours, and of two baselines."""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from random import Random
from statistics import median, quantiles

from msgspec import Struct

from nodetopo.allocation.allocator import Allocator, preferred
from nodetopo.model.snapshot import Snapshot
from tests.bench.peer import Peer, Request
from tests.bench.placement_states import MOST_FREE, of_size
from tests.bench.traces.rivals import RIVALS

LONG_ENOUGH_NS = 5_000_000
"""CPU time to spend on repeating a short request of the peer's, so that its mean is steady."""

MOST_REPEATS = 2_000


class Cost(Struct, frozen=True, kw_only=True):
    """CPU time of one answer for *size* GPUs, nanoseconds, medians.

    ``all`` is with every GPU free, ``any`` over random sets of free GPUs. ``None`` was not
    measured, as it takes the peer too long.
    """

    size: int
    peer_all: float | None
    ours_all: float
    peer_any: float | None
    ours_any: float
    ours_p99: float
    first_fit: float
    random: float


def costs(
    snapshot: Snapshot, peer: Peer, slow: Collection[int], number: int, random: Random
) -> Iterator[Cost]:
    """Yield the costs of every size; the peer is not asked for those in *slow* with all free.

    Args:
        snapshot: the machine, which *peer* was started for.
        number: random free sets of each size.
    """
    ids = [gpu.id for gpu in snapshot.gpus]
    everyone = tuple(range(len(ids)))
    allocator = Allocator(snapshot)
    first_fit, any_gpus = (RIVALS[name](snapshot, random) for name in ("first-fit", "random"))

    def ours(free: Sequence[int], size: int) -> object:
        return preferred(allocator, [ids[position] for position in free], (), size)

    for size in range(1, len(ids) + 1):
        drawn = [(state.free, size) for state in of_size(len(ids), size, number, random)]
        shuffled = [(tuple(random.sample(free, len(free))), size) for free, _ in drawn]
        whole = [(everyone, size)] * number
        any_ns = _each(ours, shuffled)
        yield Cost(
            size=size,
            peer_all=None if size in slow else _peer(peer, Request(everyone, size)),
            ours_all=median(_each(ours, whole)),
            peer_any=_peer_any(peer, shuffled),
            ours_any=median(any_ns),
            ours_p99=quantiles(any_ns, n=100)[-1],
            first_fit=median(_each(first_fit, shuffled)),
            random=median(_each(any_gpus, shuffled)),
        )


def _each(
    rule: Callable[[Sequence[int], int], object], asked: Sequence[tuple[tuple[int, ...], int]]
) -> list[int]:
    found = []
    for free, size in asked:
        before = time.thread_time_ns()
        rule(free, size)
        found.append(time.thread_time_ns() - before)
    return found


def _peer_any(peer: Peer, asked: Sequence[tuple[tuple[int, ...], int]]) -> float | None:
    if max(len(free) for free, _ in asked) > MOST_FREE:
        return None
    return median(_peer(peer, Request(free, size)) for free, size in asked)


def _peer(peer: Peer, request: Request) -> float:
    """Return the CPU time of one call: the mean of as many as fit a moment."""
    once = peer.ask(request).cpu_ns
    repeat = min(LONG_ENOUGH_NS // max(once, 1), MOST_REPEATS)
    if repeat < 2:
        return once
    again = Request(request.free, request.size, request.required, repeat)
    return peer.ask(again).cpu_ns
