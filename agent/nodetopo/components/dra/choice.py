"""The choice of GPU sets published as devices: those that single GPUs cannot replace.

Each device costs bytes in every watch cache and CPU of the scheduler. A claim for a set has single
GPUs as its alternative (``firstAvailable``), and their order makes the first *k* free ones the set
that :meth:`Allocator.allocate` chooses, while at most *next(k)* GPUs are free, where *next(k)* is
the size after *k* (:func:`chain_sizes`; :func:`nodetopo.components.dra.sets.ranked`). So a set is
*dominated*, and left out, where both hold:

- every published set of its size has a higher score by itself (:meth:`Allocator.worth`), so that it
  is never chosen while one of them is free;
- any *next(k)* + 1 GPUs contain a published set, so that while none is free at most *next(k)* GPUs
  are, and the single GPUs yield the dominated set.

A set of one is left out too: a claim finds the best single GPU by an attribute
(:func:`nodetopo.components.dra.sets.best_of`). On eight GPUs of two sockets behind NVSwitch the
dominated sets span both sockets: 16 of the 28 pairs and 68 of the 70 sets of four. The proof covers
GPUs of equal health and policies that begin with terms of the set itself; under ``packed`` and
``distributed`` the published sets are the best by themselves.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import combinations
from math import comb

from nodetopo.allocation.allocator import Allocator

GpuIds = tuple[str, ...]

MOST_COMPARED = 192
"""Sets of one size that are compared. All of an 8-GPU machine are (70 of four); of 16 GPUs there
are 12,870 sets of eight, of which the best are. A choice."""


def sizes(count: int, wanted: Collection[int] = ()) -> tuple[int, ...]:
    """Return the sizes of the sets of *count* GPUs: *wanted*, or powers of two and all together.

    They begin at two.
    """
    powers = [1 << power for power in range(1, count.bit_length())]
    return tuple(sorted({size for size in wanted or (*powers, count) if 1 < size <= count}))


def chain_sizes(count: int, wanted: Collection[int] = ()) -> tuple[int, ...]:
    """Return the numbers of single GPUs that the order of *count* of them serves."""
    return tuple(sorted({*range(1, count + 1)[:1], *sizes(count), *sizes(count, wanted)}))


def chosen_sets(
    allocator: Allocator,
    members: Mapping[str, int | None],
    wanted: Collection[int],
    room: int,
) -> list[GpuIds]:
    """Return the sets to publish, by size and in device order, *room* of them at most.

    Args:
        members: NUMA node of each GPU by id, in device order.
        wanted: sizes; empty for the usual ones.
        room: how many fit. Where that is too few, each GPU is in one set of each size before it is
            in another.
    """
    place = {name: at for at, name in enumerate(members)}
    chain = chain_sizes(len(members), wanted)
    useful = {}
    for size in sizes(len(members), wanted):
        limit = min((larger for larger in chain if larger > size), default=size)
        useful[size] = _undominated(allocator, members, size, limit)
    if sum(map(len, useful.values())) > room:
        useful = _within(room, {size: _spread(sets) for size, sets in useful.items()}, len(members))
    return [
        ids
        for size in useful
        for ids in sorted(useful[size], key=lambda ids: [place[name] for name in ids])
    ]


def _undominated(
    allocator: Allocator, members: Mapping[str, int | None], size: int, limit: int
) -> list[GpuIds]:
    """Return the sets of *size* that are not dominated, best first; *limit* is the next size."""
    is_complete = comb(len(members), size) <= MOST_COMPARED
    candidates = combinations(members, size) if is_complete else _best(allocator, members, size)
    ranks: dict[tuple[int, ...], list[GpuIds]] = {}
    for ids in candidates:
        ranks.setdefault(allocator.worth(ids), []).append(ids)
    place = {name: 1 << at for at, name in enumerate(members)}
    found: list[GpuIds] = []
    for worth in sorted(ranks):
        found += ranks[worth]
        masks = [sum(place[name] for name in ids) for ids in found]
        if not is_complete or not _can_avoid(masks, len(members), limit + 1):
            break
    return found


def _best(allocator: Allocator, members: Mapping[str, int | None], size: int) -> Iterable[GpuIds]:
    """Return the best sets of *size*: of all GPUs, and of each NUMA node's GPUs."""
    usable = {name: node for name, node in members.items() if allocator.knows(name)}
    pools = [[name for name, node in usable.items() if node == each] for each in {*usable.values()}]
    found: dict[GpuIds, None] = {}
    for pool in (*pools, [*usable]):
        if len(pool) >= size:
            best = allocator.best_sets(pool, size, MOST_COMPARED // (len(pools) + 1))
            found.update(dict.fromkeys(best))
    return found


def _can_avoid(masks: Sequence[int], gpus: int, count: int) -> bool:
    """Return whether *count* of *gpus* GPUs contain none of the sets *masks*."""
    ending: list[list[int]] = [[] for _ in range(gpus)]
    for mask in masks:
        ending[mask.bit_length() - 1].append(mask)

    def search(taken: int, missing: int, start: int) -> bool:
        if missing == 0:
            return True
        for gpu in range(start, gpus - missing + 1):
            more = taken | 1 << gpu
            if all(mask & ~more for mask in ending[gpu]) and search(more, missing - 1, gpu + 1):
                return True
        return False

    return search(0, count, 0)


def _spread(sets: Sequence[GpuIds]) -> list[GpuIds]:
    """Return *sets* so that GPUs come equally often, as early as their order allows."""
    left, chosen = list(sets), []
    uses = dict.fromkeys((name for ids in sets for name in ids), 0)
    while left:
        ids = min(left, key=lambda ids: sum(uses[name] for name in ids))
        left.remove(ids)
        chosen.append(ids)
        for name in ids:
            uses[name] += 1
    return chosen


def _within(room: int, sets: Mapping[int, list[GpuIds]], gpus: int) -> dict[int, list[GpuIds]]:
    """Return the first of each size, so that they are *room* together."""
    counts = dict.fromkeys(sets, 0)
    for size in sorted(sets, reverse=True):
        counts[size] = min(-(-gpus // size), len(sets[size]), room)
        room -= counts[size]
    while room and (more := [size for size in sets if counts[size] < len(sets[size])]):
        size = min(more, key=lambda size: counts[size] * size)
        counts[size] += 1
        room -= 1
    return {size: sets[size][:count] for size, count in counts.items()}
