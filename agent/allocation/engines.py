"""Which engine suits a machine: decided once, by its shape."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import accumulate, combinations, takewhile
from math import comb
from operator import add
from typing import Protocol

from agent.allocation.facts import Facts
from agent.allocation.masks import bits, positions
from agent.allocation.remainder import JOB_WEIGHTS
from agent.allocation.rules import DEFAULT, Rules
from agent.allocation.score import hca_distance, hca_far
from agent.allocation.terms import LARGEST_MESH, Figure, Terms
from agent.allocation.tree import Node, bundled, remainder_value

# The ways to find the best set; which one suits a machine is decided by its shape.


class Engine(Protocol):
    """Find sets of one machine. All masks are of positions; *required* lies within *free*.

    Safe to share between threads. *size* lies between the counts of the two.
    """

    @property
    def name(self) -> str:
        """``tree`` or ``table``."""
        ...

    @property
    def is_exact(self) -> bool:
        """Whether the answer is proven to be the best of all."""
        ...

    def prepare(self) -> None:
        """Work out now what requests would otherwise have to wait for; at most once."""
        ...

    def best(self, *, free: int, required: int, size: int) -> int:
        """Return the best set."""
        ...

    def ranked(self, *, free: int, required: int, size: int, count: int) -> list[int]:
        """Return the *count* best sets, best first; fewer only where there are fewer."""
        ...


# What taking GPUs costs, all terms in one integer: the arithmetic of the tree engine.


class Layout:
    """Which bits of a cost hold which term; the lowest name the set."""

    def __init__(self, terms: Terms, root: Node) -> None:
        self.terms = terms
        facts = terms.facts
        self.count = count = len(facts.indices)
        hops = {node.hop for node in root.walk() if node.is_cluster}
        self.hops = sorted(hops, reverse=True)
        self.widest = max(hops, default=0)
        largest = {
            "bandwidth_gb_s": len(self.hops),
            "pair_bandwidth_gb_s": comb(count, 2) * self.widest,
            "remainder_value": remainder_value(root, root.members),
            "hca_distance": hca_distance(facts, range(count)),
            "broken_partitions": len(facts.partitions),
            "crowding": count * count,
            "order": count << count,
        }
        self._shift: dict[str, int] = {}
        used = 0
        for name in reversed(terms.order):
            self._shift[name] = used
            used += largest.get(name, count).bit_length()

    def put(self, name: str, value: int) -> int:
        """Return *value* in the bits of the term *name*; 0 where the policy leaves it out."""
        return value << self._shift[name] if name in self._shift else 0

    def taken(self, cost: int, size: int) -> int:
        """Return the set of *size* GPUs that *cost* names, as a mask."""
        named = (size << self.count) - (cost & (1 << self._shift_above_order) - 1)
        return int(f"{named:0{self.count}b}"[::-1], 2)

    @property
    def _shift_above_order(self) -> int:
        return (self.count << self.count).bit_length()


class GroupCosts:
    """The costs of one group, by how many of its GPUs are taken; GPUs are given as masks."""

    def __init__(self, node: Node, layout: Layout, *, is_root: bool) -> None:
        self._node = node
        self._put = layout.put
        self._own: dict[int, list[int]] = {}
        self._members = node.members
        self._size = node.members.bit_count()
        self.pair_loss = layout.put("pair_bandwidth_gb_s", layout.widest - node.hop)
        self.level = (
            layout.put("bandwidth_gb_s", layout.hops.index(node.hop)) if node.is_cluster else None
        )
        if is_root and self.level is None:
            self.level = 0  # one GPU: no hop at all
        leaves = ((_gpu_cost(gpu, layout), 1 << gpu) for gpu in node.gpus)
        self._gpus = sorted(leaves)

    def of_gpus(self, allowed: int, required: int, most: int) -> tuple[int, list[int]]:
        """Return the costs of the GPUs that are in no smaller group, and the count of the first.

        Their costs add up, so the cheapest way to take some more is to take the cheapest.
        """
        forced = [cost for cost, bit in self._gpus if bit & required] if required else []
        choice = [cost for cost, bit in self._gpus if bit & allowed & ~required]
        totals = accumulate(choice[: most - len(forced)], initial=sum(forced))
        if not self.pair_loss:
            return len(forced), list(totals)
        pairs = (comb(count, 2) * self.pair_loss for count in range(len(forced), most + 1))
        return len(forced), list(map(add, totals, pairs))

    def own(self, free: int) -> list[int]:
        """Return what the group itself adds for 0, 1, … up to all of its *free* GPUs taken."""
        count = (free & self._members).bit_count()
        found = self._own.get(count)
        if found is None:
            found = self._own[count] = [self._cost(count, taken) for taken in range(count + 1)]
        return found

    def _cost(self, free: int, taken: int) -> int:
        if not taken:
            return 0
        node, put = self._node, self._put
        used = self._size - free
        cost = put("numa_nodes", int(node.is_numa)) + put("sockets", int(node.is_socket))
        if node.is_numa:
            cost += put("crowding", (used + taken) ** 2 - used**2)
        if node.hcas is not None:
            cost += put("rail_loss", max(0, taken - node.hcas))
        if node.is_partition and free == self._size > taken:
            cost += put("broken_partitions", 1)
        lost = sum(w * (free // job - (free - taken) // job) for job, w in JOB_WEIGHTS.items())
        return cost + put("remainder_value", node.gain * lost)


def _gpu_cost(gpu: int, layout: Layout) -> int:
    """Return what one GPU costs wherever it is taken, the groups that it makes alone included."""
    facts, put = layout.terms.facts, layout.put
    is_alone_in_node = facts.numa.count(facts.numa[gpu]) == 1
    cost = put("numa_nodes", int(is_alone_in_node)) + put("crowding", int(is_alone_in_node))
    cost += put("sockets", int(facts.sockets.count(facts.sockets[gpu]) == 1))
    cost += put("rail_loss", int(not facts.hcas[gpu] and any(facts.hcas)))
    cost += put("hca_far", hca_far(facts, (gpu,)))
    cost += put("hca_distance", hca_distance(facts, (gpu,)))
    return cost + put("order", (1 << layout.count) - (1 << layout.count - 1 - gpu))


# The best set of a machine whose groups nest, by dynamic programming over the groups.
#
# For every group and every count the cheapest way to take so many of its GPUs is worked out from
# those of its children. That is exact because all terms add up over disjoint groups, and the
# bandwidth of a set is the hop of the innermost cluster around it. All terms of a way are packed
# into one integer, the most important in the highest bits, so that comparing two ways is
# comparing two integers; the lowest bits name the GPUs taken.

LARGEST_KEPT = 8
"""GPUs of a group up to which its costs are kept: each GPU of it is taken, free or required, so
there are 6,561 cases at most."""


Costs = list[int]
"""The cheapest ways to take some GPUs of a group, then one more, and so on."""


_Table = tuple[int, Costs]
"""How many GPUs the first of the costs is for, and the costs."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class _Request:
    """One question. Only *allowed* GPUs may be taken; *free* is what the terms are told."""

    free: int
    allowed: int
    required: int
    size: int

    def bounds(self, members: int) -> tuple[int, int]:
        """Return the least and the most GPUs of a group that can be part of an answer."""
        able = (self.allowed & members).bit_count()
        least = self.size - self.allowed.bit_count() + able
        if not self.required:
            return max(0, least), min(able, self.size)
        kept = (self.required & members).bit_count()
        return max(kept, least), min(able, self.size - self.required.bit_count() + kept)

    def leaves_open(self, members: int) -> bool:
        """Return whether any free GPU of the group may be taken."""
        return not (self.free ^ self.allowed) & members


class TreeEngine:
    """Answer by dynamic programming; time grows with groups times the square of the size."""

    name = "tree"
    is_exact = True

    def __init__(self, terms: Terms, root: Node) -> None:
        self._layout = Layout(terms, root)
        self._root = root = bundled(root, LARGEST_KEPT)
        nodes = list(root.walk())
        self._costs = {
            node.members: GroupCosts(node, self._layout, is_root=node is root) for node in nodes
        }
        self._kept: dict[tuple[int, int, int], _Table] = {}
        self._clusters = [node for node in nodes if self._costs[node.members].level is not None]
        self._around = {
            node.members: [
                self._costs[other.members]
                for other in nodes
                if other is not node and other.members & node.members == node.members
            ]
            for node in self._clusters
        }

    def prepare(self) -> None:
        """Do nothing: what is kept is worked out in less time than an answer may take."""

    def best(self, *, free: int, required: int, size: int) -> int:
        """Return the best set."""
        if size == required.bit_count():
            return required
        request = _Request(free=free, allowed=free, required=required, size=size)
        return self._layout.taken(self._cheapest(request), size)

    def ranked(self, *, free: int, required: int, size: int, count: int) -> list[int]:
        """Return the *count* best sets, best first.

        The sets other than the best are parted by the first GPU of the best that they lack;
        the best of each part is found as the best of all was (Lawler 1972).
        """
        first = _Request(free=free, allowed=free, required=required, size=size)
        heap = [(self._cheapest(first), first)]
        found: list[int] = []
        while heap and len(found) < count:
            cost, request = heappop(heap)
            found.append(self._layout.taken(cost, size))
            for part in _parts(request, found[-1]):
                heappush(heap, (self._cheapest(part), part))
        return found

    def _cheapest(self, request: _Request) -> int:
        """Return the least cost over all clusters that can hold the whole set."""
        tables: dict[int, _Table] = {}
        self._table(self._root, request, tables)
        return min(
            self._whole(node, request, tables)
            for node in self._clusters
            if (request.allowed & node.members).bit_count() >= request.size
            and not request.required & ~node.members
        )

    def _whole(self, node: Node, request: _Request, tables: dict[int, _Table]) -> int:
        """Return the least that a set within *node* costs."""
        start, costs = tables.get(node.members) or self._table(node, request, tables)
        size = request.size
        level = self._costs[node.members].level or 0
        return (
            costs[size - start]
            + (level if size > 1 else 0)
            + sum(around.own(request.free)[size] for around in self._around[node.members])
        )

    def _table(self, node: Node, request: _Request, tables: dict[int, _Table]) -> _Table:
        """Return the costs within *node* for all counts that an answer can hold."""
        low, high = request.bounds(node.members)
        if not high:
            return 0, [0]
        if node.members.bit_count() <= LARGEST_KEPT and request.leaves_open(node.members):
            start, costs = self._all_counts(node, request.free, request.required)
            return low, costs[low - start : high - start + 1]
        group = self._costs[node.members]
        of_gpus = group.of_gpus(request.allowed, request.required, high)
        children = (self._table(child, request, tables) for child in node.children)
        start, costs = _joined(group, (of_gpus, *children), request.free, high)
        tables[node.members] = max(low, start), costs[max(0, low - start) :]
        return tables[node.members]

    def _all_counts(self, node: Node, free: int, required: int) -> _Table:
        """Return the costs of all counts of *node*, from memory if known."""
        key = node.members, free & node.members, required & node.members
        kept = self._kept.get(key)
        if kept is None:
            group = self._costs[node.members]
            of_gpus = group.of_gpus(key[1], key[2], key[1].bit_count())
            children = (self._all_counts(child, free, required) for child in node.children)
            kept = _joined(group, (of_gpus, *children), free, key[1].bit_count())
            self._kept[key] = kept
        return kept


def _joined(group: GroupCosts, parts: Iterable[_Table], free: int, most: int) -> _Table:
    """Return the costs of a group from those of its disjoint parts, up to *most* GPUs."""
    start, costs = 0, [0]
    for more, others in parts:
        costs = _merged(costs, others, (start, more), group.pair_loss)
        start += more
        del costs[max(0, most - start + 1) :]
    own = group.own(free)
    return start, [cost + own[taken] for taken, cost in enumerate(costs, start)]


def _merged(a: Costs, b: Costs, starts: tuple[int, int], pair_loss: int) -> Costs:
    """Return the cheapest ways to take GPUs of two disjoint groups.

    Each pair of GPUs across the two loses *pair_loss*.
    """
    if len(b) > len(a):
        a, b, starts = b, a, starts[::-1]
    merged: Costs = []
    for place, theirs in enumerate(b):
        if pair_loss:
            loss = (starts[1] + place) * pair_loss
            ways = [mine + theirs + taken * loss for taken, mine in enumerate(a, starts[0])]
        else:
            ways = [mine + theirs for mine in a]
        merged[place:] = [*map(min, merged[place:], ways), *ways[max(0, len(merged) - place) :]]
    return merged


def _parts(request: _Request, chosen: int) -> Iterator[_Request]:
    """Part the sets other than *chosen* by the first of its GPUs that they lack."""
    required = request.required
    for bit in bits(chosen & ~request.required):
        allowed = request.allowed & ~bit
        if allowed.bit_count() < request.size:
            return
        yield replace(request, allowed=allowed, required=required)
        required |= bit


# The best set of a small machine of any shape, from lists of all its sets.

BUILD_COST = 16
"""Looking up a built set costs this many times as much as passing it over in a table
(measured on CPython 3.11: about 1 µs against 60 ns)."""


Group = tuple[int, ...]
"""Sets that are equal in every leading term that does not depend on what is free."""


class TableEngine:
    """Keep all sets of a size in order of their leading terms; compare the others on request.

    The table of a size is made at its first request, or by :meth:`prepare`.
    """

    name = "table"
    is_exact = True

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._everyone = (1 << len(terms.facts.indices)) - 1
        leading = list(takewhile(terms.is_fixed, terms.order))
        self._leading = [terms.figure(name) for name in leading]
        rest = [name for name in terms.order if name not in leading and name != "order"]
        self._rest: list[Figure] = [terms.figure(name) for name in rest]
        self._tables: dict[int, tuple[Group, ...]] = {}

    def prepare(self) -> None:
        """Make every table now, and on a mesh the value of all that can be left."""
        count = self._everyone.bit_length()
        for size in range(1, count + 1):
            self._table(size)
        for left in range(1 << count if count <= LARGEST_MESH else 0):
            self._terms.value_left(left)

    def best(self, *, free: int, required: int, size: int) -> int:
        """Return the best set."""
        if size == required.bit_count():
            return required
        candidates = next(self._groups(free, required, size))
        for figure in self._rest:
            if len(candidates) == 1:
                break
            figures = [figure(mask, free) for mask in candidates]
            least = min(figures)
            candidates = [m for m, f in zip(candidates, figures, strict=True) if f == least]
        return candidates[0] if len(candidates) == 1 else min(candidates, key=positions)

    def ranked(self, *, free: int, required: int, size: int, count: int) -> list[int]:
        """Return the *count* best sets, best first."""
        found: list[int] = []
        for group in self._groups(free, required, size):
            found += sorted(group, key=lambda mask: self._key(mask, free))
            if len(found) >= count:
                break
        return found[:count]

    def _key(self, mask: int, free: int) -> tuple[list[int], tuple[int, ...]]:
        return [figure(mask, free) for figure in self._rest], positions(mask)

    def _groups(self, free: int, required: int, size: int) -> Iterator[list[int]]:
        """Yield the candidates in groups of equal leading terms, best first."""
        choices, missing = bits(free & ~required), size - required.bit_count()
        everything = comb(self._everyone.bit_count(), size)
        if size not in self._tables and comb(len(choices), missing) * BUILD_COST <= everything:
            candidates = (required + sum(some) for some in combinations(choices, missing))
            yield from map(list, self._grouped(candidates))
            return
        taken = ~free
        for group in self._table(size):
            if usable := [m for m in group if not m & taken and m & required == required]:
                yield usable

    def _table(self, size: int) -> tuple[Group, ...]:
        """Return all sets of *size* on the whole machine, grouped, best group first."""
        table = self._tables.get(size)
        if table is None:
            masks = (sum(chosen) for chosen in combinations(bits(self._everyone), size))
            table = self._tables[size] = tuple(self._grouped(masks))
        return table

    def _grouped(self, masks: Iterable[int]) -> list[Group]:
        groups: dict[tuple[int, ...], list[int]] = {}
        for mask in masks:
            key = tuple(figure(mask, mask) for figure in self._leading)
            groups.setdefault(key, []).append(mask)
        return [tuple(groups[key]) for key in sorted(groups)]


# A good set of a machine that is too large and too irregular to look at every set.

TRIED = 8
"""The best sets of the tree that are judged as the machine is; each takes up to a few ms."""


class NearestEngine:
    """Take the best sets of the tree that is most like the machine, and judge them as they are.

    It may miss the best set, and says so.
    """

    name = "tree"
    is_exact = False

    def __init__(self, terms: Terms, root: Node) -> None:
        self._tree = TreeEngine(terms, root)
        self._figures = [terms.figure(name) for name in terms.order if name != "order"]

    def prepare(self) -> None:
        """Do nothing: nothing is worked out beforehand."""

    def best(self, *, free: int, required: int, size: int) -> int:
        """Return the best set that was found."""
        return self.ranked(free=free, required=required, size=size, count=1)[0]

    def ranked(self, *, free: int, required: int, size: int, count: int) -> list[int]:
        """Return the best sets that were found, best first."""
        tried = self._tree.ranked(free=free, required=required, size=size, count=max(count, TRIED))
        return sorted(tried, key=lambda mask: self._key(mask, free))[:count]

    def _key(self, mask: int, free: int) -> tuple[list[int], tuple[int, ...]]:
        return [figure(mask, free) for figure in self._figures], positions(mask)


def choose(facts: Facts, rules: Rules = DEFAULT) -> Engine:
    """Return the engine for the machine of *facts*."""
    return suited(Terms(facts, rules))


def suited(terms: Terms) -> Engine:
    """Return the engine for the machine and the rules of *terms*.

    Groups that nest, as on NVSwitch and PCIe machines, make a tree of any size. A mesh or an
    irregular machine is enumerated while it is small. A larger one is answered as the tree that
    is most like it, without proof; none is known to have been built.
    """
    if terms.tree is not None:
        return TreeEngine(terms, terms.tree)
    if terms.nearest is not None:
        return NearestEngine(terms, terms.nearest)
    return TableEngine(terms)
