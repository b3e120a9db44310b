"""The allocator of MIG devices and time-sliced replicas, of which a GPU has several.

Devices of one GPU are interchangeable and never connected GPUs, so the question is how many to
take from which GPU. *Packed* touches as few GPUs as possible and keeps idle ones whole;
*distributed* lets every device join as few others as possible. Among GPU sets that are equal in
that, the terms of whole GPUs decide: :mod:`nodetopo.allocation.shared.terms` has the order. Both
are exact wherever the allocator of whole GPUs is.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from nodetopo.allocation.allocator import ALTERNATIVES, Allocation, Alternative
from nodetopo.allocation.explain import MORE_IS_BETTER, Explanation
from nodetopo.allocation.facts import Facts, facts
from nodetopo.allocation.masks import positions
from nodetopo.allocation.requests import check_counts, sound_first, usable
from nodetopo.allocation.rules import DEFAULT, Rules
from nodetopo.allocation.score import Score
from nodetopo.allocation.shared.counts import (
    Choice,
    Pool,
    distributed,
    neighbours,
    packed,
    taken_evenly,
    taken_in_order,
)
from nodetopo.allocation.shared.devices import Devices
from nodetopo.allocation.shared.explain import SharedExplanation
from nodetopo.allocation.shared.search import search_for
from nodetopo.allocation.shared.terms import (
    LEAST_LOAD,
    Leaves,
    SharedScore,
    doubled,
    load,
    shared_terms,
)
from nodetopo.allocation.terms import Terms, in_order
from nodetopo.errors import InputError
from nodetopo.model.node import REPLICA
from nodetopo.model.snapshot import Snapshot

Counts = Sequence[int]
"""Devices of each GPU, by position."""


class SharedAllocator:
    """Answer requests for one resource from memory; safe to share between threads.

    The interface of :class:`nodetopo.allocation.allocator.Allocator`, with ids of devices in place
    of ids of GPUs.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        devices: Mapping[str, str],
        rules: Rules = DEFAULT,
        *,
        spread: bool,
    ) -> None:
        """Create the allocator of *devices*, a map of their ids to the id of their GPU.

        *spread* is what policies other than ``packed`` and ``distributed`` do: true for
        replicas, which slow each other down, false for MIG devices, which do not.
        """
        self._devices = Devices(snapshot, devices)
        by_gpu = zip(snapshot.gpus, self._devices.of_gpu, strict=True)
        own = [gpu for gpu, names in by_gpu if names]
        self._rules = rules
        self._leaves = Leaves(
            terms=Terms(facts(snapshot), rules),
            order=shared_terms(rules.policy, spread=spread),
            is_isolated=bool(own) and all(gpu.is_divided for gpu in own),
        )
        self._totals = tuple(map(len, self._devices.of_gpu))
        self._search = search_for(self._leaves, len(self._devices.gpu))
        whole = Explanation(snapshot, self._leaves.terms.facts, rules)
        is_mig = self._leaves.is_isolated and not any(REPLICA in name for name in devices)
        what = "MIG instance" if is_mig else "replica"
        # The inputs for explaining the answers.
        self.explanation = SharedExplanation(whole, self._leaves, what)
        healthy = set(usable(snapshot))
        self._usable = frozenset(name for name in self._devices.gpu if devices[name] in healthy)

    @property
    def facts(self) -> Facts:
        """All of the machine that answers depend on, except which GPUs are lost."""
        return self._leaves.terms.facts

    def allocate(
        self,
        *,
        available: Collection[str],
        required: Collection[str] = (),
        size: int,
        degraded: Collection[str] = (),
    ) -> Allocation:
        """Return the best *size* of *available* that contain *required*; all are ids.

        The answer does not depend on the order of any. Its *indices* are the GPUs touched. As few
        *degraded* devices as possible are chosen.
        The alternatives are other sets of GPUs; where only sets that load the GPUs more are
        left, the first of them is exact and the others are near it.
        """
        self._check(available, required, size)
        offered, kept = sound_first(available, required, size, degraded)
        pool = self._pool(offered, kept, size)
        ways = list(islice(self._ranked(pool), 1 + ALTERNATIVES))
        names = [self._devices.lowest(way, set(offered), set(kept)) for way in ways]
        return self._allocation(
            ways, names, pool, degraded, top=self._top(pool), is_optimal=self._search.is_exact
        )

    def describe(
        self,
        chosen: Collection[str],
        available: Collection[str] | None = None,
        degraded: Collection[str] = (),
    ) -> Allocation:
        """Return the score of *chosen*, whoever chose it, and the next best set.

        Without *available* it is not known what was in use, nor what other sets there were, and
        *chosen* is not called optimal.
        """
        size = len(set(chosen))
        self._check(chosen if available is None else available, chosen, size)
        taken = self._devices.counted(chosen)
        names = tuple(sorted(set(chosen), key=self.rank))
        if available is None:
            return self._allocation([taken], [names], None, degraded, is_optimal=False)
        pool, bad = self._pool(available, (), size), self._devices.on_gpus(degraded)
        offered, kept = sound_first(available, (), size, degraded)
        able = self._pool(offered, kept, size)
        top = self._top(able)
        ours = self._key(self._score(taken, pool, bad, top))
        others = [
            (way, self._devices.lowest(way, set(offered), set(kept)))
            for way in islice(self._ranked(able), 2)
            if ours != self._key(self._score(way, pool, bad, top))
        ][:1]
        is_best = not others or ours <= self._key(self._score(others[0][0], pool, bad, top))
        return self._allocation(
            [taken, *(way for way, _ in others)],
            [names, *(ids for _, ids in others)],
            pool,
            degraded,
            top=top,
            is_optimal=is_best and self._search.is_exact,
        )

    def best(self, available: Iterable[str], required: Iterable[str], size: int) -> tuple[str, ...]:
        """Return what :meth:`allocate` chooses, without the reasons.

        The caller makes sure that the request can be met: :meth:`knows` every id, *required* is
        part of *available*, and *size* lies between the two counts.
        """
        if size == 0:
            return ()
        offered, kept = set(available), set(required)
        way = next(self._least(self._pool(offered, kept, size), 1))
        return self._devices.lowest(way, offered, kept)

    def knows(self, name: str) -> bool:
        """Return whether *name* is the id of a device on a GPU that is not lost."""
        return name in self._usable

    def rank(self, name: str) -> tuple[int, str]:
        return self._devices.rank(name)

    def _pool(self, available: Iterable[str], required: Iterable[str], size: int) -> Pool:
        free = self._devices.counted(available)
        return Pool(
            used=tuple(total - n for total, n in zip(self._totals, free, strict=True)),
            free=free,
            required=self._devices.counted(required),
            size=size,
        )

    def _least(self, pool: Pool, count: int) -> Iterator[Counts]:
        """Yield the *count* best ways among those that are equal in what sharing compares first."""
        if self._leaves.is_spread:
            sets = self._sets(distributed(pool), count)
            return (taken_evenly(pool, mask) for mask in sets)
        choices = (self._sets(choice, count) for choice in packed(pool))
        return (taken_in_order(pool, mask) for sets in choices for mask in sets)

    def _sets(self, choice: Choice, count: int) -> list[int]:
        only = choice.only
        if only is None:
            return self._search.ranked(choice, count)
        return [only] if choice.room(only) >= 0 else []

    def _ranked(self, pool: Pool) -> Iterator[Counts]:
        """Yield ways on different sets of GPUs, best first."""
        ways = list(islice(self._least(pool, 1 + ALTERNATIVES), 1 + ALTERNATIVES))
        yield from ways
        if self._leaves.is_spread and len(ways) <= ALTERNATIVES:
            seen = set(map(_touched, ways))
            near = (mask for mask in neighbours(pool, _touched(ways[0])) if mask not in seen)
            others = {mask: taken_evenly(pool, mask) for mask in sorted(near, key=positions)}
            names = (*LEAST_LOAD, *self._leaves.of_the_set)
            rows = {mask: self._row(names, way, pool) for mask, way in others.items()}
            yield from (others[mask] for mask in in_order(rows, names))

    def _row(self, names: Sequence[str], way: Counts, pool: Pool) -> list[int]:
        """Return the terms of *names* for one way to distribute; less is better."""
        own = {"load": load(way, pool.used), "doubled": doubled(way)}
        terms = {**self._leaves.figures(_touched(way)), **own}
        return [terms[name] for name in names]

    def _top(self, pool: Pool) -> int:
        """Return the bandwidth of which a set needs a share to be equal to the best, 0.1 GB/s."""
        choices = [distributed(pool)] if self._leaves.is_spread else packed(pool)
        choice, best = next((it, sets[0]) for it in choices if (sets := self._sets(it, 1)))
        if self._leaves.is_isolated or choice.only is not None:
            return self._leaves.bandwidth(best)
        return self._search.top(choice)

    def _allocation(
        self,
        ways: Sequence[Counts],
        names: Sequence[tuple[str, ...]],
        pool: Pool | None,
        degraded: Collection[str],
        *,
        top: int = 0,
        is_optimal: bool,
    ) -> Allocation:
        bad = self._devices.on_gpus(degraded)
        scores = [self._score(way, pool, bad, top) for way in ways]
        return Allocation(
            chosen=names[0],
            indices=scores[0].order,
            score=scores[0],
            reasons=self.explanation.reasons(scores, ways[0], pool),
            is_optimal=is_optimal,
            alternatives=tuple(
                Alternative(
                    chosen=ids,
                    indices=other.order,
                    score=other,
                    lost_at=other.lost_at(scores[0], self._leaves.order) or "order",
                )
                for ids, other in zip(names[1:], scores[1:], strict=True)
            ),
            rules=self._rules,
            engine=self._search.name,
        )

    def _score(self, taken: Counts, pool: Pool | None, degraded: int, top: int) -> SharedScore:
        """Return the score of the devices *taken*, by GPU.

        *degraded* is a mask of GPUs, *top* the bandwidth of the best set, 0.1 GB/s.
        """
        mask = _touched(taken)
        free = mask if pool is None else mask | pool.idle
        whole = self._leaves.terms.score(mask, free, top=top)
        known = {name: getattr(whole, name) for name in Score.__struct_fields__}
        known["degraded"] = sum(n for gpu, n in enumerate(taken) if degraded >> gpu & 1)
        if self._leaves.is_isolated:
            known |= dict.fromkeys(("bandwidth_gb_s", "counts_as_gb_s", "shortfall_gb_s"))
            known["pair_bandwidth_gb_s"] = 0.0
        return SharedScore(
            **known,
            gpus=mask.bit_count(),
            doubled=doubled(taken),
            load=None if pool is None else load(taken, pool.used),
            idle_gpus=None if pool is None else (mask & pool.idle).bit_count(),
            left=None
            if pool is None
            else sum(pool.free[gpu] - n for gpu, n in enumerate(taken) if n),
        )

    def _key(self, score: SharedScore) -> tuple[object, ...]:
        values = ((name, score.figure(name)) for name in self._leaves.order)
        return tuple(-(v or 0) if name in MORE_IS_BETTER else v for name, v in values)

    def _check(self, available: Collection[str], required: Collection[str], size: int) -> None:
        for name in sorted({*available, *required}, key=self.rank):
            if name not in self._devices.gpu:
                known = len(self._devices.gpu)
                raise InputError(f"unknown device {name!r}", f"the resource has {known} others")
            if not self.knows(name):
                raise InputError(f"the GPU of {name} is lost", "leave it out")
        if absent := sorted(set(required) - set(available), key=self.rank):
            raise InputError(
                f"required but not available: {', '.join(absent)}",
                "name it among the available devices, or do not require it",
            )
        check_counts(len(set(available)), len(set(required)), size, "device")


def _touched(taken: Counts) -> int:
    return sum(1 << gpu for gpu, count in enumerate(taken) if count)
