"""Which GPUs to hand out: one answer, with its reasons, for every request."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from agent.allocation.explain import Explanation
from agent.allocation.facts import facts
from agent.allocation.naming import unknown_gpu, usable
from agent.allocation.score import Key, Score, score
from agent.allocation.search import search
from agent.errors import InputError
from agent.model.snapshot import Snapshot

ALTERNATIVES = 3
"""How many of the next best sets an answer names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """A set that was not chosen; *lost_at* is the field of :class:`Score` that decided."""

    chosen: tuple[str, ...]
    indices: tuple[int, ...]
    score: Score
    lost_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """The GPUs to hand out.

    Attributes:
        chosen: their ids, in device order; *indices* are the same GPUs.
        reasons: one readable line per term that mattered.
        is_optimal: proven to be the best by the score, which is so up to 16 GPUs and for
            meshes up to 10.
        alternatives: the next best sets, best first; empty where there is no other.
    """

    chosen: tuple[str, ...]
    indices: tuple[int, ...]
    score: Score
    reasons: tuple[str, ...]
    is_optimal: bool
    alternatives: tuple[Alternative, ...]

    def to_plain(self) -> dict[str, Any]:
        """Return the object that ``nodetopo allocate -o json`` prints."""
        return {
            "chosen": list(self.chosen),
            "indices": list(self.indices),
            "score": self.score.to_plain(),
            "reasons": list(self.reasons),
            "optimal": self.is_optimal,
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

    Construction is cheap. What a size needs is worked out at its first request and kept.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._facts = facts(snapshot)
        self._search = search(self._facts)
        self._explanation = Explanation(snapshot, self._facts)
        self._ids = tuple(gpu.id for gpu in snapshot.gpus)
        self._position = {name: position for position, name in enumerate(self._ids)}
        self._usable = frozenset(usable(snapshot))

    def allocate(
        self,
        *,
        available: Collection[str],
        required: Collection[str] = (),
        size: int,
    ) -> Allocation:
        """Return the best *size* of *available* that contain *required*; both are ids.

        The answer does not depend on the order of either.

        Raises:
            InputError: an id is unknown, or no such set exists.
        """
        self._check(available, required, size)
        ranked = self._search.ranked(
            free=self._mask(available),
            required=self._mask(required),
            size=size,
            count=1 + ALTERNATIVES,
        )
        scores = [score(key, self._facts) for key in ranked]
        left = self._mask(available) & ~sum(1 << position for position in ranked[0][-1])
        return Allocation(
            chosen=self._names(ranked[0]),
            indices=scores[0].order,
            score=scores[0],
            reasons=self._explanation.reasons(scores, left),
            is_optimal=self._search.is_exact,
            alternatives=tuple(
                Alternative(
                    chosen=self._names(key),
                    indices=other.order,
                    score=other,
                    lost_at=other.lost_at(scores[0]),
                )
                for key, other in zip(ranked[1:], scores[1:], strict=True)
            ),
        )

    def best(self, available: Iterable[str], required: Iterable[str], size: int) -> tuple[str, ...]:
        """Return what :meth:`allocate` would choose, without working out why.

        The caller makes sure that it can be met: :meth:`knows` every id, *required* is part
        of *available*, and *size* lies between the two counts.
        """
        if size == 0:
            return ()
        (key,) = self._search.ranked(
            free=self._mask(available),
            required=self._mask(required),
            size=size,
            count=1,
        )
        return self._names(key)

    def knows(self, name: str) -> bool:
        """Return whether *name* is the id of a GPU that is not lost."""
        return name in self._usable

    def rank(self, name: str) -> tuple[int, str]:
        """Return a key that sorts ids in device order, unknown ones last."""
        return self._position.get(name, len(self._ids)), name

    def _mask(self, names: Iterable[str]) -> int:
        return sum(1 << self._position[name] for name in set(names))

    def _names(self, key: Key) -> tuple[str, ...]:
        return tuple(self._ids[position] for position in key[-1])

    def _check(self, available: Collection[str], required: Collection[str], size: int) -> None:
        for name in sorted({*available, *required}, key=self.rank):
            if name not in self._position:
                raise unknown_gpu(self._snapshot, name)
        if absent := sorted(set(required) - set(available), key=self.rank):
            raise InputError(
                f"required but not available: {', '.join(absent)}",
                "name it among the available GPUs, or do not require it",
            )
        free, wanted = len(set(available)), len(set(required))
        if size < 1:
            raise InputError(f"cannot allocate {size} GPUs", "ask for at least 1")
        if size > free:
            raise InputError(
                f"cannot allocate {size} GPUs: only {free} are available",
                f"ask for at most {free}" if free else "free a GPU first",
            )
        if wanted > size:
            raise InputError(
                f"cannot allocate {size} GPUs that contain {wanted} required ones",
                f"ask for at least {wanted}",
            )


def allocate(
    snapshot: Snapshot,
    *,
    available: Collection[str],
    required: Collection[str] = (),
    size: int,
) -> Allocation:
    """Return the best *size* GPUs of *available* that contain *required*; ids as ``gpu.id``.

    Raises:
        InputError: an id is unknown, or no such set exists.
    """
    return Allocator(snapshot).allocate(available=available, required=required, size=size)


def preferred(
    allocator: Allocator | None,
    available: Sequence[str],
    required: Sequence[str],
    size: int,
) -> tuple[str, ...]:
    """Return exactly ``min(size, distinct available)`` ids of *available*, whatever is asked.

    For the kubelet, which rejects a pod on an error, cuts a surplus and fills a lack at
    random (kubelet v1.34 ``devicesToAllocate``). Keeps those of *required* that are
    available; if they are too many, the first in device order. GPUs that the snapshot does
    not know, or knows to be lost, come last. Without an allocator the order is that of ids.
    """
    offered = set(available)
    size = max(0, min(size, len(offered)))
    if allocator is None:
        kept = sorted(offered.intersection(required))[:size]
        return (*kept, *sorted(offered.difference(kept))[: size - len(kept)])
    kept = sorted(offered.intersection(required), key=allocator.rank)[:size]
    known = {name for name in offered if allocator.knows(name)}
    wanted = min(size - sum(name not in known for name in kept), len(known))
    chosen = {*kept, *allocator.best(known, known.intersection(kept), wanted)}
    spare = sorted(offered - chosen, key=allocator.rank)
    return tuple(sorted((*chosen, *spare[: size - len(chosen)]), key=allocator.rank))
