"""Requests, and the comparison of an answer to the best set by definition."""

from collections.abc import Collection, Iterable, Iterator
from itertools import combinations
from random import Random
from typing import TypedDict

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.allocation.allocator import ALTERNATIVES, Allocator, preferred
from nodetopo.allocation.facts import facts
from nodetopo.allocation.rules import DEFAULT, Rules
from nodetopo.allocation.terms import Terms
from nodetopo.model.snapshot import Snapshot
from tests.allocation.brute_force import BruteForce, sets

REQUIRED_SHARE = 0.3
"""Of random requests, those with required GPUs."""


class _Asked(TypedDict):
    """A request in ids."""

    available: list[str]
    required: list[str]
    size: int
    degraded: list[str]


class Request(Struct, frozen=True):
    """GPU indices, how many to choose, and degraded ones."""

    free: tuple[int, ...]
    required: tuple[int, ...]
    size: int
    degraded: tuple[int, ...] = ()


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


def with_degraded(
    requests: Iterable[Request], indices: Collection[int], random: Random
) -> list[Request]:
    """The same where one to three GPUs are degraded, wherever they are."""
    return [
        replace(request, degraded=_some(random, indices, min(random.randint(1, 3), len(indices))))
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
        chosen = preferred(self.allocator, **self._asked(request))
        indices = tuple(sorted(self._index[one] for one in chosen))
        able, pool = self._able(request)
        truth = self._truth
        right, top = truth.best_of(able, pool)
        plain = truth.plain(right, pool, top)
        if indices != truth.indices(right):
            other = truth.plain(truth.mask(indices), pool, top)
            return [f"{request}: {_difference(other, plain)}"]
        taken, offered = self._positions(indices), self._positions(truth.indices(pool))
        score = self._terms.score(taken, offered, top=top)
        return [] if score.to_plain() == plain else [f"{request}: {score.to_plain()} not {plain}"]

    def _ranked(self, request: Request) -> list[str]:
        answer = self.allocator.allocate(**self._asked(request))
        found = [answer.indices, *(other.indices for other in answer.alternatives)]
        able, pool = self._able(request)
        right = self._truth.first_of(able, pool, 1 + ALTERNATIVES)
        _, top = self._truth.best_of(able, pool)
        wrong = [] if found == right else [f"{request}: ranked {found} not {right}"]
        counts = answer.score.counts_as_gb_s
        if counts is not None and counts != top / 10:
            wrong.append(f"{request}: counts as {counts} not {top / 10}")
        return wrong

    def _asked(self, request: Request) -> _Asked:
        return {
            "available": [self._ids[index] for index in request.free],
            "required": [self._ids[index] for index in request.required],
            "size": request.size,
            "degraded": [self._ids[index] for index in request.degraded],
        }

    def _able(self, request: Request) -> tuple[list[int], int]:
        """The sets with the fewest degraded GPUs, and the GPUs that count as free.

        Where the healthy and the required ones suffice, other degraded ones are in use for good.
        """
        truth = self._truth
        free, required = truth.mask(request.free), truth.mask(request.required)
        bad = truth.mask({*request.degraded} & {*truth.universe})
        every = list(sets(free, required, request.size))
        fewest = min((mask & bad).bit_count() for mask in every)
        sound = free & ~bad | required
        pool = sound if sound.bit_count() >= request.size else free
        return [mask for mask in every if (mask & bad).bit_count() == fewest], pool

    def _positions(self, indices: Iterable[int]) -> int:
        return sum(self._bits[index] for index in indices)


def _difference(answer: dict[str, object], right: dict[str, object]) -> str:
    differ = [name for name in right if answer[name] != right[name]]
    return ", ".join(f"{name} {answer[name]} not {right[name]}" for name in differ)
