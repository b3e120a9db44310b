"""The best set of a machine whose groups nest, by dynamic programming over the groups.

For every group and every count the cheapest way to take so many of its GPUs is worked out from
those of its children. That is exact because all terms add up over disjoint groups, and the
bandwidth of a set is the hop of the innermost cluster around it. All terms of a way are packed
into one integer, the most important in the highest bits, so that comparing two ways is
comparing two integers; the lowest bits name the GPUs taken.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from heapq import heappop, heappush

from agent.allocation.masks import bits
from agent.allocation.terms import Terms
from agent.allocation.tree import Node, bundled
from agent.allocation.tree_costs import GroupCosts, Layout

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
