"""The terms of all sets of a machine of at most 16 GPUs at once, as slices.

Which sets are the best of a family by a term is answered from the slices of the term; see
:mod:`nodetopo.allocation.families`. Slices are built when a term is first compared. No set is
looked at by itself, however many are equal, except in a mesh, whose rings are counted set by set.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import combinations
from math import gcd

from nodetopo.allocation import score as term
from nodetopo.allocation.bandwidth import alike, has_near, joined_at, near_share, pairs_alike
from nodetopo.allocation.facts import Facts
from nodetopo.allocation.families import (
    Families,
    Family,
    Slices,
    added,
    among,
    at_least,
    constant,
    greatest,
    highest,
    least,
    most,
    multiplied,
    sets_of,
    subtracted,
    total,
    value,
)
from nodetopo.allocation.masks import positions
from nodetopo.allocation.remainder import Packing

MOST_PAIR_CLASSES = 16
"""Ways in which the pairs of free GPUs count whose sums are kept, 0.1 MB each for 16 GPUs. Most
machines have one; others are those where pairs were measured, or a GPU lacks a link of many."""


class Tables:
    """The terms of one machine by one model of bandwidth.

    Safe to share between threads: at worst two threads compute the same values.
    """

    def __init__(
        self,
        facts: Facts,
        bandwidth: Callable[[int], int],
        *,
        measured: Iterable[int] = (),
        classes: Sequence[int],
        is_mesh: bool,
    ) -> None:
        """Take the modelled bandwidth of a set given as a mask, 0.1 GB/s.

        It is asked for the sets that were *measured*, and in a mesh for all. Elsewhere a ring
        is as wide as its narrowest hop. *classes* are for each GPU the mask of those alike, see
        :class:`nodetopo.allocation.remainder.Symmetry`.
        """
        self._facts = facts
        self._bandwidth_of = bandwidth
        self._measured = tuple(measured)
        self._is_mesh = is_mesh
        self.families = families = Families(len(facts.indices))
        self._nodes, self._sockets = _members(facts.numa), _members(facts.sockets)
        self._packing = Packing(families, self._job_values, classes)
        pairs = combinations(range(len(facts.indices)), 2)
        self._has_near_pairs = has_near(alike(facts.hops[a][b] for a, b in pairs))
        self._bandwidths: dict[int, Slices] = {}
        self._counted: dict[int, Mapping[int, int]] = {}
        self._near: dict[int, bool] = {}
        self._pairs: dict[frozenset[tuple[int, int]], Slices] = {}
        self._fixed: dict[str, Slices] = {}
        self._build: Mapping[str, Callable[[], Slices]] = {
            "models": lambda: self._touched(_members(facts.models)),
            "numa_nodes": lambda: self._touched(self._nodes),
            "sockets": lambda: self._touched(self._sockets),
            "hca_far": lambda: self._sums(term.hca_far),
            "rail_loss": self._rail_losses,
            "hca_distance": lambda: self._sums(term.hca_distance),
            "hca_nearness": lambda: self._sums(term.hca_nearness),
            "rails_beside": lambda: self._sums(term.rails_beside),
            "reach_gb_s": lambda: self._sums(term.reach),
        }

    def sets(self, free: int, required: int, size: int) -> Family:
        """Return the sets of *size* within *free* that contain *required*."""
        families = self.families
        family = families.sizes[size]
        for gpu in range(families.count):
            if not free >> gpu & 1:
                family &= families.lacks[gpu]
            elif required >> gpu & 1:
                family &= families.has[gpu]
        return family

    def best(self, name: str, family: Family, free: int, size: int) -> Family:
        """Return the best of *family*, sets of *size*, by the term *name*."""
        if name == "bandwidth_gb_s":
            return self._near_the_widest(family, size)
        if name == "pair_bandwidth_gb_s":
            return least(family, self._pair_losses(free))
        if name == "shortfall_gb_s":
            return most(family, self._bandwidth(size))
        if name == "remainder_value":
            return most(family, self._in_use(self._packing.taken, free))
        if name == "crowding":
            return least(family, self._in_use(self._squares, free))
        if name == "broken_partitions":
            whole = term.whole_partitions(self._facts, free)
            splitting = ([self._splitting[partition]] for partition in whole)
            return least(family, total(splitting))
        if name == "order":
            return self._first(family)
        if name not in self._fixed:
            self._fixed[name] = self._build[name]()
        return least(family, self._fixed[name])

    def value_left(self, left: int) -> int:
        """Return what *left* is worth to later jobs, 0.01 GB/s."""
        return self._packing.remainder_value(left)

    def _in_use(self, slices: Slices, free: int) -> Slices:
        """Return for each set of *free* the integer of its union with all GPUs in use.

        The mask of the union is the sum of the masks, so the slices only have to be shifted.
        """
        taken = self.families.everyone & ~free
        return [one >> taken for one in slices]

    def _first(self, family: Family) -> Family:
        """Return the set whose list of GPUs is the lowest."""
        for has in self.families.has:
            family = family & has or family
        return family

    # --- bandwidth -------------------------------------------------------------------------

    def counted(self, size: int) -> Mapping[int, int]:
        """Return as what each bandwidth counts among those of all sets of *size*."""
        counted = self._counted.get(size)
        if counted is None:
            by_set, by_width = self._known(size)
            counted = alike([*by_set.values(), *(width for width, _ in by_width)])
            self._counted[size] = counted
        return counted

    def _is_near(self, size: int) -> bool:
        """Return whether different bandwidths of sets of *size* can count as equal."""
        near = self._near.get(size)
        if near is None:
            near = self._near[size] = has_near(self.counted(size))
        return near

    def widest(self, family: Family, size: int) -> int:
        """Return the greatest bandwidth of *family*, which are sets of *size*; 0.1 GB/s."""
        slices = self._bandwidth(size)
        return value(slices, highest(most(family, slices)))

    def _near_the_widest(self, family: Family, size: int) -> Family:
        """Return the sets of *family* with nearly the bandwidth of the widest."""
        slices = self._bandwidth(size)
        widest = most(family, slices)
        if not self._is_near(size):
            return widest
        return at_least(family, slices, near_share(value(slices, highest(widest))))

    def _bandwidth(self, size: int) -> Slices:
        """Return the bandwidth of the sets of *size*, 0.1 GB/s, and 0 for others."""
        slices = self._bandwidths.get(size)
        if slices is None:
            slices = self._bandwidths[size] = self._new_bandwidth(size, {})
        return slices

    def _new_bandwidth(self, size: int, counted: Mapping[int, int]) -> Slices:
        """Return the same as the bandwidths are *counted*."""
        by_set, by_width = self._known(size)
        slices = self.families.valued({m: counted.get(w, w) for m, w in by_set.items()})
        for width, family in by_width:
            slices = greatest(slices, constant(family, counted.get(width, width)))
        return slices

    def _known(self, size: int) -> tuple[Mapping[int, int], list[tuple[int, Family]]]:
        """Return the bandwidths of sets of *size*: of some by set, and of others the sets of each.

        Set by set are those in a mesh and those that were measured.
        """
        families = self.families
        if size < 2:
            return {}, []
        if self._is_mesh:
            return {mask: self._bandwidth_of(mask) for mask in sets_of(families.sizes[size])}, []
        measured = {m: self._bandwidth_of(m) for m in self._measured if m.bit_count() == size}
        modelled = families.sizes[size]
        for family in families.valued(dict.fromkeys(measured, 1)):
            modelled ^= family
        widths = ((width, family & modelled) for width, family in self._widths)
        return measured, [(width, family) for width, family in widths if family]

    @cached_property
    def _widths(self) -> tuple[tuple[int, Family], ...]:
        """The sets of each bandwidth where no GPU has NVLinks to several, as rings give it.

        The worst pair decides where no two are linked, and otherwise the narrowest hop of the
        widest ring, which is no less.
        """
        families, facts = self.families, self._facts
        pairs: dict[int, list[Family]] = defaultdict(list)
        linked = 0
        for a, b in combinations(range(families.count), 2):
            family = families.has[a] & families.has[b]
            pairs[facts.hops[a][b]].append(family)
            linked |= family if facts.links[a][b] else 0
        no_worse = families.every ^ families.sizes[0] ^ families.sizes[1]
        without_worse = []
        for width in sorted(pairs):
            without_worse.append((width, no_worse))
            no_worse &= families.every ^ _union(pairs[width])
        result, wider = [], 0
        for width, family in reversed(without_worse):
            reached = family | (self._rings(width) & linked if linked else 0)
            result.append((width, reached & (families.every ^ wider)))
            wider |= reached
        return tuple(result)

    def _rings(self, width: int) -> Family:
        """Return sets of which not all pairs have *width*, but the hops of some ring have it.

        A ring needs two ways between any two of its GPUs, so a hop that is the only way between
        two parts is in none. Where a part is joined throughout, so are its sets; and where it is
        but for one GPU, a ring through that one needs two GPUs that it reaches.
        """
        families = self.families
        joined = _without_bridges(joined_at(self._facts.hops, width))
        searched, found = [0] * len(joined), 0
        for part in _parts(joined):
            apart = [gpu for gpu in positions(part) if joined[gpu] | 1 << gpu != part]
            odd = [gpu for gpu in apart if not _lacks_a_hop(joined, part & ~(1 << gpu))]
            if odd:
                two = _union(self._above(families.numbers(joined[odd[0]]), 1))
                found |= families.within(part) & families.has[odd[0]] & two
            elif apart:
                for gpu in positions(part):
                    searched[gpu] = joined[gpu]
        return found | families.rings(searched) if any(searched) else found

    def _pair_losses(self, free: int) -> Slices:
        """Return by how much the pairs of a set are below the widest; in units of all losses.

        They count as they do among the pairs of *free* GPUs.
        """
        if not self._has_near_pairs:
            if "pair_bandwidth_gb_s" not in self._fixed:
                counted = pairs_alike(self._facts.hops, self.families.everyone)
                self._fixed["pair_bandwidth_gb_s"] = self._new_pair_losses(counted)
            return self._fixed["pair_bandwidth_gb_s"]
        counted = pairs_alike(self._facts.hops, free)
        key = frozenset(counted.items())
        slices = self._pairs.get(key)
        if slices is None:
            slices = self._new_pair_losses(counted)
            if len(self._pairs) == MOST_PAIR_CLASSES:
                self._pairs.clear()
            self._pairs[key] = slices
        return slices

    def _new_pair_losses(self, counted: Mapping[int, int]) -> Slices:
        """Return the same for pairs as they are *counted*; others lose nothing."""
        hops, widest = self._facts.hops, max(counted.values(), default=0)
        unit = gcd(*(widest - hop for hop in counted.values())) or 1
        rows = [
            [(widest - counted.get(hops[a][b], widest)) // unit for b in range(a)]
            for a in range(len(hops))
        ]
        return self.families.pair_sums(rows)

    # --- places and HCAs -------------------------------------------------------------------

    def _touched(self, groups: Sequence[int]) -> Slices:
        return total([self.families.touching(group)] for group in groups)

    def _sums(self, of: Callable[[Facts, Sequence[int]], int]) -> Slices:
        """Return a term that adds up over the GPUs of a set."""
        return self.families.sums([of(self._facts, (gpu,)) for gpu in range(self.families.count)])

    def _job_values(self, size: int) -> Slices:
        """Return what the sets of *size* are worth to a job, 0.01 GB/s."""
        families, bandwidth = self.families, self._bandwidth(size)
        if self._is_near(size):
            bandwidth = self._new_bandwidth(size, self.counted(size))
        in_node, in_socket = (
            _union(families.within(group) for group in groups)
            for groups in (self._nodes, self._sockets)
        )
        both, neither = in_node & in_socket, families.every ^ (in_node | in_socket)
        kinds = ((both, 1, 1), (in_node ^ both, 1, 2), (in_socket ^ both, 2, 1), (neither, 2, 2))
        values: Slices = []
        for family, nodes, sockets in kinds:
            if family:
                factor = term.set_value(1, nodes, sockets)
                values = greatest(values, multiplied(among(family, bandwidth), factor))
        return values

    def _rail_losses(self) -> Slices:
        """Return how many GPUs of each set have no nearest HCA for themselves.

        As many as some of the GPUs exceed the HCAs that are nearest to any of these, where that is
        most (König and Ore). HCAs that are nearest to the same GPUs count together.
        """
        families, hcas = self.families, self._facts.hcas
        if not any(hcas):
            return []
        near = (
            sum(1 << gpu for gpu, own in enumerate(hcas) if own >> hca & 1)
            for hca in range(max(hcas).bit_length())
        )
        # More HCAs than the GPUs that they are nearest to are as good as one for each.
        counts = {gpus: min(n, gpus.bit_count()) for gpus, n in Counter(near).items() if gpus}
        unused = (
            constant(families.every ^ families.touching(gpus), n) for gpus, n in counts.items()
        )
        all_hcas = constant(families.every, sum(counts.values()))
        excess = total([families.numbers(families.everyone), *unused])
        return subtracted(families.most_within(excess), all_hcas)

    # --- terms of what is in use -----------------------------------------------------------

    @cached_property
    def _squares(self) -> Slices:
        """The sum over NUMA nodes of the square of the GPUs of a set there."""
        families = self.families
        squares: Slices = []
        for members in self._nodes:
            numbers = families.numbers(members)
            for count in range(members.bit_count()):
                more = _union(self._above(numbers, count))
                squares = added(squares, constant(more, 2 * count + 1))
        return squares

    def _above(self, numbers: Slices, limit: int) -> Slices:
        """Return by how much each integer is above *limit*; 0 where it is not."""
        limits = constant(self.families.every, limit)
        return subtracted(greatest(numbers, limits), limits)

    @cached_property
    def _splitting(self) -> Mapping[int, Family]:
        """The sets that have some GPUs of a partition but not all."""
        families = self.families
        return {
            partition: families.touching(partition) ^ families.around(partition)
            for partition in self._facts.partitions
        }


def _members(places: Sequence[Hashable]) -> tuple[int, ...]:
    """Return the GPUs of each place, or model, as masks."""
    groups: dict[Hashable, int] = defaultdict(int)
    for position, place in enumerate(places):
        groups[place] |= 1 << position
    return tuple(groups.values())


def _union(families: Iterable[int]) -> int:
    result = 0
    for family in families:
        result |= family
    return result


def _without_bridges(joined: Sequence[int]) -> list[int]:
    """Return the same without hops that are the only way between two parts."""
    result = list(joined)
    for a, b in combinations(range(len(joined)), 2):
        if joined[a] >> b & 1 and not joined[a] & joined[b]:
            kept = list(result)
            kept[a] &= ~(1 << b)
            kept[b] &= ~(1 << a)
            if not _part(kept, a) >> b & 1:
                result = kept
    return result


def _lacks_a_hop(joined: Sequence[int], part: int) -> bool:
    return any(part & ~(joined[gpu] | 1 << gpu) for gpu in positions(part))


def _parts(joined: Sequence[int]) -> set[int]:
    return {_part(joined, gpu) for gpu in range(len(joined))}


def _part(joined: Sequence[int], start: int) -> int:
    """Return the GPUs that *start* reaches, as a mask."""
    part, frontier = 1 << start, 1 << start
    while frontier:
        near = _union(joined[gpu] for gpu in positions(frontier))
        frontier = near & ~part
        part |= near
    return part
