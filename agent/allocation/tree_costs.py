"""What taking GPUs costs, all terms in one integer: the arithmetic of the tree engine."""

from itertools import accumulate
from math import comb
from operator import add

from agent.allocation.remainder import JOB_WEIGHTS
from agent.allocation.score import hca_distance, hca_far
from agent.allocation.terms import Terms
from agent.allocation.tree import Node, remainder_value


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
