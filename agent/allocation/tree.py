"""The machine as a tree of nested groups of GPUs, where it is one.

Groups are what the terms of a set depend on: GPUs that reach each other at some bandwidth,
NUMA nodes, sockets, GPUs that share HCAs, PCIe switches. On NVSwitch and PCIe machines any two
of them are nested or disjoint, and every term of a set adds up over them; that is what
:mod:`agent.allocation.engines` needs. NVLink meshes are no such machines.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, groupby

from agent.allocation.facts import Facts, Place
from agent.allocation.masks import positions
from agent.allocation.remainder import JOB_WEIGHTS
from agent.allocation.score import set_value


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Node:
    """A group of two GPUs or more; masks are of positions.

    Attributes:
        members: all GPUs of the group.
        gpus: those that are in none of the children, ascending.
        children: the groups within, none within another.
        hop: bandwidth between GPUs of different children, 0.1 GB/s.
        gain: how much more a job is worth within the group than within the next larger one,
            0.01 GB/s; see :func:`agent.allocation.score.set_value`.
        is_cluster: the group is all that reach each other at *hop* or more.
        is_numa, is_socket: the group is all GPUs of one NUMA node, or socket.
        is_partition: a PCIe switch or a Fabric Manager pair, see :attr:`Facts.partitions`.
        hcas: HCAs that are nearest to these GPUs and no others; ``None`` for no such group.
    """

    members: int
    gpus: tuple[int, ...]
    children: tuple["Node", ...]
    hop: int
    gain: int
    is_cluster: bool
    is_numa: bool
    is_socket: bool
    is_partition: bool
    hcas: int | None

    def walk(self) -> Iterator["Node"]:
        """Yield the group and all within it."""
        yield self
        for child in self.children:
            yield from child.walk()


def tree(facts: Facts) -> Node | None:
    """Return the largest group of the machine, ``None`` where its groups do not nest."""
    if not facts.indices or not _is_decided_by_the_worst_hop(facts):
        return None
    groups = _Groups(facts)
    return groups.root() if groups.are_nested() else None


def nearest_tree(facts: Facts) -> Node:
    """Return a tree that is like the machine; groups that clash with larger duties are left out.

    For irregular machines that are too large to look at every set. Hops count as the widest
    way by relays, NUMA nodes and sockets go before HCAs, those before partitions.
    """
    return _Groups(facts, is_relaxed=True).root()


def remainder_value(root: Node, free: int) -> int:
    """Return what *free* GPUs are worth to later jobs, 0.01 GB/s.

    Exact: jobs of one size, cut from the innermost groups first and from what is left over
    further out, are as many in every group as fit into it, and a job is worth the more the
    smaller its group. Equal to :class:`agent.allocation.remainder.Packing`.
    """
    total = 0
    for node in root.walk():
        count = (node.members & free).bit_count()
        if node.gain and count > 1:
            total += node.gain * sum(w * (count // job) for job, w in JOB_WEIGHTS.items())
    return total


def bundled(node: Node, most: int) -> Node:
    """Return the same tree with small children of a large group bundled up to *most* GPUs.

    A bundle means nothing by itself; its costs can be kept where those of the large group are
    too many.
    """
    if node.members.bit_count() <= most:
        return node
    children: list[Node] = []
    bundle: list[Node] = []
    for child in (bundled(child, most) for child in node.children):
        if sum(one.members.bit_count() for one in (*bundle, child)) > most:
            children += _bundle(node, bundle)
            bundle = []
        bundle.append(child)
    return replace(node, children=(*children, *_bundle(node, bundle)))


def _bundle(node: Node, children: list[Node]) -> list[Node]:
    if len(children) < 2:
        return children
    members = sum(child.members for child in children)
    return [
        Node(
            members=members,
            gpus=(),
            children=tuple(children),
            hop=node.hop,
            gain=0,
            is_cluster=False,
            is_numa=False,
            is_socket=False,
            is_partition=False,
            hcas=None,
        ),
    ]


def _is_decided_by_the_worst_hop(facts: Facts) -> bool:
    """Return whether no set has several NVLink rings of its own, as sets of a mesh do."""
    return facts.is_switched or all(sum(map(bool, row)) <= 1 for row in facts.links)


class _Groups:
    """All groups of a machine by mask, with what each of them is."""

    def __init__(self, facts: Facts, *, is_relaxed: bool = False) -> None:
        self._facts = facts
        everyone = (1 << len(facts.indices)) - 1
        self._clusters = _linked_clusters(facts.hops) if is_relaxed else _clusters(facts.hops)
        self._numa = _places(facts.numa)
        self._sockets = _places(facts.sockets)
        self._hcas = _by_hcas(facts.hcas)
        self._partitions = frozenset(facts.partitions)
        named = (self._clusters or (), self._numa, self._sockets, self._hcas, self._partitions)
        masks = [m for m in (everyone, *chain(*named)) if m & (m - 1)]
        kept = _nested(masks) if is_relaxed else set(masks)
        self._masks = sorted(kept, key=lambda mask: (mask.bit_count(), mask))

    def are_nested(self) -> bool:
        """Return whether any two groups are nested or disjoint, and hops nest as well."""
        if self._clusters is None or not _are_disjoint(self._facts.hcas):
            return False
        return all(_nest(a, b) for a, b in combinations(self._masks, 2))

    def root(self) -> Node:
        """Return the group of all; a single GPU makes a group of one."""
        everyone = (1 << len(self._facts.indices)) - 1
        return self._node(everyone, [m for m in self._masks if m != everyone], 0)

    def _node(self, members: int, inner: list[int], outer_value: int) -> Node:
        """Build one group; *inner* are the groups within it, smallest first."""
        value = self._value(members)
        direct: list[int] = []
        for mask in reversed(inner):
            if not any(mask & larger for larger in direct):
                direct.append(mask)
        inside = sum(direct)
        return Node(
            members=members,
            gpus=positions(members & ~inside),
            children=tuple(
                self._node(mask, [m for m in inner if m & mask == m and m != mask], value)
                for mask in sorted(direct)
            ),
            hop=self._hop(members),
            gain=value - outer_value,
            is_cluster=members in (self._clusters or ()),
            is_numa=members in self._numa,
            is_socket=members in self._sockets,
            is_partition=members in self._partitions,
            hcas=self._hcas.get(members),
        )

    def _hop(self, members: int) -> int:
        """Return the hop between children: that of the smallest cluster around the group."""
        around = [mask for mask in self._clusters or () if mask & members == members]
        return (self._clusters or {})[min(around, key=int.bit_count)] if around else 0

    def _value(self, members: int) -> int:
        nodes = 1 + all(mask & members != members for mask in self._numa)
        sockets = 1 + all(mask & members != members for mask in self._sockets)
        return set_value(self._hop(members), nodes, sockets)


def _clusters(hops: Sequence[Sequence[int]]) -> dict[int, int] | None:
    """Return the hop at which each group of GPUs comes together; ``None`` if hops do not nest."""
    found: dict[int, int] = {}
    count = range(len(hops))
    for width in sorted({hops[a][b] for a, b in combinations(count, 2)}, reverse=True):
        reach = [sum(1 << b for b in count if b == a or hops[a][b] >= width) for a in count]
        for mask in set(reach):
            if any(reach[gpu] != mask for gpu in positions(mask)):
                return None
            if mask & (mask - 1):
                found.setdefault(mask, width)
    return found


def _linked_clusters(hops: Sequence[Sequence[int]]) -> dict[int, int]:
    """Return the widest hop at which GPUs come together, if need be by way of others."""
    found: dict[int, int] = {}
    count = range(len(hops))
    group = [1 << gpu for gpu in count]
    pairs = sorted(combinations(count, 2), key=lambda pair: -hops[pair[0]][pair[1]])
    for width, level in groupby(pairs, key=lambda pair: hops[pair[0]][pair[1]]):
        for a, b in level:
            both = group[a] | group[b]
            for gpu in positions(both):
                group[gpu] = both
        found |= {mask: width for mask in group if mask & (mask - 1) and mask not in found}
    return found


def _nested(masks: Iterable[int]) -> set[int]:
    """Return the masks that nest with all that were kept before them."""
    kept: set[int] = set()
    for mask in masks:
        if all(_nest(mask, other) for other in kept):
            kept.add(mask)
    return kept


def _nest(a: int, b: int) -> bool:
    return a & b in (0, a, b)


def _places(places: Iterable[Place]) -> frozenset[int]:
    groups: dict[Place, int] = defaultdict(int)
    for position, place in enumerate(places):
        groups[place] |= 1 << position
    return frozenset(groups.values())


def _by_hcas(hcas: Sequence[int]) -> dict[int, int]:
    groups: dict[int, int] = defaultdict(int)
    for position, mask in enumerate(hcas):
        if mask:
            groups[mask] |= 1 << position
    return {members: mask.bit_count() for mask, members in groups.items()}


def _are_disjoint(masks: Iterable[int]) -> bool:
    return all(not a & b for a, b in combinations(set(masks), 2))
