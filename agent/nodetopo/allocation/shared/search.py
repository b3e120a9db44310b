"""The best of the GPU sets that sharing leaves open: from the tables of all sets or over a tree."""

from collections.abc import Iterable, Mapping
from heapq import heappop, heappush
from itertools import count, takewhile
from types import MappingProxyType
from typing import Protocol

from msgspec.structs import replace

from nodetopo.allocation.engines import BEST_OF_TREE, CostBits
from nodetopo.allocation.families import Family, Slices, at_least, highest, least
from nodetopo.allocation.masks import bits, positions
from nodetopo.allocation.score import hca_distance
from nodetopo.allocation.shared.counts import Choice
from nodetopo.allocation.shared.terms import Leaves
from nodetopo.allocation.terms import in_order
from nodetopo.allocation.tree import Node

Ways = dict[tuple[int, int], int]
"""(GPUs taken, their free devices) → the least cost."""

NOTHING: Mapping[tuple[int, int], int] = MappingProxyType({(0, 0): 0})


class SetSearch(Protocol):
    """A way to find the best sets of a choice; safe to share between threads."""

    @property
    def name(self) -> str:
        """``tree`` or ``table``."""
        ...

    @property
    def is_exact(self) -> bool:
        """Whether the first set is proven to be the best of all."""
        ...

    def ranked(self, choice: Choice, most: int) -> list[int]:
        """Return the *most* best sets, best first; fewer only where there are fewer.

        Each is the best of those that are left.
        """
        ...

    def top(self, choice: Choice) -> int:
        """Return the bandwidth of which a set needs a share to be equal to the best, 0.1 GB/s.

        It is the greatest of the sets that equal the best in all terms before.
        """
        ...


def search_for(leaves: Leaves, devices: int) -> SetSearch:
    """Return the search for the machine of *leaves*; requests have up to *devices*."""
    root = leaves.terms.tree or leaves.terms.nearest
    return TableSets(leaves) if root is None else TreeSets(leaves, root, devices)


class TableSets:
    """Narrow the family of all sets term by term, for a small machine of any shape.

    The terms of whole GPUs come from the slices that :class:`nodetopo.allocation.engines.
    TableEngine` uses. Free devices are added up for all sets at once, so no set is looked at by
    itself, and a request takes as long with thousands of equal sets as with few.
    """

    name = "table"
    is_exact = True

    def __init__(self, leaves: Leaves) -> None:
        self._terms = leaves.terms
        ignored = ("bandwidth_gb_s",) if leaves.is_isolated else ()
        self._names = tuple(name for name in (*leaves.of_the_set, "order") if name not in ignored)

    def ranked(self, choice: Choice, most: int) -> list[int]:
        family, of_request = self._all(choice)
        sets: list[int] = []
        while family and len(sets) < most:
            best = family
            for name in self._names:
                if best == 1 << highest(best):
                    break
                best = self._best(name, best, choice, of_request)
            sets.append(highest(best))
            family ^= best
        return sets

    def top(self, choice: Choice) -> int:
        """Return the greatest bandwidth of the sets that equal the best in all terms before."""
        family, of_request = self._all(choice)
        for name in takewhile(lambda name: name != "bandwidth_gb_s", self._names):
            family = self._best(name, family, choice, of_request)
        return self._terms.tables.widest(family, choice.count)

    def _all(self, choice: Choice) -> tuple[Family, Mapping[str, Slices]]:
        """Return the sets of *choice*, and its terms that depend on the request."""
        tables = self._terms.tables
        family = tables.sets(choice.base | choice.others, choice.base, choice.count)
        if not choice.needed:
            return family, {"idle_gpus": [], "left": []}
        room, idle = tables.families.sums(choice.free), tables.families.numbers(choice.idle)
        return at_least(family, room, choice.needed), {"idle_gpus": idle, "left": room}

    def _best(
        self, name: str, family: Family, choice: Choice, of_request: Mapping[str, Slices]
    ) -> Family:
        if name in of_request:
            return least(family, of_request[name])
        return self._terms.tables.best(name, family, 0, choice.count)


class TreeSets:
    """Answer by dynamic programming over the groups of a tree; GPUs in no group are leaves.

    As in :class:`nodetopo.allocation.engines.TreeEngine` the cheapest way to take some GPUs of a
    group follows from those of its children, all terms packed into one integer. A way is also
    identified by the free devices of its GPUs, because the set must have room for the request.

    On a tree that is only similar to the machine the best sets are ordered by their real terms.
    """

    name = "tree"

    def __init__(self, leaves: Leaves, root: Node, devices: int) -> None:
        """Prepare for requests of at most *devices* altogether."""
        self.is_exact = leaves.terms.tree is not None
        self._leaves = leaves
        self._layout = _Layout(leaves, root, devices)
        self._root = root

    def ranked(self, choice: Choice, most: int) -> list[int]:
        """Return the *most* best sets, best first.

        The sets other than the best are divided by the first GPU of the best that they lack
        (Lawler 1972).
        """
        wanted = most if self.is_exact else max(most, BEST_OF_TREE)
        turn = count()
        heap: list[tuple[int, int, Choice]] = []

        def solve(part: Choice) -> None:
            cost = _Solution(self._layout, part, self._root).cost()
            if cost is not None:
                heappush(heap, (cost, next(turn), part))

        solve(choice)
        sets: list[int] = []
        while heap and len(sets) < wanted:
            cost, _, part = heappop(heap)
            sets.append(self._layout.members(cost))
            if len(sets) == wanted:
                break
            base, others = part.base, part.others
            for bit in bits(sets[-1] & ~part.base):
                others &= ~bit
                solve(replace(part, base=base, others=others))
                base |= bit
        if not self.is_exact:
            sets = self._in_order(sets, choice)
        return sets[:most]

    def top(self, choice: Choice) -> int:
        """Return the bandwidth of the best set: on a tree only sets as wide are equal."""
        return self._leaves.bandwidth(self.ranked(choice, 1)[0])

    def _in_order(self, sets: Iterable[int], choice: Choice) -> list[int]:
        rows = {}
        for mask in sorted(sets, key=positions):
            terms = {
                **self._leaves.figures(mask),
                "idle_gpus": (mask & choice.idle).bit_count() if choice.needed else 0,
                "left": choice.room(mask) if choice.needed else 0,
            }
            rows[mask] = [terms[name] for name in self._leaves.of_the_set]
        return in_order(rows, self._leaves.of_the_set)


class _Layout(CostBits):
    """The costs of a set of GPUs.

    The lowest bits hold the set, negated: of two sets of equal cost otherwise, the one with the
    lower GPUs is the less.
    """

    def __init__(self, leaves: Leaves, root: Node, devices: int) -> None:
        facts = leaves.terms.facts
        gpus = len(facts.indices)
        widths = {node.hop for node in root.walk() if node.is_cluster}
        self.hops = () if leaves.is_isolated else tuple(sorted(widths, reverse=True))
        largest = {
            "bandwidth_gb_s": len(self.hops),
            "left": devices,
            "hca_distance": hca_distance(facts, range(gpus)),
        }
        super().__init__(facts, leaves.of_the_set, largest, reserved=gpus)
        self.gpus = tuple(self.of_gpu(gpu) - (1 << gpus - 1 - gpu) for gpu in range(gpus))

    def members(self, cost: int) -> int:
        return self.reversed_mask(-cost & (1 << self.count) - 1)

    def own(self, node: Node, taken: int) -> int:
        """Return what the group itself adds where *taken* of its GPUs are taken."""
        if not taken:
            return 0
        cost = self.put("numa_nodes", int(node.is_numa)) + self.put("sockets", int(node.is_socket))
        cost += self.put("models", int(node.is_model))
        if node.hcas is None:
            return cost
        return cost + self.put("rail_loss", max(0, taken - node.hcas))


class _Solution:
    """The cheapest set of one choice, found in one pass over the groups."""

    def __init__(self, layout: _Layout, choice: Choice, root: Node) -> None:
        self._layout = layout
        self._choice = choice
        self._root = root
        self._able = choice.base | choice.others
        self._roomiest = sorted(positions(self._able), key=lambda gpu: -choice.free[gpu])

    def cost(self) -> int | None:
        """Return the cost of the best set, ``None`` if there is none."""
        _, best = self._within(self._root)
        return None if best is None else best - self._layout.put("left", self._choice.needed)

    def _within(self, node: Node) -> tuple[Ways, int | None]:
        """Return the ways to take GPUs of a group, and the cost of the best answer within."""
        layout, choice = self._layout, self._choice
        seen, ways = 0, dict(NOTHING)
        answers: list[int] = []
        for child in node.children:
            if child.members & self._able:
                seen |= child.members
                inside, answer = self._within(child)
                ways = self._hopeful(_merged(ways, inside), seen)
                if answer is not None:
                    answers.append(answer + layout.own(node, choice.count))
        for gpu in node.gpus:
            if self._able >> gpu & 1:
                seen |= 1 << gpu
                free = choice.free[gpu]
                cost = layout.gpus[gpu] + layout.put("left", free)
                cost += layout.put("idle_gpus", choice.idle >> gpu & 1)
                is_required = choice.base >> gpu & 1
                leaf = {(1, free): cost} if is_required else {**NOTHING, (1, free): cost}
                ways = self._hopeful(_merged(ways, leaf), seen)
        ways = {way: cost + layout.own(node, way[0]) for way, cost in ways.items()}

        # The GPUs of a set meet in the innermost group around them, which gives the bandwidth.
        # One GPU, and MIG devices, have none wherever they are.
        level = None
        if choice.count < 2 or not layout.hops:
            level = 0 if node is self._root else None
        elif node.is_cluster:
            level = layout.put("bandwidth_gb_s", layout.hops.index(node.hop))
        if level is not None:
            answers += [
                cost + level
                for (gpus, room), cost in ways.items()
                if gpus == choice.count and room >= choice.needed
            ]
        return ways, min(answers, default=None)

    def _hopeful(self, ways: Ways, seen: int) -> Ways:
        """Drop the ways that no GPUs outside of *seen* can complete."""
        choice = self._choice
        outside = self._able & ~seen
        kept = (choice.base & outside).bit_count()
        most = [0]
        for gpu in self._roomiest:
            if outside >> gpu & 1:
                most.append(most[-1] + choice.free[gpu])
        total, needed = choice.count, choice.needed
        return {
            (gpus, room): cost
            for (gpus, room), cost in ways.items()
            if kept <= total - gpus < len(most) and room + most[total - gpus] >= needed
        }


def _merged(a: Mapping[tuple[int, int], int], b: Ways) -> Ways:
    """Return the cheapest ways to take GPUs of two disjoint groups."""
    merged: Ways = {}
    for (gpus, room), cost in a.items():
        for (more, more_room), other in b.items():
            way, both = (gpus + more, room + more_room), cost + other
            if way not in merged or both < merged[way]:
                merged[way] = both
    return merged
