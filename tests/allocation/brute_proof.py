"""Requests, and the comparison of an answer to the best set by definition."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from random import Random

from nodetopo.allocation.allocator import ALTERNATIVES, Allocator
from nodetopo.allocation.facts import facts
from nodetopo.allocation.remainder import later_masks
from nodetopo.allocation.rules import DEFAULT, Rules
from nodetopo.allocation.terms import Terms
from nodetopo.model.snapshot import Snapshot
from tests.allocation.brute_force import BruteForce

REQUIRED_SHARE = 0.3
"""Of random requests, those with required GPUs."""

KNOWN_SHARE = 0.7
"""Of the GPUs in use, those of which it is known when they get free."""


@dataclass(frozen=True, slots=True)
class Request:
    """GPU indices, how many to choose, and when some of those in use get free."""

    free: tuple[int, ...]
    required: tuple[int, ...]
    size: int
    ends: tuple[tuple[int, float], ...] = ()


def every_request(indices: Collection[int], random: Random) -> Iterator[Request]:
    """Every free set and size, without required GPUs and with some at random."""
    for count in range(1, len(indices) + 1):
        for free in combinations(sorted(indices), count):
            for size in range(1, count + 1):
                yield Request(free, (), size)
                yield Request(free, _some(random, free, random.randint(1, size)), size)


def random_requests(indices: Collection[int], random: Random, number: int) -> Iterator[Request]:
    """Free sets of every size alike, and every number of GPUs of them alike."""
    for _ in range(number):
        free = _some(random, indices, random.randint(1, len(indices)))
        size = random.randint(1, len(free))
        has_required = random.random() < REQUIRED_SHARE
        yield Request(free, _some(random, free, random.randint(1, size)) * has_required, size)


def with_ends(
    requests: Iterable[Request], indices: Collection[int], random: Random
) -> list[Request]:
    """The same where each GPU in use gets free with some other, alone, or nobody knows when."""
    return [
        replace(
            request,
            ends=tuple(
                (gpu, float(random.randint(0, 4)))
                for gpu in sorted({*indices} - {*request.free})
                if random.random() < KNOWN_SHARE
            ),
        )
        for request in requests
    ]


def _some(random: Random, of: Collection[int], number: int) -> tuple[int, ...]:
    return tuple(sorted(random.sample(sorted(of), number)))


class Proof:
    """Compare the answers for one machine and one choice of rules to the truth."""

    def __init__(self, snapshot: Snapshot, rules: Rules = DEFAULT) -> None:
        self.allocator = Allocator(snapshot, rules)
        self._terms = Terms(facts(snapshot), rules)
        self._truth = BruteForce(snapshot, rules)
        self._ids = {gpu.index: gpu.id for gpu in snapshot.gpus}
        self._bits = {gpu.index: 1 << place for place, gpu in enumerate(snapshot.gpus)}
        self._index = {gpu.id: gpu.index for gpu in snapshot.gpus}

    @property
    def is_exact(self) -> bool:
        """Whether the engine says that it finds the best set."""
        return self.allocator._engine.is_exact

    def look_at(self, universe: Collection[int]) -> None:
        """Let requests name only these GPUs from now on, so that few sets have figures."""
        self._truth = self._truth.within(universe)

    def wrong(self, requests: Iterable[Request], *, ranked_every: int) -> list[str]:
        """Say which answers differ; the next best sets too of every so many requests."""
        found = []
        for number, request in enumerate(requests):
            found += self._best(request)
            if number % ranked_every == 0:
                found += self._ranked(request)
        return found

    def _best(self, request: Request) -> list[str]:
        ids = self.allocator.best(
            [self._ids[index] for index in request.free],
            [self._ids[index] for index in request.required],
            request.size,
            {self._ids[index]: end for index, end in request.ends},
        )
        chosen = tuple(sorted(self._index[one] for one in ids))
        truth = self._truth
        truth.ends = dict(request.ends)
        free = truth.mask(request.free)
        right = truth.best(free, truth.mask(request.required), request.size)
        if chosen != truth.indices(right):
            other = truth.plain(truth.mask(chosen), free)
            return [f"{request}: {_difference(other, truth.plain(right, free))}"]
        later = later_masks({self._bits[index]: end for index, end in request.ends})
        taken, offered = self._positions(chosen), self._positions(request.free)
        score = self._terms.score(taken, offered, later=later)
        plain = truth.plain(right, free)
        return [] if score.to_plain() == plain else [f"{request}: {score.to_plain()} not {plain}"]

    def _ranked(self, request: Request) -> list[str]:
        answer = self.allocator.allocate(
            available=[self._ids[index] for index in request.free],
            required=[self._ids[index] for index in request.required],
            size=request.size,
            ends={self._ids[index]: end for index, end in request.ends},
        )
        self._truth.ends = dict(request.ends)
        found = [answer.indices, *(other.indices for other in answer.alternatives)]
        free, required = self._truth.mask(request.free), self._truth.mask(request.required)
        right = self._truth.first(free, required, request.size, 1 + ALTERNATIVES)
        return [] if found == right else [f"{request}: ranked {found} not {right}"]

    def _positions(self, indices: Iterable[int]) -> int:
        return sum(self._bits[index] for index in indices)


def _difference(answer: dict[str, object], right: dict[str, object]) -> str:
    differ = [name for name in right if answer[name] != right[name]]
    return ", ".join(f"{name} {answer[name]} not {right[name]}" for name in differ)
