"""The ways to divide GPUs into sets of one size, as NVIDIA's best-effort policy looks at them.

Everything here is about places in a list, not about GPUs: bit 0 is the first of the list.
"""

from dataclasses import dataclass
from itertools import combinations
from math import comb, factorial

from agent.allocation.masks import bits

Option = tuple[int, int]
"""A set that contains the first place left, and what is left then; bit masks. The second still
holds the padding, the first does not."""


@dataclass(frozen=True, slots=True)
class Plan:
    """All ways to divide a list.

    A list that does not divide evenly is padded at its end, and the padding is kept together
    in one set (go-gpuallocator v0.6.0, iterateGPUPartitions).

    Attributes:
        whole: all places, padding included.
        steps: for each remainder that can come up its options, in the order in which the
            policy tries them; remainders with the fewest places first.
    """

    whole: int
    steps: tuple[tuple[int, tuple[Option, ...]], ...]


def plan(count: int, size: int, required: int) -> Plan:
    """Return the plan for *count* places and sets of *size*, which is at least 2.

    The places *required*, a bit mask, stay together in one set without padding.
    """
    padding = ((1 << -count % size) - 1) << count
    whole = (1 << count) - 1 | padding
    options: dict[int, tuple[Option, ...]] = {}

    def is_allowed(chosen: int) -> bool:
        padded, met = chosen & padding, chosen & required
        return padded in (0, padding) and (not met or (met == required and not padded))

    def explore(rest: int) -> bool:
        """Note the options of *rest*; return whether it can be divided at all."""
        if rest not in options:
            first = rest & -rest
            candidates = (
                first + sum(others) for others in combinations(bits(rest ^ first), size - 1)
            )
            options[rest] = tuple(
                (chosen & ~padding, rest ^ chosen)
                for chosen in candidates
                if is_allowed(chosen) and (rest == chosen or explore(rest ^ chosen))
            )
        return bool(options[rest])

    explore(whole)
    ordered = sorted(options.items(), key=lambda step: step[0].bit_count())
    return Plan(whole=whole, steps=tuple(step for step in ordered if step[1]))


def divisions(count: int, size: int) -> int:
    """Return how many ways there are to divide *count* places, all of which the policy scores."""
    odd = count % size
    even = count - odd
    ways: int = factorial(even) // (factorial(size) ** (even // size) * factorial(even // size))
    return comb(count, odd) * ways
