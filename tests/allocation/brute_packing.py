"""What is left, packed with jobs of one size in the best of all ways."""

from collections.abc import Callable
from functools import cache
from itertools import combinations


class Packing:
    """The best packings of all subsets of *count* GPUs; sets are bit masks."""

    def __init__(self, worth: Callable[[int], int], count: int) -> None:
        self._worth = worth
        self._count = count
        self.best = cache(self._best)
        self._jobs = cache(self._every_job)

    def total(self, left: int) -> int:
        """Jobs of 2, 4 and 8 GPUs, each size by itself, weigh 1, 2 and 3."""
        return self.best(left, 2) + 2 * self.best(left, 4) + 3 * self.best(left, 8)

    def _best(self, left: int, job: int) -> int:
        """The most that disjoint jobs of one size are worth together."""
        count = left.bit_count()
        if count < job:
            return 0
        if count == job:
            return self._worth(left)
        if count < 2 * job:  # one job at most, so one GPU at least can be left out
            return max(self.best(left ^ bit, job) for bit in bits(left))
        lowest = left & -left
        best = self.best(left ^ lowest, job)
        others = (count - job) // job
        for worth, chosen, most in self._jobs(lowest, job):
            if worth + others * most <= best:
                break  # and so are all that follow
            if chosen & left == chosen:
                best = max(best, worth + self.best(left ^ chosen, job))
        return best

    def _every_job(self, lowest: int, job: int) -> list[tuple[int, int, int]]:
        """Worth and mask of every job whose lowest GPU it is, and the most any job is worth."""
        higher = bits((1 << self._count) - 2 * lowest)
        jobs = [lowest + sum(some) for some in combinations(higher, job - 1)]
        most = self._most(job)
        return sorted(((self._worth(mask), mask, most) for mask in jobs), reverse=True)

    def _most(self, job: int) -> int:
        everyone = bits((1 << self._count) - 1)
        return max(self._worth(sum(some)) for some in combinations(everyone, job))


@cache
def bits(mask: int) -> tuple[int, ...]:
    """The masks of its single GPUs, ascending."""
    return tuple(1 << position for position in range(mask.bit_length()) if mask >> position & 1)
