"""Families of sets of NUMA nodes, without a list of their sets.

A machine of 34 NUMA nodes has 17 billion sets of them. A family is kept as a zero-suppressed
decision diagram (Minato, DAC 1993): a graph that asks for one node after the other, the highest
first, with one part for each question that two sets are still told apart by. So a family of all
sets that have enough of something has some hundred parts, and what is asked of it takes as long as
it has parts, not sets. Knuth, The Art of Computer Programming 4A, 7.1.4, has the operations.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from operator import or_
from typing import TypeAlias
from weakref import WeakValueDictionary

MOST_PARTS = 1 << 16
"""Parts that one operation makes at most, about a second."""
MAX_NODE = 63
"""The highest id of a NUMA node that fits a set."""


class TooManyError(Exception):
    """An operation would make more than :data:`MOST_PARTS` parts."""


class Family:
    """A family of sets; equal families are the same object, of those that one thread makes."""

    __slots__ = ("__weakref__", "bit", "count", "having", "sizes", "without")

    bit: int  # the highest node that any set has; -1 for the two families without one
    # without, having: the sets that lack it, and those that have it, less that node
    without: "Family"
    having: "Family"
    count: int  # the number of sets
    sizes: int  # the numbers of nodes that sets have, as bits

    def __bool__(self) -> bool:
        return self.count > 0

    def __contains__(self, mask: int) -> bool:
        family = self
        while family.bit >= max(mask.bit_length() - 1, 0):
            has_it = mask >> family.bit & 1
            mask ^= has_it << family.bit
            family = family.having if has_it else family.without
        return family is EMPTY_SET and not mask

    def __and__(self, other: "Family") -> "Family":
        return _Operation().common(self, other)

    def __or__(self, other: "Family") -> "Family":
        return _Operation().union(self, other)

    def __sub__(self, other: "Family") -> "Family":
        return _Operation().difference(self, other)

    def overlaps(self, other: "Family") -> "Family":
        """Return what a set of this family and one of the other have in common, of all pairs."""
        return _Operation().overlaps(self, other)

    @property
    def nonempty(self) -> "Family":
        """The family without the set of no nodes."""
        return NO_SET if self.bit < 0 else _part(self.bit, self.without.nonempty, self.having)

    @property
    def narrowest(self) -> int | None:
        """The fewest nodes that a set has; ``None`` without any set."""
        return (self.sizes & -self.sizes).bit_length() - 1 if self.sizes else None

    def of_size(self, size: int) -> "Family":
        return _Operation().of_size(self, size)

    def including(self, mask: int) -> "Family":
        """Return the sets that include that of *mask*."""
        return _Operation().including(self, mask)

    def __iter__(self) -> Iterator[int]:
        """Yield the sets, those of fewer nodes first, then those of lower nodes."""
        for size in range(self.sizes.bit_length()):
            if self.sizes >> size & 1:
                yield from _ascending(self, size)


def _ascending(family: Family, size: int) -> Iterator[int]:
    """Yield the sets of *size* nodes in the order of their numbers."""
    if not family.sizes >> size & 1:
        return
    if family.bit < 0:
        yield 0
        return
    yield from _ascending(family.without, size)
    if size:
        yield from (mask | 1 << family.bit for mask in _ascending(family.having, size - 1))


def _leaf(count: int) -> Family:
    family = Family()
    family.bit, family.count, family.sizes = -1, count, count
    family.without = family.having = family
    return family


NO_SET, EMPTY_SET = _leaf(0), _leaf(1)
"""The family without a set, and the one that only has the set of no nodes."""

_known: WeakValueDictionary[tuple[int, int, int], Family] = WeakValueDictionary()
"""Each family once. A family keeps its two parts, so that their addresses stay theirs."""


def _part(bit: int, without: Family, having: Family) -> Family:
    if not having.count:
        return without
    key = (bit, id(without), id(having))
    family = _known.get(key)
    if family is None:
        family = Family()
        family.bit, family.without, family.having = bit, without, having
        family.count = without.count + having.count
        family.sizes = without.sizes | having.sizes << 1
        _known[key] = family
    return family


def one_set(mask: int) -> Family:
    family = EMPTY_SET
    for bit in range(mask.bit_length()):
        if mask >> bit & 1:
            family = _part(bit, NO_SET, family)
    return family


def all_sets(mask: int) -> Family:
    """Return all sets of the nodes of *mask*, the empty one too."""
    family = EMPTY_SET
    for bit in range(mask.bit_length()):
        if mask >> bit & 1:
            family = _part(bit, family, family)
    return family


def these_sets(masks: Iterable[int]) -> Family:
    return reduce(or_, map(one_set, masks), NO_SET)


def with_amount(amounts: Mapping[int, int], least: int) -> Family:
    """Return the sets of nodes that have *least* or more together.

    Args:
        amounts: by node, not negative; sets have no other nodes.
        least: the same unit.
    """
    return _Amounts(amounts).reaching(least)


def near_any(groups: Mapping[int, int], least: int, nodes: int) -> Family:
    """Return the sets of *nodes* that have a node of groups of *least* or more together.

    Args:
        groups: the amount of each group, by the set of its nodes; a group counts once, however
            many of its nodes a set has.
    """
    reachable = {mask & nodes: 0 for mask in groups if mask & nodes}
    for mask, amount in groups.items():
        if mask & nodes:
            reachable[mask & nodes] += amount
    if all(mask.bit_count() == 1 for mask in reachable):
        amounts = {bit: reachable.get(1 << bit, 0) for bit in range(nodes.bit_length())}
        return with_amount({bit: it for bit, it in amounts.items() if nodes >> bit & 1}, least)
    return _Groups(reachable, nodes).reaching(nodes.bit_length() - 1, least, 0)


class _Amounts:
    """Makes the families of one list of amounts, each for all totals that have the same sets."""

    _Range: TypeAlias = tuple[float, float, Family]  # above, up to, and the sets for such totals

    def __init__(self, amounts: Mapping[int, int]) -> None:
        self._bits = sorted(amounts, reverse=True)
        self._amounts = [amounts[bit] for bit in self._bits]
        self._rest = [sum(self._amounts[at:]) for at in range(len(self._bits) + 1)]
        lower = EMPTY_SET
        every = [lower]
        for bit in reversed(self._bits):
            lower = _part(bit, lower, lower)
            every.append(lower)
        self._every = every[::-1]
        self._known: list[list[_Amounts._Range]] = [[] for _ in self._bits]
        self._parts = 0

    def reaching(self, least: int) -> Family:
        return self._from(0, least)[2]

    def _from(self, at: int, least: float) -> "_Amounts._Range":
        """Return the sets of the nodes from *at* on that have *least*."""
        if least <= 0:
            return float("-inf"), 0, self._every[at]
        if least > self._rest[at]:
            return self._rest[at], float("inf"), NO_SET
        ranges = self._known[at]
        place = bisect_left(ranges, least, key=lambda it: it[1])
        if place < len(ranges) and ranges[place][0] < least:
            return ranges[place]
        self._parts += 1
        if self._parts > MOST_PARTS:
            raise TooManyError
        amount = self._amounts[at]
        above, upto, without = self._from(at + 1, least)
        above_, upto_, having = self._from(at + 1, least - amount)
        family = _part(self._bits[at], without, having)
        found = max(above, above_ + amount), min(upto, upto_ + amount), family
        ranges.insert(place, found)
        return found


class _Groups:
    """Makes the families of sets near enough groups of several nodes."""

    def __init__(self, groups: Mapping[int, int], nodes: int) -> None:
        self._groups = list(groups.items())
        self._nodes = nodes
        self._known: dict[tuple[int, int, int], Family] = {}

    def reaching(self, bit: int, least: int, met: int) -> Family:
        """Return the sets of nodes up to *bit* that reach *least* with groups not *met* yet."""
        if least <= 0:
            return all_sets(self._nodes & ((1 << bit + 1) - 1))
        if bit < 0:
            return NO_SET
        below = (1 << bit + 1) - 1
        # A group without a node from here on makes no difference any more.
        met |= sum(1 << at for at, (mask, _) in enumerate(self._groups) if not mask & below)
        key = bit, least, met
        if (family := self._known.get(key)) is None:
            if len(self._known) > MOST_PARTS:
                raise TooManyError
            family = self.reaching(bit - 1, least, met)
            if self._nodes >> bit & 1:
                new = [
                    at
                    for at, (mask, _) in enumerate(self._groups)
                    if mask >> bit & 1 and not met >> at & 1
                ]
                gained = sum(self._groups[at][1] for at in new)
                then = met | sum(1 << at for at in new)
                family = _part(bit, family, self.reaching(bit - 1, least - gained, then))
            self._known[key] = family
        return family


class _Operation:
    """One operation, which remembers its answers while it lasts."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, Family, Family | int], Family] = {}

    def _keep(self, key: tuple[str, Family, Family | int], family: Family) -> Family:
        if len(self._known) > MOST_PARTS:
            raise TooManyError
        self._known[key] = family
        return family

    def union(self, one: Family, other: Family) -> Family:
        if one is other or not other.count:
            return one
        if not one.count:
            return other
        if one.bit < other.bit:
            one, other = other, one
        key = ("or", one, other)
        if (family := self._known.get(key)) is not None:
            return family
        if one.bit > other.bit:
            family = _part(one.bit, self.union(one.without, other), one.having)
        else:
            without = self.union(one.without, other.without)
            family = _part(one.bit, without, self.union(one.having, other.having))
        return self._keep(key, family)

    def common(self, one: Family, other: Family) -> Family:
        if one is other:
            return one
        if not one.count or not other.count:
            return NO_SET
        if one.bit < other.bit:
            one, other = other, one
        key = ("and", one, other)
        if (family := self._known.get(key)) is not None:
            return family
        if one.bit > other.bit:
            family = self.common(one.without, other)
        else:
            without = self.common(one.without, other.without)
            family = _part(one.bit, without, self.common(one.having, other.having))
        return self._keep(key, family)

    def difference(self, one: Family, other: Family) -> Family:
        if one is other or not one.count:
            return NO_SET
        if not other.count:
            return one
        key = ("less", one, other)
        if (family := self._known.get(key)) is not None:
            return family
        if one.bit < other.bit:
            family = self.difference(one, other.without)
        elif one.bit > other.bit:
            family = _part(one.bit, self.difference(one.without, other), one.having)
        else:
            without = self.difference(one.without, other.without)
            family = _part(one.bit, without, self.difference(one.having, other.having))
        return self._keep(key, family)

    def overlaps(self, one: Family, other: Family) -> Family:
        if not one.count or not other.count:
            return NO_SET
        if one.bit < other.bit:
            one, other = other, one
        if other.bit < 0:
            return EMPTY_SET
        key = ("overlap", one, other)
        if (family := self._known.get(key)) is not None:
            return family
        if one.bit > other.bit:
            family = self.overlaps(self.union(one.without, one.having), other)
        else:
            everything = self.union(other.without, other.having)
            without = self.union(
                self.overlaps(one.without, everything), self.overlaps(one.having, other.without)
            )
            family = _part(one.bit, without, self.overlaps(one.having, other.having))
        return self._keep(key, family)

    def of_size(self, one: Family, size: int) -> Family:
        if size < 0 or not one.sizes >> size & 1:
            return NO_SET
        if one.sizes == 1 << size:
            return one
        key = ("size", one, size)
        if (family := self._known.get(key)) is not None:
            return family
        having = self.of_size(one.having, size - 1)
        return self._keep(key, _part(one.bit, self.of_size(one.without, size), having))

    def including(self, one: Family, mask: int) -> Family:
        if not mask:
            return one
        highest = mask.bit_length() - 1
        if one.bit < highest:
            return NO_SET
        key = ("include", one, mask)
        if (family := self._known.get(key)) is not None:
            return family
        if one.bit > highest:
            having = self.including(one.having, mask)
            family = _part(one.bit, self.including(one.without, mask), having)
        else:
            family = _part(one.bit, NO_SET, self.including(one.having, mask ^ 1 << highest))
        return self._keep(key, family)


def mask_of(nodes: Iterable[int]) -> int:
    """Return the set of *nodes*; ids that the kubelet cannot represent share the bit above all.

    A device plugin can report node -1: its devices then count as near a node that no machine has.
    """
    bits = (node if 0 <= node <= MAX_NODE else MAX_NODE + 1 for node in nodes)
    return reduce(or_, (1 << bit for bit in bits), 0)


def nodes_of(mask: int) -> tuple[int, ...]:
    """Return the nodes of a set, ascending."""
    return tuple(node for node in range(mask.bit_length()) if mask >> node & 1)
