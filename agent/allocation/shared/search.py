"""The best of the GPU sets that sharing leaves open: by looking at all, or step by step."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from heapq import heappop, heappush, nsmallest
from itertools import combinations, product
from itertools import count as ever
from types import MappingProxyType
from typing import Protocol

from agent.allocation.masks import bits, positions
from agent.allocation.score import hca_distance, hca_far
from agent.allocation.shared.counts import Choice
from agent.allocation.shared.terms import Leaves
from agent.allocation.terms import LARGEST_MESH
from agent.allocation.tree import Node

# The best of the GPU sets that sharing leaves open, on machines whose groups nest.
#
# As in :mod:`agent.allocation.engines` the cheapest way to take some GPUs of a group is
# worked out from those of its children, all terms packed into one integer. Here a way is also
# told apart by the free devices of its GPUs, because the set must have room for the request.

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


ROUNDS = 8
"""Exchanges of one GPU that are tried at most, best first."""


_Judged = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


_Key = tuple[tuple[int, ...], int, int, tuple[int, ...], tuple[int, ...]]


class SetSearch(Protocol):
    """A way to find the best sets of a choice; safe to share between threads."""

    @property
    def name(self) -> str:
        """``tree``, ``table`` or ``exchange``."""
        ...

    @property
    def is_exact(self) -> bool:
        """Whether the first set is proven to be the best of all."""
        ...

    def prepare(self) -> None:
        """Work out now what requests would have to wait for."""
        ...

    def ranked(self, choice: Choice, count: int) -> list[int]:
        """Return the *count* best sets, best first; fewer only where there are fewer."""
        ...


class EnumeratedSets:
    """Look at every set: any shape, 252 sets at most for 10 GPUs."""

    name = "table"
    is_exact = True

    def __init__(self, leaves: Leaves) -> None:
        self._keys = _Keys(leaves)

    def prepare(self) -> None:
        """Judge every set now, on a machine of no more GPUs than the largest mesh."""
        self._keys.prepare()

    def ranked(self, choice: Choice, count: int) -> list[int]:
        """Return the *count* best sets, best first."""
        sets = [mask for mask in _sets(choice) if not choice.needed or choice.room(mask) >= 0]
        if count == 1:
            return [min(sets, key=lambda mask: self._keys.key(mask, choice))] if sets else []
        return nsmallest(count, sets, key=lambda mask: self._keys.key(mask, choice))


class ExchangedSets:
    """Begin with the roomiest GPUs, then exchange one for another while that is better.

    For irregular machines of more than 16 GPUs and meshes of more than 10; none is known to
    have been built. It may miss the best set, and says so.
    """

    name = "exchange"
    is_exact = False

    def __init__(self, leaves: Leaves) -> None:
        self._keys = _Keys(leaves)

    def prepare(self) -> None:
        """Do nothing: too many sets to judge beforehand."""

    def ranked(self, choice: Choice, count: int) -> list[int]:
        """Return the best set that was found and those that it won against last."""
        roomiest = sorted(positions(choice.others), key=lambda gpu: (-choice.free[gpu], gpu))
        missing = choice.count - choice.base.bit_count()
        mask = choice.base | sum(1 << gpu for gpu in roomiest[:missing])
        if choice.room(mask) < 0 or mask.bit_count() < choice.count:
            return []
        found = [mask]
        for _ in range(ROUNDS):
            before = found[0]
            sets = {before, *_exchanges(before, choice)}
            found = nsmallest(count, sets, key=lambda mask: self._keys.key(mask, choice))
            if found[0] == before:
                break
        return found


class _Keys:
    """Compare sets; what does not depend on the request is worked out once for each set."""

    def __init__(self, leaves: Leaves) -> None:
        names = leaves.of_the_set
        cut = names.index("idle_gpus") if "idle_gpus" in names else len(names)
        self._before = names[:cut]
        self._after = tuple(name for name in names[cut:] if name not in ("idle_gpus", "left"))
        self._leaves = leaves
        self._known: dict[int, _Judged] = {}

    def prepare(self) -> None:
        """Judge every set."""
        gpus = len(self._leaves.terms.facts.indices)
        if gpus <= LARGEST_MESH:
            for mask in range(1, 1 << gpus):
                self._judged(mask)

    def key(self, mask: int, choice: Choice) -> _Key:
        """Return what to compare, less is better."""
        before, after, order = self._judged(mask)
        if not choice.needed:
            return before, 0, 0, after, order
        return before, (mask & choice.idle).bit_count(), choice.room(mask), after, order

    def _judged(self, mask: int) -> _Judged:
        known = self._known.get(mask)
        if known is None:
            figures = self._leaves.figures(mask)
            known = (
                tuple(figures[name] for name in self._before),
                tuple(figures[name] for name in self._after),
                positions(mask),
            )
            if self._leaves.terms.is_small:  # at most 65,536 sets
                self._known[mask] = known
        return known


def _sets(choice: Choice) -> Iterator[int]:
    missing = choice.count - choice.base.bit_count()
    return (choice.base | sum(some) for some in combinations(bits(choice.others), missing))


def _exchanges(mask: int, choice: Choice) -> Iterator[int]:
    pairs = product(bits(mask & ~choice.base), bits(choice.others & ~mask))
    return (other for out, into in pairs if choice.room(other := mask ^ out ^ into) >= 0)
