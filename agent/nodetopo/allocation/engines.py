"""The two ways to find the best set of GPUs of a machine.

Groups that nest, as on NVSwitch and PCIe machines, make a tree of any size, which
:class:`TreeEngine` solves by dynamic programming. Of a mesh or an irregular machine
:class:`TableEngine` compares all sets while it is small. A larger one, and none is known to have
been built, is solved as the most similar tree; that answer might not be the best, and says so.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import accumulate
from math import comb
from operator import add
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.allocation.facts import Facts
from nodetopo.allocation.families import Family, highest
from nodetopo.allocation.masks import bits
from nodetopo.allocation.remainder import JOB_WEIGHTS
from nodetopo.allocation.score import hca_distance, hca_far, hca_nearness, rails_beside, reach
from nodetopo.allocation.terms import Terms
from nodetopo.allocation.tree import Node, bundled, remainder_value

LARGEST_KEPT = 8
"""GPUs of a group up to which its costs are kept: each GPU of it is taken, free or required, so
there are 6,561 cases at most."""

BEST_OF_TREE = 8
"""The best sets of a merely similar tree that are compared by their real terms; each takes up to
a few ms."""

Costs = list[int]
"""The cheapest ways to take some number of GPUs of a group, then one more, and so on."""

CostsFrom = tuple[int, Costs]
"""The number of GPUs that the first of the costs is for, and the costs."""


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

    def best(self, *, free: int, required: int, size: int) -> int:
        """Return the best set."""
        ...

    def ranked(self, *, free: int, required: int, size: int, count: int) -> list[int]:
        """Return the *count* best sets, best first; fewer only where there are fewer.

        Each is the best of those that are left: what a request gets that cannot have the others.
        """
        ...


def engine_for(terms: Terms) -> Engine:
    """Return the engine for the machine and the rules of *terms*."""
    root = terms.tree or terms.nearest
    return TableEngine(terms) if root is None else TreeEngine(terms, root)


class TreeEngine:
    """Answer by dynamic programming; time grows with groups times the square of the size.

    For every group and every count, the cheapest way to take that many of its GPUs follows from its
    children's. That is exact because all terms add up over disjoint groups, and the bandwidth of a
    set is the hop of the innermost cluster around it. All terms of a way are packed into one
    integer, the most important in the highest bits, so that comparing two ways is comparing two
    integers; the lowest bits name the GPUs taken.

    On a tree that is only similar to the machine the best sets are ordered by their real terms.
    """

    name = "tree"

    def __init__(self, terms: Terms, root: Node, *, is_for_one: bool = False) -> None:
        """Prepare for requests of any size; with *is_for_one* for one GPU, whose terms differ."""
        size = 1 if is_for_one else 3
        self.is_exact = terms.tree is not None
        self._terms = terms
        self._layout = _Layout(terms, root, terms.order(size))
        self._of_one = None if is_for_one else TreeEngine(terms, root, is_for_one=True)
        self._root = root = bundled(root, LARGEST_KEPT)
        nodes = list(root.walk())
        self._costs = {
            node.members: _GroupCosts(node, self._layout, is_root=node is root) for node in nodes
        }
        self._kept: dict[tuple[int, int, int], CostsFrom] = {}
        self._clusters = [node for node in nodes if self._costs[node.members].level is not None]
        self._around = {
            node.members: [
                self._costs[other.members]
                for other in nodes
                if other is not node and other.members & node.members == node.members
            ]
            for node in self._clusters
        }

    def best(self, *, free: int, required: int, size: int) -> int:
        if size == required.bit_count():
            return required
        if size == 1 and self._of_one:
            return self._of_one.best(free=free, required=required, size=size)
        if not self.is_exact:
            return self.ranked(free=free, required=required, size=size, count=1)[0]
        request = _Request(free=free, allowed=free, required=required, size=size)
        return self._layout.members(self._cheapest(request), size)

    def ranked(self, *, free: int, required: int, size: int, count: int) -> list[int]:
        """Return the *count* best sets, best first.

        The sets other than the best are divided by the first GPU of the best that they lack;
        the best of each part is found as the best of all was (Lawler 1972).
        """
        if size == 1 and self._of_one:
            return self._of_one.ranked(free=free, required=required, size=size, count=count)
        wanted = count if self.is_exact else max(count, BEST_OF_TREE)
        first = _Request(free=free, allowed=free, required=required, size=size)
        heap = [(self._cheapest(first), first)]
        sets: list[int] = []
        while heap and len(sets) < wanted:
            cost, request = heappop(heap)
            sets.append(self._layout.members(cost, size))
            for part in request.without(sets[-1]):
                heappush(heap, (self._cheapest(part), part))
        if not self.is_exact:
            sets = self._terms.ranked(sets, free)
        return sets[:count]

    def _cheapest(self, request: "_Request") -> int:
        """Return the least cost over all clusters that can hold the whole set."""
        tables: dict[int, CostsFrom] = {}
        self._table(self._root, request, tables)
        free, required, size = request.free, request.required, request.size
        best = None
        for node in self._clusters:
            members = node.members
            if required & ~members or (request.allowed & members).bit_count() < size:
                continue
            start, costs = tables.get(members) or self._table(node, request, tables)
            cost = costs[size - start]
            if size > 1:
                cost += self._costs[members].level or 0
            for around in self._around[members]:
                cost += around.own(free)[size]
            if best is None or cost < best:
                best = cost
        assert best is not None  # the root is a cluster, and holds every set
        return best

    def _table(self, node: Node, request: "_Request", tables: dict[int, CostsFrom]) -> CostsFrom:
        """Return the costs within *node* for all counts that an answer can hold."""
        low, high = request.bounds(node.members)
        if not high:
            return 0, [0]
        if node.members.bit_count() <= LARGEST_KEPT and request.leaves_open(node.members):
            start, costs = self._all_counts(node, request)
            return low, costs[low - start : high - start + 1]
        group = self._costs[node.members]
        of_gpus = group.of_gpus(request.allowed, request.required, high)
        children = (self._table(child, request, tables) for child in node.children)
        start, costs = _joined(group, (of_gpus, *children), request, high)
        tables[node.members] = max(low, start), costs[max(0, low - start) :]
        return tables[node.members]

    def _all_counts(self, node: Node, request: "_Request") -> CostsFrom:
        """Return the costs of all counts of *node*, once for each of its cases."""
        key = node.members, request.free & node.members, request.required & node.members
        kept = self._kept.get(key)
        if kept is None:
            group = self._costs[node.members]
            of_gpus = group.of_gpus(key[1], key[2], key[1].bit_count())
            children = (self._all_counts(child, request) for child in node.children)
            kept = _joined(group, (of_gpus, *children), request, key[1].bit_count())
            self._kept[key] = kept
        return kept


class TableEngine:
    """Answer for a small machine of any shape by narrowing the family of all sets, term by term.

    A term's values for all sets are computed when first compared, see
    :mod:`nodetopo.allocation.tables`; so a request takes as long with thousands of equal sets as
    with few.
    """

    name = "table"
    is_exact = True

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._orders = {size: terms.order(size) for size in (1, 2, 3)}

    def best(self, *, free: int, required: int, size: int) -> int:
        if size == required.bit_count():
            return required
        return self._best_of(self._terms.tables.sets(free, required, size), free, size)

    def ranked(self, *, free: int, required: int, size: int, count: int) -> list[int]:
        family = self._terms.tables.sets(free, required, size)
        sets: list[int] = []
        while family and len(sets) < count:
            sets.append(self._best_of(family, free, size))
            family ^= 1 << sets[-1]
        return sets

    def _best_of(self, family: Family, free: int, size: int) -> int:
        for name in self._orders[min(size, 3)]:
            if family == 1 << highest(family):
                break
            family = self._terms.tables.best(name, family, free, size)
        return highest(family)


class CostBits:
    """Which bits of an integer cost hold which term, the most important term highest."""

    def __init__(
        self, facts: Facts, order: Sequence[str], largest: Mapping[str, int], reserved: int = 0
    ) -> None:
        """Lay out the terms of *order* above *reserved* bits.

        *largest* is the largest value of a term; any other term's is the number of GPUs.
        """
        self.facts = facts
        self.count = len(facts.indices)
        self._shift: dict[str, int] = {}
        for name in reversed(order):
            self._shift[name] = reserved
            reserved += largest.get(name, self.count).bit_length()

    def put(self, name: str, value: int) -> int:
        """Return *value* in the bits of the term *name*; 0 where it is not compared."""
        return value << self._shift[name] if name in self._shift else 0

    def of_gpu(self, gpu: int) -> int:
        """Return what a GPU costs wherever it is taken, with the groups that it makes alone."""
        facts, put = self.facts, self.put
        is_alone_in_node = facts.numa.count(facts.numa[gpu]) == 1
        cost = put("numa_nodes", int(is_alone_in_node)) + put("crowding", int(is_alone_in_node))
        cost += put("sockets", int(facts.sockets.count(facts.sockets[gpu]) == 1))
        cost += put("models", int(facts.models.count(facts.models[gpu]) == 1))
        cost += put("rail_loss", int(not facts.hcas[gpu] and any(facts.hcas)))
        cost += put("hca_far", hca_far(facts, (gpu,)))
        cost += put("hca_distance", hca_distance(facts, (gpu,)))
        cost += put("hca_nearness", hca_nearness(facts, (gpu,)))
        cost += put("rails_beside", rails_beside(facts, (gpu,)))
        return cost + put("reach_gb_s", reach(facts, (gpu,)))

    def reversed_mask(self, number: int) -> int:
        """Return *number* with its bits in reverse: GPU 0 has the highest bit in a cost.

        So of two sets the one with the lower GPUs is the larger number.
        """
        return int(f"{number:0{self.count}b}"[::-1], 2)


class _Layout(CostBits):
    """The costs of the tree engine; the lowest term, "order", names the set."""

    def __init__(self, terms: Terms, root: Node, order: Sequence[str]) -> None:
        count = len(terms.facts.indices)
        hops = {node.hop for node in root.walk() if node.is_cluster}
        self.hops = sorted(hops, reverse=True)
        self.widest = max(hops, default=0)
        largest_order = count << count
        self._order_mask = (1 << largest_order.bit_length()) - 1
        largest = {
            "bandwidth_gb_s": len(self.hops),
            "pair_bandwidth_gb_s": comb(count, 2) * self.widest,
            "remainder_value": remainder_value(root, root.members),
            "hca_distance": hca_distance(terms.facts, range(count)),
            "hca_nearness": hca_nearness(terms.facts, range(count)),
            "rails_beside": rails_beside(terms.facts, range(count)),
            "shortfall_gb_s": 0,  # no two bandwidths count as equal
            "reach_gb_s": reach(terms.facts, range(count)),
            "broken_partitions": len(terms.facts.partitions),
            "crowding": count * count,
            "order": largest_order,
        }
        super().__init__(terms.facts, order, largest)

    def of_gpu(self, gpu: int) -> int:
        """Return what a GPU costs wherever it is taken, its place in the order included."""
        order = (1 << self.count) - (1 << self.count - 1 - gpu)
        return super().of_gpu(gpu) + self.put("order", order)

    def members(self, cost: int, size: int) -> int:
        """Return the set of *size* GPUs that *cost* names, as a mask."""
        return self.reversed_mask((size << self.count) - (cost & self._order_mask))


class _GroupCosts:
    """The costs of one group, by how many of its GPUs are taken; GPUs are given as masks."""

    def __init__(self, node: Node, layout: _Layout, *, is_root: bool) -> None:
        self._node = node
        self._put = layout.put
        self._own: dict[int, list[int]] = {}
        self._members = node.members
        self._size = node.members.bit_count()
        self._jobs = [
            sum(w * (count // job) for job, w in JOB_WEIGHTS.items())
            for count in range(self._size + 1)
        ]
        self.pair_loss = layout.put("pair_bandwidth_gb_s", layout.widest - node.hop)
        self.level = (
            layout.put("bandwidth_gb_s", layout.hops.index(node.hop)) if node.is_cluster else None
        )
        if is_root and self.level is None:
            self.level = 0  # one GPU: no hop at all
        self._gpus = sorted((layout.of_gpu(gpu), 1 << gpu) for gpu in node.gpus)

    def of_gpus(self, allowed: int, required: int, most: int) -> CostsFrom:
        """Return the costs of the GPUs that are in no smaller group.

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
        kept = self._own.get(count)
        if kept is not None:
            return kept
        node, put, used = self._node, self._put, self._size - count
        costs = [0]
        for taken in range(1, count + 1):
            cost = put("numa_nodes", int(node.is_numa)) + put("sockets", int(node.is_socket))
            cost += put("models", int(node.is_model))
            if node.is_numa:
                cost += put("crowding", (used + taken) ** 2 - used**2)
            if node.hcas is not None:
                cost += put("rail_loss", max(0, taken - node.hcas))
            if node.is_partition and not used and taken < count:
                cost += put("broken_partitions", 1)
            lost = self._jobs[count] - self._jobs[count - taken]
            costs.append(cost + put("remainder_value", node.gain * lost))
        self._own[count] = costs
        return costs


class _Request(Struct, frozen=True, kw_only=True, order=True):
    """A request to the tree; only *allowed* GPUs can be taken, the terms count all *free* ones."""

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
        """Return whether any free GPU of the group can be taken."""
        return not (self.free ^ self.allowed) & members

    def without(self, chosen: int) -> "Iterator[_Request]":
        """Divide the sets other than *chosen* by the first of its GPUs that they lack."""
        required = self.required
        for bit in bits(chosen & ~self.required):
            allowed = self.allowed & ~bit
            if allowed.bit_count() < self.size:
                return
            yield replace(self, allowed=allowed, required=required)
            required |= bit


def _joined(
    group: _GroupCosts, parts: Iterable[CostsFrom], request: _Request, most: int
) -> CostsFrom:
    """Return the costs of a group from the costs of its disjoint parts, up to *most* GPUs."""
    start, costs = 0, [0]
    for more, others in parts:
        costs = _merged(costs, others, (start, more), group.pair_loss)
        start += more
        del costs[max(0, most - start + 1) :]
    own = group.own(request.free)
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
