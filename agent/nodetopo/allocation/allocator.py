"""The allocator of whole GPUs: one answer, with its reasons, to every request."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Protocol

from msgspec import Struct

from nodetopo.allocation.engines import engine_for
from nodetopo.allocation.explain import Explanation
from nodetopo.allocation.facts import Facts, facts
from nodetopo.allocation.masks import positions
from nodetopo.allocation.requests import check_counts, sound_first, unknown_gpu, usable
from nodetopo.allocation.rules import DEFAULT, Rules
from nodetopo.allocation.score import Score
from nodetopo.allocation.terms import Terms
from nodetopo.errors import InputError
from nodetopo.model.snapshot import Snapshot

ALTERNATIVES = 3
"""The number of next best sets in an answer."""


class Alternative(Struct, frozen=True, kw_only=True):
    """A set that was not chosen; *lost_at* is the field of :class:`Score` that decided."""

    chosen: tuple[str, ...]
    indices: tuple[int, ...]
    score: Score
    lost_at: str


class Allocation(Struct, frozen=True, kw_only=True):
    """The GPUs, MIG devices or replicas to hand out."""

    chosen: tuple[str, ...]  # ids in device order; `indices` are the GPUs
    indices: tuple[int, ...]
    score: Score
    reasons: tuple[str, ...]  # one readable line per term that mattered
    # Proven best: always where the machine's groups nest, up to 16 GPUs elsewhere, up to 10 in a
    # mesh.
    is_optimal: bool
    # Next best sets, best first; empty if there is none, or if it is unknown what else was free.
    alternatives: tuple[Alternative, ...]
    rules: Rules = DEFAULT  # of the score
    engine: str  # `tree` or `table`, see `allocation.engines`

    def to_plain(self) -> dict[str, Any]:
        """Return the object that ``nodetopo allocate -o json`` prints."""
        return {
            "chosen": list(self.chosen),
            "indices": list(self.indices),
            "score": self.score.to_plain(),
            "reasons": list(self.reasons),
            "optimal": self.is_optimal,
            "policy": self.rules.policy.value,
            "model": self.rules.model.value,
            "engine": self.engine,
            "alternatives": [
                {
                    "chosen": list(other.chosen),
                    "indices": list(other.indices),
                    "score": other.score.to_plain(),
                    "lost_at": other.lost_at,
                }
                for other in self.alternatives
            ],
        }


class Allocator:
    """Answer requests for one snapshot from memory; safe to share between threads.

    Construction is cheap. What a request needs is computed at the first that needs it, and kept.
    """

    def __init__(self, snapshot: Snapshot, rules: Rules = DEFAULT) -> None:
        self._snapshot = snapshot
        self._rules = rules
        self._terms = Terms(facts(snapshot), rules)
        self._engine = engine_for(self._terms)
        self._explanation = Explanation(
            snapshot, self._terms.facts, rules, self._terms.value_of_all
        )
        self._ids = tuple(gpu.id for gpu in snapshot.gpus)
        self._position = {name: position for position, name in enumerate(self._ids)}
        self._usable = frozenset(usable(snapshot))

    @property
    def facts(self) -> Facts:
        """All that answers depend on, except which GPUs are lost."""
        return self._terms.facts

    def allocate(
        self,
        *,
        available: Collection[str],
        required: Collection[str] = (),
        size: int,
        degraded: Collection[str] = (),
    ) -> Allocation:
        """Return the best *size* of *available* that contain *required*; all are ids.

        The answer does not depend on the order of any. The alternatives have as few *degraded*
        GPUs as it has.

        Raises:
            InputError: a GPU is unknown or lost, or no such set exists.
        """
        self._check(available, required, size)
        pool, kept = sound_first(available, required, size, degraded)
        free, needed = self._mask(pool), self._mask(kept)
        ranked = self._engine.ranked(free=free, required=needed, size=size, count=1 + ALTERNATIVES)
        return self._allocation(
            ranked,
            self._mask(available),
            degraded,
            top=self._terms.top(ranked[0], free=free, required=needed, size=size),
            is_optimal=self._engine.is_exact,
        )

    def describe(
        self,
        chosen: Collection[str],
        available: Collection[str] | None = None,
        degraded: Collection[str] = (),
    ) -> Allocation:
        """Return the score of *chosen*, whoever chose it, and the next best set.

        Without *available* nothing is known of the remainder and of other sets, and *chosen* is
        not called optimal.

        Raises:
            InputError: a GPU is unknown or lost, nothing is chosen, or not all of it is available.
        """
        self._check(chosen if available is None else available, chosen, len(set(chosen)))
        mask = self._mask(chosen)
        if available is None:
            return self._allocation([mask], None, degraded, is_optimal=False)
        size = mask.bit_count()
        pool, kept = sound_first(available, (), size, degraded)
        free, needed = self._mask(pool), self._mask(kept)
        ranked = self._engine.ranked(free=free, required=needed, size=size, count=2)
        is_best = ranked[0] == mask
        others = [other for other in ranked if other != mask][:1]
        return self._allocation(
            [mask, *others],
            self._mask(available),
            degraded,
            top=self._terms.top(ranked[0], free=free, required=needed, size=size),
            is_optimal=is_best and self._engine.is_exact,
        )

    def _allocation(
        self,
        masks: Sequence[int],
        free: int | None,
        degraded: Collection[str],
        *,
        top: int = 0,
        is_optimal: bool,
    ) -> Allocation:
        bad = self._mask(self._usable.intersection(degraded))
        scores = [
            self._terms.score(mask, mask if free is None else free, bad, top) for mask in masks
        ]
        order = self._rules.terms(masks[0].bit_count())
        left = None if free is None else free & ~masks[0]
        return Allocation(
            chosen=self._names(masks[0]),
            indices=scores[0].order,
            score=scores[0],
            reasons=self._explanation.reasons(scores, left, bad),
            is_optimal=is_optimal,
            alternatives=tuple(
                Alternative(
                    chosen=self._names(mask),
                    indices=other.order,
                    score=other,
                    lost_at=other.lost_at(scores[0], order) or "order",
                )
                for mask, other in zip(masks[1:], scores[1:], strict=True)
            ),
            rules=self._rules,
            engine=self._engine.name,
        )

    def best(
        self,
        available: Iterable[str],
        required: Iterable[str],
        size: int,
    ) -> tuple[str, ...]:
        """Return what :meth:`allocate` chooses, without the reasons.

        The caller makes sure that the request can be met: :meth:`knows` every id, *required* is
        part of *available*, and *size* lies between the two counts.
        """
        if size == 0:
            return ()
        free, kept = self._mask(available), self._mask(required)
        return self._names(self._engine.best(free=free, required=kept, size=size))

    def bandwidth_gb_s(self, chosen: Collection[str]) -> float | None:
        """Return the modelled bandwidth of *chosen*; ``None`` for one GPU, or one that is lost."""
        if len(chosen) < 2 or not self._usable.issuperset(chosen):
            return None
        return self._terms.modelled_bandwidth(self._mask(chosen)) / 10

    def value_of_all(self) -> int:
        """Return what all GPUs of the node together are worth to later jobs, 0.01 GB/s."""
        return self._terms.value_of_all()

    def best_sets(
        self, available: Collection[str], size: int, count: int
    ) -> tuple[tuple[str, ...], ...]:
        """Return the *count* best sets of *size*, best first; fewer where there are fewer.

        The caller makes sure that there is one, as for :meth:`best`.
        """
        free = self._mask(available)
        masks = self._engine.ranked(free=free, required=0, size=size, count=count)
        return tuple(self._names(mask) for mask in masks)

    def sorted_sets(
        self,
        sets: Iterable[Collection[str]],
        available: Collection[str],
        degraded: Collection[str] = (),
    ) -> tuple[tuple[str, ...], ...]:
        """Return *sets*, which are all of one size, as :meth:`allocate` prefers them, best first.

        Each is a set of ids that lies within *available*, the ids that are free. So the first is
        what :meth:`allocate` chooses, if it is among *sets*.
        """
        free, bad = self._mask(available), self._mask(self._usable.intersection(degraded))
        by_degraded: dict[int, list[int]] = {}
        for mask in map(self._mask, sets):
            by_degraded.setdefault((mask & bad).bit_count(), []).append(mask)
        return tuple(
            self._names(mask)
            for count, masks in sorted(by_degraded.items())
            for mask in self._terms.ranked(masks, free if count else free & ~bad)
        )

    def worth(self, chosen: Collection[str]) -> tuple[int, ...]:
        """Return the terms of the set *chosen* that do not depend on which GPUs are free.

        Less is better. Sets of one size compare by them as :meth:`allocate` compares them first:
        see :meth:`nodetopo.allocation.terms.Terms.own_terms`. Lost GPUs count as they were.
        """
        return self._terms.worth(self._mask(chosen))

    def knows(self, name: str) -> bool:
        """Return whether *name* is the id of a GPU that is not lost."""
        return name in self._usable

    def rank(self, name: str) -> tuple[int, str]:
        """Return a key that sorts ids in device order, unknown ones last."""
        return self._position.get(name, len(self._ids)), name

    def _mask(self, names: Iterable[str]) -> int:
        return sum(1 << self._position[name] for name in set(names))

    def _names(self, mask: int) -> tuple[str, ...]:
        return tuple(self._ids[position] for position in positions(mask))

    def _check(self, available: Collection[str], required: Collection[str], size: int) -> None:
        if not self._usable:
            state = "all are lost" if self._ids else "this node has none"
            raise InputError(f"no GPU to allocate: {state}", "`nodetopo health` says what is known")
        for name in sorted({*available, *required}, key=self.rank):
            if name not in self._position:
                raise unknown_gpu(self._snapshot, name)
            if name not in self._usable:
                raise InputError(
                    f"{self._called(name)} is lost", "leave it out: it does not answer"
                )
        if absent := sorted(set(required) - set(available), key=self.rank):
            raise InputError(
                f"required but not available: {', '.join(map(self._called, absent))}",
                "name it among the available GPUs, or do not require it",
            )
        check_counts(len(set(available)), len(set(required)), size, "GPU")

    def _called(self, name: str) -> str:
        return self._snapshot.gpus[self._position[name]].name


class Chooser(Protocol):
    """An allocator that can answer the kubelet, of GPUs or of MIG devices and replicas."""

    def best(self, available: Iterable[str], required: Iterable[str], size: int) -> tuple[str, ...]:
        """Return the best *size* of *available* that contain *required*."""
        ...

    def knows(self, name: str) -> bool:
        """Return whether *name* is a device that can be handed out."""
        ...

    def rank(self, name: str) -> tuple[int, str]:
        """Return a key that sorts ids in device order, unknown ones last."""
        ...


def preferred(
    allocator: Chooser | None,
    available: Collection[str],
    required: Collection[str],
    size: int,
    degraded: Collection[str] = (),
) -> tuple[str, ...]:
    """Return exactly ``min(size, distinct available)`` ids of *available* for any request.

    This answers the kubelet, which rejects a pod on an error, drops surplus devices and adds
    missing ones in the order of its Go maps (kubelet v1.36.3 ``devicesToAllocate``). Those of
    *required* that are available are kept; of too many, the first in device order. As few
    *degraded* ids as possible are chosen: that is the first term of every policy. GPUs that the
    snapshot does not know, or knows to be lost, come last. Without an allocator the order is that
    of ids.
    """
    if degraded and allocator is not None:
        available, required = sound_first(available, required, size, degraded)
    offered = set(available)
    size = max(0, min(size, len(offered)))
    if allocator is None:
        kept = sorted(offered.intersection(required))[:size]
        return (*kept, *sorted(offered.difference(kept))[: size - len(kept)])
    kept = sorted(offered.intersection(required), key=allocator.rank)[:size]
    known = {name for name in offered if allocator.knows(name)}
    wanted = min(size - sum(name not in known for name in kept), len(known))
    chosen = allocator.best(known, known.intersection(kept), wanted)
    if wanted == size:
        return chosen
    taken = {*kept, *chosen}
    spare = sorted(offered - taken, key=allocator.rank)
    return tuple(sorted((*taken, *spare[: size - len(taken)]), key=allocator.rank))
