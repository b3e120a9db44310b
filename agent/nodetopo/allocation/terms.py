"""The terms of one machine for sets given as masks, as integers of which less is better."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import combinations, takewhile

from msgspec.structs import replace

from nodetopo.allocation import score as term
from nodetopo.allocation.bandwidth import (
    alike,
    bandwidth,
    has_near,
    near_share,
    pairs_alike,
    with_measured_pairs,
)
from nodetopo.allocation.facts import Facts
from nodetopo.allocation.masks import positions
from nodetopo.allocation.remainder import Symmetry
from nodetopo.allocation.rules import DEFAULT, Rules
from nodetopo.allocation.score import Score
from nodetopo.allocation.tables import Tables
from nodetopo.allocation.tree import nearest_tree, remainder_value, tree

LARGEST_ENUMERATED = 16
"""GPUs up to which all sets of an irregular machine are compared: 65,536, all sizes together."""

LARGEST_MESH = 10
"""The same for GPUs with direct NVLinks to two or more others, where the rings of every set are
counted. No larger mesh has been built (DGX-1 has 8)."""

Figure = Callable[[int, int], int]
"""(set, free GPUs including the set) → the term, less is better."""


class Terms:
    """The terms of sets of one machine by one choice of rules; sets are masks of positions.

    Safe to share between threads: at worst two threads compute the same value.
    """

    def __init__(self, facts: Facts, rules: Rules = DEFAULT) -> None:
        # With the bandwidths of the model.
        self.facts = facts = with_measured_pairs(facts, rules.measured)
        self.rules = rules
        everyone = range(len(facts.indices))
        self._classes = alike(facts.hops[a][b] for a, b in combinations(everyone, 2))
        self._has_near = has_near(self._classes)
        self._is_mesh = not facts.is_switched and any(
            sum(map(bool, row)) > 1 for row in facts.links
        )
        most = LARGEST_MESH if self._is_mesh else LARGEST_ENUMERATED
        # Every set can be compared within the time of a request.
        self.is_small = len(facts.links) <= most
        has_sets = bool(rules.measured and rules.measured.sets)
        # The machine as nested groups; None where its groups do not nest, where different
        # bandwidths can count as equal, or where sets were measured, whose bandwidths can be
        # anything.
        self.tree = None if has_sets or self._has_near else tree(facts)
        # The most similar tree, for machines that are neither a tree nor small.
        self.nearest = None if self.tree or self.is_small else nearest_tree(self._coarse())

        self._everyone = (1 << len(facts.indices)) - 1
        self._symmetry = Symmetry(facts, is_known=not has_sets)
        self._model = bandwidth(facts, rules)
        self._modelled: dict[int, int] = {}
        self._set_terms: Mapping[str, Callable[[int], int]] = {
            "bandwidth_gb_s": lambda mask: -self.modelled_bandwidth(mask),
            "shortfall_gb_s": lambda mask: -self.modelled_bandwidth(mask),
            "models": lambda mask: term.models(facts, positions(mask)),
            "numa_nodes": lambda mask: term.numa_nodes(facts, positions(mask)),
            "sockets": lambda mask: term.sockets(facts, positions(mask)),
            "hca_far": lambda mask: term.hca_far(facts, positions(mask)),
            "rail_loss": lambda mask: term.rail_loss(facts, positions(mask)),
            "hca_distance": lambda mask: term.hca_distance(facts, positions(mask)),
            "hca_nearness": lambda mask: term.hca_nearness(facts, positions(mask)),
            "rails_beside": lambda mask: term.rails_beside(facts, positions(mask)),
            "reach_gb_s": lambda mask: term.reach(facts, positions(mask)),
        }
        self._free_terms: Mapping[str, Figure] = {
            "pair_bandwidth_gb_s": lambda mask, free: -self._pair_bandwidth(mask, free),
            "remainder_value": lambda mask, free: -self.value_left(free & ~mask),
            "broken_partitions": self._broken_partitions,
            "crowding": self._crowding,
        }

        self._root = self.tree or self.nearest

    @cached_property
    def tables(self) -> Tables:
        """The terms of all sets at once; only for a small machine."""
        position = {index: 1 << place for place, index in enumerate(self.facts.indices)}
        measured = self.rules.measured.sets if self.rules.measured else ()
        known = (gpus for gpus in measured if gpus <= position.keys())
        return Tables(
            self.facts,
            self.modelled_bandwidth,
            measured=(sum(position[index] for index in gpus) for gpus in known),
            classes=self._symmetry.classes,
            is_mesh=self._is_mesh,
        )

    def order(self, size: int) -> tuple[str, ...]:
        """Return the names of the terms for requests of *size*, the most important first.

        ``degraded`` is left out: :func:`nodetopo.allocation.requests.sound_first` narrows a request
        to the sets that are equal in it.
        """
        return tuple(name for name in self.rules.terms(size) if name != "degraded")

    def own_terms(self, size: int) -> tuple[str, ...]:
        """Return the most important terms of a set by itself, whatever else is free.

        They are those before the first term on the GPUs left. Where a policy begins with such
        terms, these are passed over.
        """
        order, of_left = self.order(size), self._free_terms.keys() - {"pair_bandwidth_gb_s"}
        start = next(at for at, name in enumerate(order) if name not in of_left)
        own = takewhile(lambda name: name not in of_left, order[start:])
        return tuple(name for name in own if name != "order")

    def worth(self, mask: int) -> tuple[int, ...]:
        """Return the terms of *mask* by itself, less is better, with all GPUs free.

        The bandwidth is as it counts among all sets of the size (:meth:`bandwidth`).
        """
        return tuple(
            -self.bandwidth(mask)
            if name == "bandwidth_gb_s"
            else self.figure(name)(mask, self._everyone)
            for name in self.own_terms(mask.bit_count())
        )

    def ranked(self, masks: Iterable[int], free: int) -> list[int]:
        """Return *masks*, sets of one size, best first.

        Each is the best of those that are left: what a request gets that cannot have the others.
        """
        left = sorted(masks, key=positions)
        names = [name for name in self.order(left[0].bit_count()) if name != "order"]
        figures = [self.figure(name) for name in names]
        return in_order({m: [figure(m, free) for figure in figures] for m in left}, names)

    def value_left(self, left: int) -> int:
        """Return what the GPUs *left* are worth to later jobs, 0.01 GB/s."""
        if self._root is None:
            return self.tables.value_left(left)
        return remainder_value(self._root, left)

    def value_of_all(self) -> int:
        """Return what all GPUs of the node together are worth to later jobs, 0.01 GB/s."""
        return self.value_left(self._everyone)

    def figure(self, name: str) -> Figure:
        """Return the term *name*, a field of :class:`Score`."""
        if name in self._free_terms:
            return self._free_terms[name]
        of_set = self._set_terms[name]
        return lambda mask, _free: of_set(mask)

    def top(self, best: int, *, free: int, required: int, size: int) -> int:
        """Return the bandwidth of which a set needs a share to be equal to the *best*, 0.1 GB/s.

        It is the greatest of the sets of the request that equal it in all terms before. On a tree
        only sets as wide are equal.
        """
        if self._root is not None or size < 2:
            return self.modelled_bandwidth(best)
        tables = self.tables
        family = tables.sets(free, required, size)
        for name in takewhile(lambda name: name != "bandwidth_gb_s", self.order(size)):
            family = tables.best(name, family, free, size)
        return tables.widest(family, size)

    def bandwidth(self, mask: int) -> int:
        """Return as what bandwidth a set counts among all of its size, 0.1 GB/s; 0 for one GPU.

        That is what a later job gets (:meth:`value_left`). See
        :func:`nodetopo.allocation.bandwidth.alike`.
        """
        bandwidth = self.modelled_bandwidth(mask)
        if self.tree:
            return bandwidth
        counted = self.tables.counted(mask.bit_count()) if self.is_small else self._classes
        return counted.get(bandwidth, bandwidth)

    def modelled_bandwidth(self, mask: int) -> int:
        """Return the modelled bandwidth of a set, 0.1 GB/s; 0 for one GPU."""
        value = self._modelled.get(mask)
        if value is None:
            like = self._symmetry.canonical(mask)
            value = self._model(positions(mask)) if like == mask else self.modelled_bandwidth(like)
            if self.is_small:  # at most 65,536 sets; on a larger machine memory would only grow
                self._modelled[mask] = value
        return value

    def score(self, mask: int, free: int, degraded: int = 0, top: int = 0) -> Score:
        """Return all terms of *mask* when it is taken from *free*.

        *top* is the bandwidth of the best set of the request, 0.1 GB/s. If the GPUs that are not
        *degraded*, and those of *mask*, leave any GPU, the other terms count a degraded one that is
        not taken as in use: a later job is offered it last.
        """
        facts, members = self.facts, positions(mask)
        if free & ~mask & ~degraded:
            free &= mask | ~degraded
        is_pair = len(members) > 1
        bandwidth = self.modelled_bandwidth(mask)
        counts_as = top if near_share(top) <= bandwidth <= top else bandwidth
        return Score(
            degraded=(mask & degraded).bit_count(),
            bandwidth_gb_s=bandwidth / 10 if is_pair else None,
            counts_as_gb_s=counts_as / 10 if is_pair else None,
            models=term.models(facts, members),
            pair_bandwidth_gb_s=self._pair_bandwidth(mask, free) / 10,
            numa_nodes=term.numa_nodes(facts, members),
            sockets=term.sockets(facts, members),
            remainder_value=self.value_left(free & ~mask) / 100,
            hca_far=term.hca_far(facts, members),
            rail_loss=term.rail_loss(facts, members),
            hca_distance=term.hca_distance(facts, members),
            hca_nearness=term.hca_nearness(facts, members),
            rails_beside=term.rails_beside(facts, members),
            broken_partitions=self._broken_partitions(mask, free),
            crowding=self._crowding(mask, free),
            shortfall_gb_s=(counts_as - bandwidth) / 10 if is_pair else None,
            reach_gb_s=term.reach(facts, members) / 10,
            order=tuple(facts.indices[member] for member in members),
        )

    def _pair_bandwidth(self, mask: int, free: int) -> int:
        """Return the bandwidths of all pairs added up, as they count among those of *free* GPUs."""
        counted = pairs_alike(self.facts.hops, free) if self._has_near else {}
        return term.pair_bandwidth(self.facts, positions(mask), counted)

    def _coarse(self) -> Facts:
        """Return the facts with hops that are alike as one."""
        hops = ([self._classes.get(hop, hop) for hop in row] for row in self.facts.hops)
        return replace(self.facts, hops=tuple(map(tuple, hops)))

    def _broken_partitions(self, mask: int, free: int) -> int:
        return term.broken_partitions(term.whole_partitions(self.facts, free), mask)

    def _crowding(self, mask: int, free: int) -> int:
        return term.crowding(self.facts, positions(self._everyone & ~free | mask))


def in_order(rows: Mapping[int, list[int]], names: Sequence[str]) -> list[int]:
    """Return the sets of *rows* best first: each is the best of those that are left.

    *rows* has the terms of each set by *names*, less is better; of sets that are equal in all the
    first one wins. Sets with nearly the bandwidth of the widest are equal in it
    (:func:`nodetopo.allocation.bandwidth.near_share`).
    """
    place = names.index("bandwidth_gb_s") if "bandwidth_gb_s" in names else None
    if place is None or not has_near(alike(-row[place] for row in rows.values())):
        return sorted(rows, key=rows.__getitem__)
    left, found = list(rows), list[int]()
    while left:
        best = left
        for at in range(len(names)):
            most = min(rows[mask][at] for mask in best)
            if at == place:
                most = -near_share(-most)
            best = [mask for mask in best if rows[mask][at] <= most]
        found.append(best[0])
        left.remove(best[0])
    return found
