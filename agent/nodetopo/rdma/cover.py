"""Fewer HCAs than GPUs: which of them to take, so that each serves as many GPUs as the others.

Each HCA serves as many GPUs as every other, or one more, so none is idle. Of all such choices the
best has the fewest pairs at the farthest level, then at the next nearer one, and so on. Distances
of a node are those of a tree: if two GPUs share an HCA within some level, what one of them has
within it, the other has too. So the GPUs and HCAs within a level of each other form a cluster, and
clusters of lower levels are parts of it.

How many pairs stay within a cluster depends only on how many of its HCAs are taken and how many of
those serve one more: as many as it has GPUs, or as these HCAs can serve, whichever is fewer. A
table of each cluster by these two numbers has the best choice for each, and the table of a cluster
follows from those of its parts, as in the knapsack problem. Where distances are not a tree's, as a
file can claim, all choices are tried if they are few; of more, what the tables give is balanced all
the same, but might not be the nearest.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import combinations
from typing import TypeAlias

from msgspec import Struct

_Value: TypeAlias = tuple[int, int, tuple[int, ...]]
"""What pairs within clusters gain, what the taste of the chosen HCAs costs, and these HCAs."""

_Table: TypeAlias = Mapping[tuple[int, int], _Value]
"""The best choice by (number of HCAs, how many of them serve one more GPU)."""


class Cover(Struct, frozen=True, kw_only=True, dict=True):
    """What is to be covered."""

    gpus: Sequence[int]  # all to be served, in the order of their rails; any hashable numbers
    hcas: Sequence[int]  # more than `size`; of equal ones the first are taken
    size: int  # HCAs to take, at least one and fewer than `gpus`
    level: Callable[[int, int], int]  # distance of a GPU and an HCA, from 0 for the nearest
    # Decides between HCAs that are as near: what one costs for some GPUs.
    taste: Callable[[Sequence[int], int], int]

    @cached_property
    def levels(self) -> Mapping[tuple[int, int], int]:
        """The distance of each pair of a GPU and an HCA."""
        return {(gpu, hca): self.level(gpu, hca) for gpu in self.gpus for hca in self.hcas}

    @cached_property
    def is_tree(self) -> bool:
        """Whether any two GPUs have the same HCAs within a level, or none in common."""
        for farthest in set(self.levels.values()):
            near = {
                frozenset(hca for hca in self.hcas if self.levels[gpu, hca] <= farthest)
                for gpu in self.gpus
            }
            if not all(one.isdisjoint(other) for one, other in combinations(near, 2)):
                return False
        return True

    @property
    def shares(self) -> int:
        """How many GPUs an HCA serves at least."""
        return len(self.gpus) // self.size

    @property
    def larger(self) -> int:
        """How many HCAs serve one more."""
        return len(self.gpus) % self.size


def best_cover(cover: Cover) -> tuple[int, ...]:
    """Return the HCAs to take, in the order of *cover*."""
    farthest = max(cover.levels.values())
    table = _table(cover, cover.levels, cover.gpus, cover.hcas, farthest)
    chosen = set(table[cover.size, cover.larger][2])
    return tuple(hca for hca in cover.hcas if hca in chosen)


def _table(
    cover: Cover,
    levels: Mapping[tuple[int, int], int],
    gpus: Sequence[int],
    hcas: Sequence[int],
    farthest: int,
) -> _Table:
    """Return the table of the cluster of *gpus* and *hcas*, none farther apart than *farthest*."""
    nearer = [level for gpu in gpus for hca in hcas if (level := levels[gpu, hca]) < farthest]
    parts = _parts(levels, gpus, hcas, max(nearer)) if nearer else []
    within = {hca for _, part in parts for hca in part}
    table = _alike(cover, gpus, [hca for hca in hcas if hca not in within])
    for some, near in parts:
        level = max(levels[gpu, hca] for gpu in some for hca in near)
        table = _joined(
            cover,
            table,
            _kept(cover, len(some), level, farthest, _table(cover, levels, some, near, level)),
        )
    return table


def _parts(
    levels: Mapping[tuple[int, int], int],
    gpus: Sequence[int],
    hcas: Sequence[int],
    farthest: int,
) -> list[tuple[list[int], list[int]]]:
    """Return the clusters that *farthest* and what is nearer connect; without lone devices."""
    parts: list[tuple[list[int], list[int]]] = []
    for gpu in gpus:
        near = [hca for hca in hcas if levels[gpu, hca] <= farthest]
        if not near:
            continue
        touched = [part for part in parts if not set(near).isdisjoint(part[1])]
        parts = [part for part in parts if part not in touched]
        known = [*near, *(hca for _, part in touched for hca in part)]
        within = set(known)
        parts.append(
            (
                [*(one for part, _ in touched for one in part), gpu],
                [hca for hca in hcas if hca in within],
            )
        )
    return parts


def _kept(cover: Cover, gpus: int, level: int, outside: int, table: _Table) -> _Table:
    """Return *table* with what the pairs gain that stay within *level* rather than *outside*.

    One pair less at a level outweighs any number at nearer ones.
    """
    bits = len(cover.gpus).bit_length()
    gain = (1 << bits * outside) - (1 << bits * level)
    return {
        (taken, larger): (
            value[0] + gain * min(gpus, taken * cover.shares + larger),
            *value[1:],
        )
        for (taken, larger), value in table.items()
    }


def _alike(cover: Cover, gpus: Sequence[int], hcas: Sequence[int]) -> _Table:
    """Return the table of *hcas* that are as near to each of *gpus*: those of the best taste.

    Each is taken for a run of GPUs that are neighbours in the order of their rails.
    """
    table: dict[tuple[int, int], _Value] = {}
    for taken in range(min(len(hcas), cover.size) + 1):
        left, cost = list(hcas), 0
        for turn in range(taken):
            run = gpus[turn * len(gpus) // taken : (turn + 1) * len(gpus) // taken]
            tastes = [cover.taste(run, hca) for hca in left]
            cost += min(tastes)
            del left[tastes.index(min(tastes))]
        chosen = tuple(hca for hca in hcas if hca not in left)
        for larger in range(min(taken, cover.larger) + 1):
            table[taken, larger] = (0, cost, chosen)
    return table


def _joined(cover: Cover, one: _Table, other: _Table) -> _Table:
    """Return the table of two groups that share no HCA."""
    table: dict[tuple[int, int], _Value] = {}
    for (taken, larger), (gain, cost, chosen) in one.items():
        for (more_taken, more_larger), (more_gain, more_cost, more) in other.items():
            key = taken + more_taken, larger + more_larger
            if key[0] > cover.size or key[1] > cover.larger:
                continue
            best = table.get(key)
            value = gain + more_gain, cost + more_cost
            if best is None or (-value[0], value[1]) < (-best[0], best[1]):
                table[key] = (*value, chosen + more)
    return table
