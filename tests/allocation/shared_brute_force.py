"""The best devices of shared GPUs by definition: every set of devices, judged one by one.

Independent of nodetopo.allocation.shared.allocator; the orders of the terms stand here a second
time.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from itertools import combinations
from typing import Any, TypeVar

from msgspec import Struct

from nodetopo.allocation.rules import Policy, Rules
from nodetopo.model.snapshot import Snapshot
from tests.allocation.brute_force import EQUAL, BruteForce

HCAS = "hca_far rail_loss hca_distance"
ORDERS = {
    (Policy.PACKED, False): (
        f"gpus bandwidth_gb_s models numa_nodes sockets idle_gpus left {HCAS} order".split()
    ),
    (Policy.NUMA_FIRST, False): (
        f"gpus numa_nodes sockets bandwidth_gb_s models idle_gpus left {HCAS} order".split()
    ),
    (Policy.NIC_REQUIRED, False): (
        f"gpus {HCAS} bandwidth_gb_s models numa_nodes sockets idle_gpus left order".split()
    ),
    (Policy.DISTRIBUTED, True): (
        f"load doubled bandwidth_gb_s models numa_nodes sockets {HCAS} order".split()
    ),
    (Policy.NUMA_FIRST, True): (
        f"load doubled numa_nodes sockets bandwidth_gb_s models {HCAS} order".split()
    ),
    (Policy.NIC_REQUIRED, True): (
        f"load doubled {HCAS} bandwidth_gb_s models numa_nodes sockets order".split()
    ),
}
ORDERS[Policy.PACKED, True] = ORDERS[Policy.BEST, False] = ORDERS[Policy.PACKED, False]
ORDERS[Policy.DISTRIBUTED, False] = ORDERS[Policy.BEST, True] = ORDERS[Policy.DISTRIBUTED, True]

Name = TypeVar("Name")

Device = tuple[int, int]
"""(position of the GPU, number on it)."""


class SharedBruteForce(Struct, frozen=True, kw_only=True, dict=True):
    """One resource: so many devices on each GPU of a machine, by position."""

    snapshot: Snapshot
    totals: tuple[int, ...]
    rules: Rules
    spread: bool
    is_mig: bool = False

    @cached_property
    def machine(self) -> BruteForce:
        """What sets of whole GPUs are worth."""
        return BruteForce(self.snapshot, Rules(model=self.rules.model))

    @cached_property
    def order(self) -> list[str]:
        """The terms, most important first."""
        return ORDERS[self.rules.policy, self.spread]

    def best(
        self, available: Collection[Device], required: Collection[Device], size: int
    ) -> list[frozenset[Device]]:
        """The best set of every set of GPUs, best first."""
        kept = frozenset(required)
        spare = sorted(frozenset(available) - kept)
        by_gpus: dict[frozenset[int], dict[frozenset[Device], Mapping[str, Any]]] = {}
        for more in combinations(spare, size - len(kept)):
            chosen = kept.union(more)
            own = by_gpus.setdefault(frozenset(gpu for gpu, _ in chosen), {})
            own[chosen] = self.terms(chosen, available)
        found: dict[frozenset[Device], Mapping[str, Any]] = {}
        for own in by_gpus.values():
            (chosen,) = best_first(own, self.order, 1)
            found[chosen] = own[chosen]
        return best_first(found, self.order, len(found))

    def terms(self, chosen: Collection[Device], available: Collection[Device]) -> Mapping[str, Any]:
        """Every term, also those that the policy does not compare."""
        gpus = sorted({gpu for gpu, _ in chosen})
        mask = sum(1 << gpu for gpu in gpus)
        used = {
            gpu: total - sum(1 for other, _ in available if other == gpu)
            for gpu, total in enumerate(self.totals)
        }
        whole = self.machine.terms
        in_use, joined, own = dict(used), 0, 0
        for gpu, _ in chosen:  # one after the other
            joined += in_use[gpu]
            in_use[gpu] += 1
        for (one, _), (other, _) in combinations(chosen, 2):
            own += one == other
        return {
            "gpus": len(gpus),
            "load": joined,
            "doubled": own,
            "bandwidth_gb_s": 0 if self.is_mig else -whole["bandwidth_gb_s"](mask, mask),
            "models": whole["models"](mask, mask),
            "numa_nodes": whole["numa_nodes"](mask, mask),
            "sockets": whole["sockets"](mask, mask),
            "idle_gpus": sum(not used[gpu] for gpu in gpus),
            "left": sum(self.totals[gpu] - in_use[gpu] for gpu in gpus),
            "hca_far": whole["hca_far"](mask, mask),
            "rail_loss": whole["rail_loss"](mask, mask),
            "hca_distance": whole["hca_distance"](mask, mask),
            "order": tuple(sorted(chosen)),
        }


def best_first(
    sets: Mapping[Name, Mapping[str, Any]], order: Sequence[str], count: int
) -> list[Name]:
    """The *count* best of *sets*, given their terms: the best, the best of the others, and so on.

    Of those that are equal so far only the best in the next term stay, but in bandwidth all that
    have 94 % of the best.
    """
    left, found = dict(sets), list[Name]()
    while left and len(found) < count:
        best = list(left)
        for name in order:
            most = min(left[one][name] for one in best)
            if name == "bandwidth_gb_s":
                most = EQUAL * most
            best = [one for one in best if left[one][name] <= most]
        found.append(best[0])
        del left[best[0]]
    return found
