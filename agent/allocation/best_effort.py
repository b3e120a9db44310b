"""What NVIDIA's device plugin would prefer: its best-effort policy imitated, for comparison only.

The policy divides *all* free GPUs into sets of the size asked for, in the way with the most
points, and hands out the best set of that division (go-gpuallocator v0.6.0). Of equals the
first wins, so the answer depends on the order of the list; the kubelet's is random. Its
answers, crashes included, are compared with the Go library's in tests/bench.
"""

from collections.abc import Sequence
from itertools import combinations

from agent.allocation.best_effort_plan import Plan, divisions, plan
from agent.allocation.best_effort_scores import pair_scores, set_scores
from agent.allocation.masks import positions
from agent.allocation.requests import unknown_gpu
from agent.errors import InputError
from agent.model.snapshot import Snapshot

LARGEST = 12
"""Free GPUs up to which this imitation answers. The library itself needs 2 to 40 s of CPU for 2
to 5 of 16 (docs/bench.md), and from 13 on overwrites divisions that it still compares."""

REMEMBERED = 5
"""Free GPUs up to which answers are kept: 8 GPUs have 8,800 lists of so many, 10 have 36,100. On
a busy node most lists are no longer."""


class PeerPanics(InputError):  # noqa: N818 - a state of the peer, not a fault of ours
    """NVIDIA's policy would panic, and its device plugin die."""


class BestEffort:
    """Answer as NVIDIA's policy would on one machine. Safe to share between threads."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._ids = tuple(gpu.id for gpu in snapshot.gpus)
        self._position = {name: position for position, name in enumerate(self._ids)}
        self._pairs = pair_scores(snapshot)
        self._plans: dict[tuple[int, int, int], Plan] = {}
        self._answers: dict[tuple[tuple[int, ...], int], tuple[int | None, ...]] = {}

    def allocate(
        self, available: Sequence[str], required: Sequence[str], size: int
    ) -> tuple[str | None, ...]:
        """Return what the policy answers to ids in the order given.

        ``None`` is a device that does not exist: the policy pads its list and may hand out the
        padding, which kills NVIDIA's plugin. The answer is empty where the policy finds none.

        Raises:
            InputError: an id is unknown, or the policy would need seconds.
            PeerPanics: the policy would panic.
        """
        chosen = self.choose(
            [self._known(name) for name in available],
            [self._known(name) for name in required],
            size,
        )
        return tuple(None if position is None else self._ids[position] for position in chosen)

    def choose(
        self, available: Sequence[int], required: Sequence[int], size: int
    ) -> tuple[int | None, ...]:
        """Return the same for positions in the snapshot; no position comes twice in a list.

        Raises:
            InputError: the policy would need seconds.
            PeerPanics: the policy would panic.
        """
        count = len(available)
        if not 0 < size <= count or len(required) > size or not {*required} <= {*available}:
            return ()
        if size == 1:
            return (required[0] if required else available[0],)
        if size == count:
            return self._all(available)
        if count > LARGEST:
            raise _too_many(count, size)
        if required or count > REMEMBERED:
            return self._divided(available, required, size)
        key = tuple(available), size
        answer = self._answers.get(key)
        if answer is None:
            answer = self._answers[key] = self._divided(available, (), size)
        return answer

    def _divided(
        self, available: Sequence[int], required: Sequence[int], size: int
    ) -> tuple[int | None, ...]:
        wanted = sum(1 << available.index(position) for position in required)
        chosen = self._best(available, wanted, size)
        found = tuple(available[place] for place in positions(chosen))
        return (*found, *[None] * (size - len(found)))

    def _all(self, order: Sequence[int]) -> tuple[int, ...]:
        if any(self._pairs[a][b] < 0 for a, b in combinations(order, 2)):
            raise _panics()
        return tuple(order)

    def _best(self, order: Sequence[int], required: int, size: int) -> int:
        """Return the set, as a mask of places in *order*, without its padding."""
        scores = set_scores(self._pairs, order)
        sets = self._best_division(scores, self._plan(len(order), size, required))
        # max() keeps the first of equals, as the policy does.
        return max((one for one in sets if one & required == required), key=scores.__getitem__)

    def _best_division(self, scores: Sequence[int], ways: Plan) -> list[int]:
        """Return the sets of the division with the most points; of equals the first tried.

        What is best for a remainder does not depend on how it came about, so each is worked
        out once; taking the first of equals at every step gives the first of all.
        """
        best = {0: 0}
        taken: dict[int, tuple[int, int]] = {}
        for rest, options in ways.steps:
            most = -1
            for option in options:
                points = scores[option[0]]
                if points < 0:
                    raise _panics()
                points += best[option[1]]
                if points > most:
                    most = points
                    taken[rest] = option
            best[rest] = most
        sets, rest = [], ways.whole
        while rest:
            chosen, rest = taken[rest]
            sets.append(chosen)
        return sets

    def _plan(self, count: int, size: int, required: int) -> Plan:
        key = count, size, required
        found = self._plans.get(key)
        if found is None:
            found = self._plans[key] = plan(count, size, required)
        return found

    def _known(self, name: str) -> int:
        if name not in self._position:
            raise unknown_gpu(self._snapshot, name)
        return self._position[name]


def _too_many(count: int, size: int) -> InputError:
    return InputError(
        f"NVIDIA's policy is not imitated for {size} of {count} free GPUs: it would compare "
        f"{divisions(count, size):,} divisions, seconds of CPU for one answer",
        f"offer at most {LARGEST} GPUs",
    )


def _panics() -> PeerPanics:
    return PeerPanics(
        "NVIDIA's policy panics here: of two GPUs one counts NVLinks to the other, and the "
        "other counts none back",
        "offer only one of the two",
    )
