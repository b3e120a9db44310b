"""The best of the GPU sets that sharing leaves open: by looking at all, or step by step."""

from collections.abc import Iterator
from heapq import nsmallest
from itertools import combinations, product
from typing import Protocol

from agent.allocation.masks import bits, positions
from agent.allocation.shared.counts import Choice
from agent.allocation.shared.terms import Leaves
from agent.allocation.terms import LARGEST_MESH

ROUNDS = 8
"""Exchanges of one GPU that are tried at most, best first."""

_Judged = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
_Key = tuple[tuple[int, ...], int, int, tuple[int, ...], tuple[int, ...]]


class SetSearch(Protocol):
    """A way to find the best sets of a choice; safe to share between threads."""

    @property
    def name(self) -> str:
        """``tree``, ``table`` or ``exchange``."""
        ...

    @property
    def is_exact(self) -> bool:
        """Whether the first set is proven to be the best of all."""
        ...

    def prepare(self) -> None:
        """Work out now what requests would have to wait for."""
        ...

    def ranked(self, choice: Choice, count: int) -> list[int]:
        """Return the *count* best sets, best first; fewer only where there are fewer."""
        ...


class EnumeratedSets:
    """Look at every set: any shape, 252 sets at most for 10 GPUs."""

    name = "table"
    is_exact = True

    def __init__(self, leaves: Leaves) -> None:
        self._keys = _Keys(leaves)

    def prepare(self) -> None:
        """Judge every set now, on a machine of no more GPUs than the largest mesh."""
        self._keys.prepare()

    def ranked(self, choice: Choice, count: int) -> list[int]:
        """Return the *count* best sets, best first."""
        sets = [mask for mask in _sets(choice) if not choice.needed or choice.room(mask) >= 0]
        if count == 1:
            return [min(sets, key=lambda mask: self._keys.key(mask, choice))] if sets else []
        return nsmallest(count, sets, key=lambda mask: self._keys.key(mask, choice))


class ExchangedSets:
    """Begin with the roomiest GPUs, then exchange one for another while that is better.

    For irregular machines of more than 16 GPUs and meshes of more than 10; none is known to
    have been built. It may miss the best set, and says so.
    """

    name = "exchange"
    is_exact = False

    def __init__(self, leaves: Leaves) -> None:
        self._keys = _Keys(leaves)

    def prepare(self) -> None:
        """Do nothing: too many sets to judge beforehand."""

    def ranked(self, choice: Choice, count: int) -> list[int]:
        """Return the best set that was found and those that it won against last."""
        roomiest = sorted(positions(choice.others), key=lambda gpu: (-choice.free[gpu], gpu))
        missing = choice.count - choice.base.bit_count()
        mask = choice.base | sum(1 << gpu for gpu in roomiest[:missing])
        if choice.room(mask) < 0 or mask.bit_count() < choice.count:
            return []
        found = [mask]
        for _ in range(ROUNDS):
            before = found[0]
            sets = {before, *_exchanges(before, choice)}
            found = nsmallest(count, sets, key=lambda mask: self._keys.key(mask, choice))
            if found[0] == before:
                break
        return found


class _Keys:
    """Compare sets; what does not depend on the request is worked out once for each set."""

    def __init__(self, leaves: Leaves) -> None:
        names = leaves.of_the_set
        cut = names.index("idle_gpus") if "idle_gpus" in names else len(names)
        self._before = names[:cut]
        self._after = tuple(name for name in names[cut:] if name not in ("idle_gpus", "left"))
        self._leaves = leaves
        self._known: dict[int, _Judged] = {}

    def prepare(self) -> None:
        """Judge every set."""
        gpus = len(self._leaves.terms.facts.indices)
        if gpus <= LARGEST_MESH:
            for mask in range(1, 1 << gpus):
                self._judged(mask)

    def key(self, mask: int, choice: Choice) -> _Key:
        """Return what to compare, less is better."""
        before, after, order = self._judged(mask)
        if not choice.needed:
            return before, 0, 0, after, order
        return before, (mask & choice.idle).bit_count(), choice.room(mask), after, order

    def _judged(self, mask: int) -> _Judged:
        known = self._known.get(mask)
        if known is None:
            figures = self._leaves.figures(mask)
            known = (
                tuple(figures[name] for name in self._before),
                tuple(figures[name] for name in self._after),
                positions(mask),
            )
            if self._leaves.terms.is_small:  # at most 65,536 sets
                self._known[mask] = known
        return known


def _sets(choice: Choice) -> Iterator[int]:
    missing = choice.count - choice.base.bit_count()
    return (choice.base | sum(some) for some in combinations(bits(choice.others), missing))


def _exchanges(mask: int, choice: Choice) -> Iterator[int]:
    pairs = product(bits(mask & ~choice.base), bits(choice.others & ~mask))
    return (other for out, into in pairs if choice.room(other := mask ^ out ^ into) >= 0)
