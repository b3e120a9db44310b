"""The best of the GPU sets that sharing leaves open, on machines whose groups nest.

As in :mod:`agent.allocation.tree_engine` the cheapest way to take some GPUs of a group is
worked out from those of its children, all terms packed into one integer. Here a way is also
told apart by the free devices of its GPUs, because the set must have room for the request.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from heapq import heappop, heappush
from itertools import count as ever
from types import MappingProxyType

from agent.allocation.masks import bits, positions
from agent.allocation.score import hca_distance, hca_far
from agent.allocation.shared.counts import Choice
from agent.allocation.shared.terms import Leaves
from agent.allocation.tree import Node

Ways = dict[tuple[int, int], int]
"""(GPUs taken, their free devices) → the least cost."""

NOTHING: Mapping[tuple[int, int], int] = MappingProxyType({(0, 0): 0})


class TreeSets:
    """Answer by dynamic programming over the groups; GPUs in no group are leaves."""

    name = "tree"
    is_exact = True

    def __init__(self, leaves: Leaves, root: Node, devices: int) -> None:
        """Prepare for requests of at most *devices* altogether."""
        self._layout = _Layout(leaves, root, devices)
        self._root = root

    def prepare(self) -> None:
        """Do nothing: no request has anything to wait for."""

    def ranked(self, choice: Choice, count: int) -> list[int]:
        """Return the *count* best sets, best first.

        The sets other than the best are parted by the first GPU of the best that they lack
        (Lawler 1972).
        """
        turn = ever()
        heap: list[tuple[int, int, Choice]] = []

        def ask(part: Choice) -> None:
            cost = self._cheapest(part)
            if cost is not None:
                heappush(heap, (cost, next(turn), part))

        ask(choice)
        found: list[int] = []
        while heap and len(found) < count:
            cost, _, part = heappop(heap)
            found.append(self._layout.taken(cost))
            if len(found) < count:
                for smaller in _parts(part, found[-1]):
                    ask(smaller)
        return found

    def _cheapest(self, choice: Choice) -> int | None:
        """Return the cost of the best set, ``None`` where there is none."""
        return _Run(self._layout, choice, self._root).cheapest()


def _parts(choice: Choice, chosen: int) -> Iterator[Choice]:
    base, others = choice.base, choice.others
    for bit in bits(chosen & ~choice.base):
        others &= ~bit
        yield replace(choice, base=base, others=others)
        base |= bit


class _Layout:
    """Which bits of a cost hold which term.

    The lowest hold the set, negated: of two sets that cost the same otherwise, the one with the
    lower GPUs is the less.
    """

    def __init__(self, leaves: Leaves, root: Node, devices: int) -> None:
        self.facts = leaves.terms.facts
        self.count = len(self.facts.indices)
        widths = {node.hop for node in root.walk() if node.is_cluster}
        self.hops = () if leaves.is_isolated else tuple(sorted(widths, reverse=True))
        largest = {
            "bandwidth_gb_s": len(self.hops),
            "left": devices,
            "hca_distance": hca_distance(self.facts, range(self.count)),
        }
        self._shift: dict[str, int] = {}
        used = self.count
        for name in reversed(leaves.of_the_set):
            self._shift[name] = used
            used += largest.get(name, self.count).bit_length()
        self.gpus = tuple(self._gpu_cost(gpu) for gpu in range(self.count))

    def put(self, name: str, value: int) -> int:
        """Return *value* in the bits of the term *name*; 0 where it is not compared."""
        return value << self._shift[name] if name in self._shift else 0

    def taken(self, cost: int) -> int:
        """Return the set that *cost* names."""
        named = -cost & (1 << self.count) - 1
        return int(f"{named:0{self.count}b}"[::-1], 2)

    def level(self, node: Node) -> int | None:
        """Return the cost of the bandwidth of GPUs that meet in *node*; ``None`` if none do."""
        return self.put("bandwidth_gb_s", self.hops.index(node.hop)) if node.is_cluster else None

    def own(self, node: Node, taken: int) -> int:
        """Return what the group itself adds where *taken* of its GPUs are taken."""
        if not taken:
            return 0
        cost = self.put("numa_nodes", int(node.is_numa)) + self.put("sockets", int(node.is_socket))
        if node.hcas is None:
            return cost
        return cost + self.put("rail_loss", max(0, taken - node.hcas))

    def _gpu_cost(self, gpu: int) -> int:
        """Return what one GPU costs wherever it is taken, with the groups that it makes alone."""
        facts, put = self.facts, self.put
        cost = put("numa_nodes", int(facts.numa.count(facts.numa[gpu]) == 1))
        cost += put("sockets", int(facts.sockets.count(facts.sockets[gpu]) == 1))
        cost += put("rail_loss", int(not facts.hcas[gpu] and any(facts.hcas)))
        cost += put("hca_far", hca_far(facts, (gpu,)))
        cost += put("hca_distance", hca_distance(facts, (gpu,)))
        return cost - (1 << self.count - 1 - gpu)


class _Run:
    """One pass over the groups for one choice."""

    def __init__(self, layout: _Layout, choice: Choice, root: Node) -> None:
        self._layout = layout
        self._choice = choice
        self._root = root
        self._able = choice.base | choice.others
        self._roomiest = sorted(positions(self._able), key=lambda gpu: -choice.free[gpu])

    def cheapest(self) -> int | None:
        _, best = self._of(self._root)
        return None if best is None else best - self._layout.put("left", self._choice.needed)

    def _of(self, node: Node) -> tuple[Ways, int | None]:
        """Return the ways to take GPUs of a group, and the cost of the best answer within."""
        layout, total = self._layout, self._choice.count
        seen, ways = 0, dict(NOTHING)
        answers: list[int | None] = []
        for child in node.children:
            if child.members & self._able:
                seen |= child.members
                inside, answer = self._of(child)
                ways = self._hopeful(_merged(ways, inside), seen)
                answers.append(None if answer is None else answer + layout.own(node, total))
        for gpu in node.gpus:
            if self._able >> gpu & 1:
                seen |= 1 << gpu
                ways = self._hopeful(_merged(ways, self._leaf(gpu)), seen)
        ways = {way: cost + layout.own(node, way[0]) for way, cost in ways.items()}
        answers.append(self._answer(node, ways))
        return ways, min((answer for answer in answers if answer is not None), default=None)

    def _answer(self, node: Node, ways: Ways) -> int | None:
        """Return the cost of the best set whose GPUs meet in *node*.

        One GPU, and MIG instances, have the same bandwidth wherever they are: none.
        """
        choice, layout = self._choice, self._layout
        if choice.count < 2 or not layout.hops:
            level = 0 if node is self._root else None
        else:
            level = layout.level(node)
        if level is None:
            return None
        fit = (
            cost + level
            for (count, room), cost in ways.items()
            if count == choice.count and room >= choice.needed
        )
        return min(fit, default=None)

    def _leaf(self, gpu: int) -> Ways:
        free = self._choice.free[gpu]
        layout = self._layout
        cost = layout.gpus[gpu] + layout.put("left", free)
        cost += layout.put("idle_gpus", self._choice.idle >> gpu & 1)
        taken = {(1, free): cost}
        return taken if self._choice.base >> gpu & 1 else {**NOTHING, **taken}

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
            (count, room): cost
            for (count, room), cost in ways.items()
            if kept <= total - count < len(most) and room + most[total - count] >= needed
        }


def _merged(a: Mapping[tuple[int, int], int], b: Ways) -> Ways:
    """Return the cheapest ways to take GPUs of two disjoint groups."""
    merged: Ways = {}
    for (count, room), cost in a.items():
        for (more, roomier), other in b.items():
            way, both = (count + more, room + roomier), cost + other
            if way not in merged or both < merged[way]:
                merged[way] = both
    return merged
