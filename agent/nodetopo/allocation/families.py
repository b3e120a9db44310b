"""Families of sets of GPUs, and an integer for every set, as bit vectors.

A family is an integer: its bit *s* says whether the set *s*, itself a mask of GPUs, belongs to it.
65,536 bits hold any family of sets of 16 GPUs, and ``&`` intersects two in about a microsecond.

Slices are an integer for every set at once: slice *i* is the family of the sets in whose integer
bit *i* is 1. Adding two of them, or taking the greater for every set, costs a few operations on
families for every bit, however many sets there are.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import zip_longest

from nodetopo.allocation.masks import bits, positions

Family = int
Slices = list[Family]


class Families:
    """The families of the sets of *count* GPUs, at most 16."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.everyone = (1 << count) - 1  # the set of all GPUs
        self.every = (1 << (1 << count)) - 1  # all sets, the empty one included
        # has, lacks: for each GPU, the family of the sets with it and without it
        self.has = tuple(self._with(gpu) for gpu in range(count))
        self.lacks = tuple(self.every ^ family for family in self.has)

    def _with(self, gpu: int) -> Family:
        half = 1 << gpu
        family, width = ((1 << half) - 1) << half, 2 * half
        while width < 1 << self.count:
            family |= family << width
            width *= 2
        return family

    @cached_property
    def sizes(self) -> tuple[Family, ...]:
        """The family of the sets of each size from 0 on."""
        numbers = self.numbers(self.everyone)
        return tuple(self.equal(numbers, size) for size in range(self.count + 1))

    def numbers(self, members: int) -> Slices:
        """Return how many of *members* each set has."""
        return self.sums([members >> gpu & 1 for gpu in range(self.count)])

    def lacking(self, members: int) -> Slices:
        """Return how many of *members* each set lacks."""
        slices: Slices = []
        for gpu in range(self.count):
            one_more = added(slices, constant((1 << (1 << gpu)) - 1, members >> gpu & 1))
            slices = doubled(one_more, slices, 1 << gpu)
        return slices

    def within(self, members: int) -> Family:
        """Return the sets that have no other GPUs than *members*."""
        family = self.every
        for gpu in positions(self.everyone & ~members):
            family &= self.lacks[gpu]
        return family

    def around(self, members: int) -> Family:
        """Return the sets that have all of *members*."""
        family = self.every
        for gpu in positions(members):
            family &= self.has[gpu]
        return family

    def touching(self, members: int) -> Family:
        """Return the sets that have any of *members*."""
        family = 0
        for gpu in positions(members):
            family |= self.has[gpu]
        return family

    def equal(self, slices: Slices, value: int) -> Family:
        """Return the sets whose integer is *value*."""
        if value >> len(slices):
            return 0
        family = self.every
        for place, one in enumerate(slices):
            family &= one if value >> place & 1 else self.every ^ one
        return family

    def sums(self, weights: Sequence[int]) -> Slices:
        """Return the sum over the GPUs of each set of their *weights*, none negative.

        The sets of the first GPUs are known when the next GPU doubles them.
        """
        slices: Slices = []
        for gpu, weight in enumerate(weights):
            width = 1 << gpu
            slices = doubled(slices, added(slices, constant((1 << width) - 1, weight)), width)
        return slices

    def pair_sums(self, weights: Sequence[Sequence[int]]) -> Slices:
        """Return the sum over the pairs of each set of their *weights*, none negative."""
        slices: Slices = []
        for gpu, row in enumerate(weights):
            slices = doubled(slices, added(slices, self.sums(row[:gpu])), 1 << gpu)
        return slices

    def most_within(self, slices: Slices) -> Slices:
        """Return for each set the greatest integer of the sets within it, itself included."""
        for gpu, lacks in enumerate(self.lacks):
            slices = greatest(slices, [one << (1 << gpu) for one in among(lacks, slices)])
        return slices

    def rings(self, joined: Sequence[int]) -> Family:
        """Return the sets of three GPUs or more through which a ring closes.

        *joined* is for each GPU the mask of those that it reaches. The recurrence of Held and Karp
        over subsets, for all sets at once: the paths from the highest GPU of a set that end at some
        other GPU are those through one GPU less, and one hop. A path that visits GPUs in ascending
        order is found in one pass over them; others take a pass more for each descent.
        """
        found = 0
        for start, near in enumerate(joined):
            lower = (1 << start) - 1
            hops = [positions(joined[gpu] & lower) for gpu in range(start)]
            first = {gpu: 1 << (1 << gpu) for gpu in positions(near & lower)}
            ends, changed = dict(first), near & lower
            while changed:
                before, changed = changed, 0
                for gpu, others in enumerate(hops):
                    if not (before | changed) & joined[gpu]:
                        continue
                    paths = 0
                    for last in others:
                        paths |= ends.get(last, 0)
                    paths = (paths & self.lacks[gpu]) << (1 << gpu)
                    known = ends.get(gpu, 0)
                    if paths | known != known:
                        ends[gpu] = paths | known
                        changed |= 1 << gpu
            closed = 0
            for gpu, alone in first.items():
                closed |= ends[gpu] ^ alone
            found |= closed << (1 << start)
        return found

    def complement(self, family: Family) -> Family:
        """Return the family of the sets that lack exactly the GPUs of a set of *family*."""
        width = 1 << self.count
        size = -(-width // 8)
        mirrored = family.to_bytes(size, "little").translate(_MIRRORED)
        return int.from_bytes(mirrored, "big") >> 8 * size - width

    def valued(self, values: Mapping[int, int]) -> Slices:
        """Return the integers of the sets in *values*; any other set's is 0."""
        largest = max(values.values(), default=0)
        size = -(-largest.bit_length() // 8)
        table = bytearray(size << self.count)
        for mask, value in values.items():
            table[mask * size : (mask + 1) * size] = value.to_bytes(size, "little")
        slices = []
        for place in range(largest.bit_length()):
            plane = table[place // 8 :: size].translate(_DIGITS[place % 8])
            slices.append(int(plane[::-1], 2))
        return slices


_MIRRORED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))

_DIGITS = [bytes(48 + (byte >> place & 1) for byte in range(256)) for place in range(8)]


def constant(family: Family, value: int) -> Slices:
    """Return *value* for the sets of *family* and 0 for all others."""
    return [family if value >> place & 1 else 0 for place in range(value.bit_length())]


def added(a: Slices, b: Slices) -> Slices:
    """Return the sum of two integers for every set."""
    if not a or not b:
        return a or b
    result, carry = [], 0
    for x, y in zip_longest(a, b, fillvalue=0):
        both, either = x & y, x ^ y
        result.append(either ^ carry)
        carry = both | either & carry
    return [*result, carry] if carry else result


def subtracted(a: Slices, b: Slices) -> Slices:
    """Return the difference of two integers for every set, the second never the greater."""
    result, borrow = [], 0
    for x, y in zip_longest(a, b, fillvalue=0):
        differ = x ^ y
        result.append(differ ^ borrow)
        borrow = differ & y | (differ & borrow ^ borrow)
    return result


def total(parts: Iterable[Slices]) -> Slices:
    """Return the sum of all *parts* for every set."""
    result: Slices = []
    for part in parts:
        result = added(result, part)
    return result


def multiplied(a: Slices, factor: int) -> Slices:
    """Return *factor* times the integer of every set."""
    return total([0] * (bit.bit_length() - 1) + a for bit in bits(factor))


def greatest(a: Slices, b: Slices) -> Slices:
    """Return the greater of two integers for every set."""
    if not a or not b:
        return a or b
    triples = [(x, y, x ^ y) for x, y in zip_longest(a, b, fillvalue=0)]
    is_less = 0
    for _, y, differ in triples:
        is_less ^= (is_less ^ y) & differ  # a higher bit that differs decides
    return [x ^ differ & is_less for x, _, differ in triples]


def among(family: Family, slices: Slices) -> Slices:
    """Return the integers of the sets of *family*, and 0 for all others."""
    return [one & family for one in slices]


def least(family: Family, slices: Slices) -> Family:
    """Return the sets of *family* whose integer is the least."""
    for one in reversed(slices):
        larger = family & one
        if larger != family:
            family ^= larger
    return family


def most(family: Family, slices: Slices) -> Family:
    """Return the sets of *family* whose integer is the greatest."""
    for one in reversed(slices):
        family = family & one or family
    return family


def at_least(family: Family, slices: Slices, bound: int) -> Family:
    """Return the sets of *family* whose integer is *bound* or more."""
    if bound >> len(slices):
        return 0
    equal, more = family, 0
    for place, one in reversed(tuple(enumerate(slices))):
        if bound >> place & 1:
            equal &= one
        else:
            more |= equal & one
            equal &= ~one
    return equal | more


def value(slices: Slices, mask: int) -> int:
    """Return the integer of one set."""
    return sum((one >> mask & 1) << place for place, one in enumerate(slices))


def highest(family: Family) -> int:
    """Return the set of *family* with the highest mask; it has one set at least."""
    return family.bit_length() - 1


def sets_of(family: Family) -> list[int]:
    """Return the sets of *family*, those with the highest masks first."""
    sets = []
    while family:
        sets.append(highest(family))
        family ^= 1 << sets[-1]
    return sets


def doubled(without: Slices, with_it: Slices, width: int) -> Slices:
    """Return the integers of the sets *without* one more GPU, and of those *with_it*.

    *width* is the number of sets without it.
    """
    pairs = zip_longest(without, with_it, fillvalue=0)
    return [low | high << width for low, high in pairs]
