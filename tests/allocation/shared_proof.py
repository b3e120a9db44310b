"""Whether shared GPUs of a machine of up to 16 get the best set of GPUs, every one looked at.

:class:`tests.allocation.shared_brute_force.SharedBruteForce` looks at every set of devices, so it
can have few. Here devices of a GPU are counted instead: how many to take from each GPU costs least
follows from how many to take from all GPUs before it.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import combinations
from random import Random

from nodetopo.allocation.rules import DEFAULT, Rules
from nodetopo.allocation.shared.allocator import SharedAllocator
from nodetopo.allocation.shared.counts import Choice
from nodetopo.model.snapshot import Snapshot
from tests.allocation.brute_force import BruteForce
from tests.allocation.brute_rings import members
from tests.allocation.shared_brute_force import ORDERS, best_first

FIRST = {"gpus", "load", "doubled"}

Cost = tuple[int, int]
"""``load`` and ``doubled``."""


class GpuSets:
    """What sets of GPUs of one machine are worth to shared devices, less is better."""

    def __init__(self, snapshot: Snapshot, rules: Rules, *, spread: bool, is_mig: bool) -> None:
        self.order = [name for name in ORDERS[rules.policy, spread] if name not in FIRST]
        self._whole = BruteForce(snapshot, Rules(model=rules.model))
        self._is_mig = is_mig
        self._figures = cache(self._all_figures)

    def best(self, left: Mapping[int, int], idle: int, most: int) -> list[int]:
        """The *most* best of some sets, best first; *left* is the room in each, *idle* a mask."""
        terms = {
            mask: {
                **self._figures(mask),
                "idle_gpus": (mask & idle).bit_count(),
                "left": room,
                "order": members(mask),
            }
            for mask, room in left.items()
        }
        return best_first(terms, self.order, most)

    def ranked(self, choice: Choice, most: int) -> list[int]:
        """The *most* best sets of *choice*, best first."""
        missing = choice.count - choice.base.bit_count()
        others = combinations(members(choice.others), missing)
        masks = [choice.base | sum(1 << gpu for gpu in some) for some in others]
        if not choice.needed:
            return self.best(dict.fromkeys(masks, 0), 0, most)
        room = {mask: sum(choice.free[gpu] for gpu in members(mask)) for mask in masks}
        able = {mask: left for mask, left in room.items() if left >= choice.needed}
        return self.best(able, choice.idle, most)

    def _all_figures(self, mask: int) -> Mapping[str, int]:
        return {
            name: 0
            if name == "bandwidth_gb_s" and self._is_mig
            else -term(mask, mask)
            if name == "bandwidth_gb_s"
            else term(mask, mask)
            for name, term in self._whole.terms.items()
            if name in self.order
        }


class SharedProof:
    """A resource of *per_gpu* devices on each GPU of a machine, and what the best answers are."""

    def __init__(
        self, snapshot: Snapshot, per_gpu: int, rules: Rules = DEFAULT, *, spread: bool
    ) -> None:
        self.ids = [[f"{gpu.id}::{n}" for n in range(per_gpu)] for gpu in snapshot.gpus]
        self.gpu = {name: gpu for gpu, names in enumerate(self.ids) for name in names}
        self._per_gpu = per_gpu
        is_mig = all(gpu.is_divided for gpu in snapshot.gpus)
        self.sets = GpuSets(snapshot, rules, spread=spread, is_mig=is_mig)
        owners = {name: snapshot.gpus[gpu].id for name, gpu in self.gpu.items()}
        self.ours = SharedAllocator(snapshot, owners, rules, spread=spread)

    def differing(self, random: Random, number: int) -> list[str]:
        """Draw *number* requests; say which of them got another set or other loads than the best.

        What is free is drawn in one of four ways: all, one of each GPU, some of each, and GPUs
        that are all free, or none, or in between.
        """
        found = []
        for _ in range(number):
            free = self._free(random)
            size = random.randint(1, min(sum(free), random.choice((8, 24, 200))))
            names = [name for own, n in zip(self.ids, free, strict=True) for name in own[:n]]
            kept = random.sample(names, random.choice((0, 0, 0, size // 2)))
            answer = self.ours.best(random.sample(names, len(names)), kept, size)
            assert len({*answer}) == size
            assert {*kept} <= {*answer} <= {*names}
            problem = self._problem(answer, free, kept, size)
            if problem:
                found.append(f"{size} of {free} with {kept}: {problem}")
        return found

    def _free(self, random: Random) -> tuple[int, ...]:
        gpus, most = range(len(self.ids)), self._per_gpu
        free = random.choice(
            (
                [most for _ in gpus],
                [1 for _ in gpus],
                [random.randint(0, most) for _ in gpus],
                [random.choice((0, most, most, random.randint(0, most))) for _ in gpus],
            )
        )
        return tuple(free) if any(free) else (1, *free[1:])

    def _problem(
        self, answer: Sequence[str], free: Sequence[int], kept: Sequence[str], size: int
    ) -> str:
        taken = self._counted(answer)
        chosen = sum(1 << gpu for gpu, n in enumerate(taken) if n)
        used = [self._per_gpu - n for n in free]
        least = self._counted(kept)
        if "left" in self.sets.order:
            best = self._packed(free, least, size)
        else:
            cost, masks = evenly(used, free, least, size)
            ours = tuple(map(sum, zip(*map(joined, used, taken), strict=True)))
            if ours != cost:
                return f"load {ours} against {cost}"
            (best,) = self.sets.best(dict.fromkeys(masks, 0), 0, 1)
        return "" if chosen == best else f"{chosen:b} against {best:b}"

    def _packed(self, free: Sequence[int], least: Sequence[int], size: int) -> int:
        """The best of the sets with the fewest GPUs."""
        kept = sum(1 << gpu for gpu, n in enumerate(least) if n)
        idle = sum(1 << gpu for gpu, n in enumerate(free) if n == self._per_gpu)
        others = [gpu for gpu, n in enumerate(free) if n and not least[gpu]]
        for more in range(len(others) + 1):
            masks = [kept | sum(1 << g for g in some) for some in combinations(others, more)]
            room = {mask: sum(free[gpu] for gpu in members(mask)) - size for mask in masks}
            able = {mask: left for mask, left in room.items() if left >= 0}
            if able:
                return self.sets.best(able, idle, 1)[0]
        raise AssertionError("the request cannot be met")

    def _counted(self, names: Sequence[str]) -> list[int]:
        counts = [0] * len(self.ids)
        for name in names:
            counts[self.gpu[name]] += 1
        return counts


def joined(used: int, taken: int) -> Cost:
    """How many devices each of those *taken* of one GPU joins; in use, and of the request."""
    pairs = taken * (taken - 1) // 2
    return used * taken + pairs, pairs


def evenly(
    used: Sequence[int], free: Sequence[int], least: Sequence[int], size: int
) -> tuple[Cost, frozenset[int]]:
    """The least cost of *size* devices, and the sets of GPUs that have it; by GPU."""
    ways: dict[int, tuple[Cost, frozenset[int]]] = {0: ((0, 0), frozenset({0}))}
    for gpu, (before, most, kept) in enumerate(zip(used, free, least, strict=True)):
        further: dict[int, tuple[Cost, frozenset[int]]] = {}
        for total, (cost, masks) in ways.items():
            for taken in range(kept, min(most, size - total) + 1):
                load, pairs = joined(before, taken)
                now = cost[0] + load, cost[1] + pairs
                own = frozenset(mask | 1 << gpu for mask in masks) if taken else masks
                known = further.get(total + taken)
                if known is None or now < known[0]:
                    further[total + taken] = now, own
                elif now == known[0]:
                    further[total + taken] = now, known[1] | own
        ways = further
    return ways[size]
