"""What many GPUs that are left are worth, by definition, where many of them are alike.

GPUs that sit on one NUMA node and socket and reach all others alike are exchanged without any
change to what a set is worth. So a set is as many of each kind, and a packing is tried by
numbers: enough for 72 GPUs, of which two to the power of 72 sets could never be looked at.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import combinations, product
from math import prod

from nodetopo.model.snapshot import Snapshot
from tests.allocation.brute_facts import Machine

Counts = tuple[int, ...]
"""GPUs of each kind."""


class Alike:
    """The kinds of GPU of one machine without direct NVLinks."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._machine = Machine(snapshot)
        self.kinds = self._kinds()
        self.best = cache(self._best)
        self._worth = cache(self._worth_of)

    @property
    def sets(self) -> int:
        """How many different sets there are."""
        return prod(len(kind) + 1 for kind in self.kinds)

    def counts(self, gpus: Sequence[int]) -> Counts:
        """How many of *gpus*, by position, are of each kind."""
        return tuple(sum(gpu in kind for gpu in gpus) for kind in self.kinds)

    def total(self, gpus: Sequence[int]) -> int:
        """Jobs of 2, 4 and 8 GPUs, each size by itself, weigh 1, 2 and 3; 0.01 GB/s."""
        left = self.counts(gpus)
        return self.best(left, 2) + 2 * self.best(left, 4) + 3 * self.best(left, 8)

    def _kinds(self) -> list[list[int]]:
        kinds: list[list[int]] = []
        for gpu in range(len(self._machine.gpus)):
            for kind in kinds:
                if self._are_alike(kind[0], gpu):
                    kind.append(gpu)
                    break
            else:
                kinds.append([gpu])
        return kinds

    def _are_alike(self, a: int, b: int) -> bool:
        machine = self._machine
        others = [gpu for gpu in range(len(machine.gpus)) if gpu not in (a, b)]
        return (machine.nodes[a], machine.sockets[a]) == (
            machine.nodes[b],
            machine.sockets[b],
        ) and all(
            machine.hops[frozenset((a, gpu))] == machine.hops[frozenset((b, gpu))] for gpu in others
        )

    def _best(self, left: Counts, job: int) -> int:
        """A GPU of the first kind left is in no job, or in one of every make."""
        if sum(left) < job:
            return 0
        first = next(kind for kind, count in enumerate(left) if count)
        spared = tuple(count - (kind == first) for kind, count in enumerate(left))
        best = self.best(spared, job)
        for make in self._makes(left, job, first):
            rest = tuple(count - taken for count, taken in zip(left, make, strict=True))
            best = max(best, self._worth(make) + self.best(rest, job))
        return best

    def _makes(self, left: Counts, job: int, first: int) -> Iterator[Counts]:
        choices = (
            range(int(kind == first), min(count, job) + 1) for kind, count in enumerate(left)
        )
        return (make for make in product(*choices) if sum(make) == job)

    def _worth_of(self, make: Counts) -> int:
        """Its worst hop, and a tenth less for crossing NUMA nodes, and for crossing sockets."""
        machine = self._machine
        gpus = [g for kind, count in zip(self.kinds, make, strict=True) for g in kind[:count]]
        hop = min(machine.hops[frozenset(pair)] for pair in combinations(gpus, 2))
        nodes, sockets = {machine.nodes[g] for g in gpus}, {machine.sockets[g] for g in gpus}
        return hop * (10 - (len(nodes) > 1) - (len(sockets) > 1))
