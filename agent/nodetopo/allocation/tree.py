"""The machine as a tree of nested groups of GPUs, where its groups nest.

The terms of a set depend on groups: GPUs that reach each other at some bandwidth, NUMA nodes,
sockets, GPUs that share HCAs, PCIe switches. On NVSwitch and PCIe machines any two of them are
nested or disjoint, and every term of a set adds up over them, which is what
:mod:`nodetopo.allocation.engines` needs. NVLink meshes are not such machines.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import chain, combinations, groupby

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.allocation.facts import Facts
from nodetopo.allocation.masks import positions
from nodetopo.allocation.remainder import JOB_WEIGHTS
from nodetopo.allocation.score import set_value


class Node(Struct, frozen=True, kw_only=True, eq=False):
    """A group of two GPUs or more; masks are of positions."""

    members: int  # all GPUs of the group
    gpus: tuple[int, ...]  # those in none of the children, ascending
    children: tuple["Node", ...]  # none within another
    hop: int  # bandwidth between GPUs of different children, 0.1 GB/s
    # How much more a job is worth within the group than within the next larger group, 0.01 GB/s;
    # see `allocation.score.set_value`.
    gain: int
    is_cluster: bool  # all GPUs that reach each other at `hop` or more
    # is_numa, is_socket, is_model: all GPUs of one NUMA node, socket, or model
    is_numa: bool
    is_socket: bool
    is_model: bool
    is_partition: bool  # a PCIe switch or a Fabric Manager pair, see `Facts.partitions`
    hcas: int | None  # nearest to these GPUs and no others; None for no such group

    def walk(self) -> Iterator["Node"]:
        """Yield the group and all groups within it."""
        yield self
        for child in self.children:
            yield from child.walk()


def tree(facts: Facts) -> Node | None:
    """Return the group of all GPUs, ``None`` where the groups of the machine do not nest."""
    # Where a GPU has NVLinks to two others, sets can have several rings: a mesh.
    is_mesh = not facts.is_switched and any(sum(map(bool, row)) > 1 for row in facts.links)
    if not facts.indices or is_mesh:
        return None
    groups = _Groups(facts)
    return groups.root() if groups.are_nested() else None


def nearest_tree(facts: Facts) -> Node:
    """Return a tree similar to the machine, without the groups that clash with more important ones.

    For irregular machines that are too large to compare every set. Hops count as the widest
    path through relays; models, NUMA nodes and sockets take precedence over HCAs, and HCAs over
    partitions.
    """
    return _Groups(facts, is_relaxed=True).root()


def remainder_value(root: Node, free: int) -> int:
    """Return what *free* GPUs are worth to later jobs, 0.01 GB/s.

    Exact: jobs of one size, taken from the innermost groups first and then from what is left
    further out, are as many in every group as fit into it, and a job is worth more the smaller
    its group is. Equal to :class:`nodetopo.allocation.remainder.Packing`.
    """
    total = 0
    for node in root.walk():
        count = (node.members & free).bit_count()
        if node.gain and count > 1:
            total += node.gain * sum(w * (count // job) for job, w in JOB_WEIGHTS.items())
    return total


def bundled(node: Node, most: int) -> Node:
    """Return the same tree with small children of a large group in bundles of up to *most* GPUs.

    A bundle means nothing by itself; its costs can be kept where the large group has too many.
    """
    if node.members.bit_count() <= most:
        return node
    bundles: list[list[Node]] = [[]]
    for child in (bundled(child, most) for child in node.children):
        if sum(part.members.bit_count() for part in (*bundles[-1], child)) > most:
            bundles.append([])
        bundles[-1].append(child)
    children: list[Node] = []
    for bundle in bundles:
        if len(bundle) < 2:
            children += bundle
            continue
        children.append(
            Node(
                members=sum(child.members for child in bundle),
                gpus=(),
                children=tuple(bundle),
                hop=node.hop,
                gain=0,
                is_cluster=False,
                is_numa=False,
                is_socket=False,
                is_model=False,
                is_partition=False,
                hcas=None,
            )
        )
    return replace(node, children=tuple(children))


class _Groups:
    """All groups of a machine as masks."""

    def __init__(self, facts: Facts, *, is_relaxed: bool = False) -> None:
        """Find the groups; *is_relaxed* drops those that clash with more important ones."""
        self._hcas_by_gpu = facts.hcas
        self._everyone = (1 << len(facts.indices)) - 1
        clusters = _relayed_clusters(facts.hops) if is_relaxed else _clusters(facts.hops)
        self._do_hops_nest = clusters is not None
        self._clusters = clusters or {}
        self._numa = _places(facts.numa)
        self._sockets = _places(facts.sockets)
        self._models = _places(facts.models)
        sharers: dict[int, int] = defaultdict(int)
        for position, hcas in enumerate(facts.hcas):
            if hcas:
                sharers[hcas] |= 1 << position
        self._hcas = {members: hcas.bit_count() for hcas, members in sharers.items()}
        self._partitions = frozenset(facts.partitions)

        places = self._numa, self._sockets
        named = (self._clusters, self._models, *places, self._hcas, self._partitions)
        kept: dict[int, None] = {}
        for mask in (self._everyone, *chain(*named)):
            is_group = mask & (mask - 1) != 0
            if is_group and not (is_relaxed and any(not _nest(mask, other) for other in kept)):
                kept[mask] = None
        self._masks = sorted(kept, key=lambda mask: (mask.bit_count(), mask))

    def are_nested(self) -> bool:
        """Return whether any two groups are nested or disjoint, and hops nest as well."""
        if not self._do_hops_nest:
            return False
        if any(a & b for a, b in combinations(set(self._hcas_by_gpu), 2)):
            return False
        return all(_nest(a, b) for a, b in combinations(self._masks, 2))

    def root(self) -> Node:
        """Return the group of all; a single GPU makes a group of one."""
        inner = [mask for mask in self._masks if mask != self._everyone]
        return self._node(self._everyone, inner, 0)

    def _node(self, members: int, inner: list[int], outer_value: int) -> Node:
        """Build one group; *inner* are the groups within it, smallest first."""
        # The hop between children is the smallest surrounding cluster's.
        around = [mask for mask in self._clusters if mask & members == members]
        hop = self._clusters[min(around, key=int.bit_count)] if around else 0
        nodes = 1 + all(mask & members != members for mask in self._numa)
        sockets = 1 + all(mask & members != members for mask in self._sockets)
        value = set_value(hop, nodes, sockets)

        direct: list[int] = []
        for mask in reversed(inner):
            if not any(mask & larger for larger in direct):
                direct.append(mask)
        return Node(
            members=members,
            gpus=positions(members & ~sum(direct)),
            children=tuple(
                self._node(mask, [m for m in inner if m & mask == m and m != mask], value)
                for mask in sorted(direct)
            ),
            hop=hop,
            gain=value - outer_value,
            is_cluster=members in self._clusters,
            is_numa=members in self._numa,
            is_socket=members in self._sockets,
            is_model=members in self._models,
            is_partition=members in self._partitions,
            hcas=self._hcas.get(members),
        )


def _clusters(hops: Sequence[Sequence[int]]) -> dict[int, int] | None:
    """Return the hop at which each group of GPUs comes together; ``None`` if hops do not nest."""
    clusters: dict[int, int] = {}
    count = range(len(hops))
    for width in sorted({hops[a][b] for a, b in combinations(count, 2)}, reverse=True):
        reach = [sum(1 << b for b in count if b == a or hops[a][b] >= width) for a in count]
        for mask in set(reach):
            if any(reach[gpu] != mask for gpu in positions(mask)):
                return None
            if mask & (mask - 1):
                clusters.setdefault(mask, width)
    return clusters


def _relayed_clusters(hops: Sequence[Sequence[int]]) -> dict[int, int]:
    """Return the widest hop at which groups of GPUs come together, through others if need be."""
    clusters: dict[int, int] = {}
    group = [1 << gpu for gpu in range(len(hops))]
    pairs = sorted(combinations(range(len(hops)), 2), key=lambda pair: -hops[pair[0]][pair[1]])
    for width, level in groupby(pairs, key=lambda pair: hops[pair[0]][pair[1]]):
        for a, b in level:
            both = group[a] | group[b]
            for gpu in positions(both):
                group[gpu] = both
        clusters |= {mask: width for mask in group if mask & (mask - 1) and mask not in clusters}
    return clusters


def _places(places: Iterable[Hashable]) -> frozenset[int]:
    groups: dict[Hashable, int] = defaultdict(int)
    for position, place in enumerate(places):
        groups[place] |= 1 << position
    return frozenset(groups.values())


def _nest(a: int, b: int) -> bool:
    return a & b in (0, a, b)
