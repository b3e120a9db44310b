"""The terms of one machine for sets given as masks, as integers of which less is better."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from itertools import takewhile

from nodetopo.allocation import score as term
from nodetopo.allocation.bandwidth import bandwidth, levels, with_measured_pairs
from nodetopo.allocation.facts import Facts
from nodetopo.allocation.masks import positions
from nodetopo.allocation.remainder import Later, Symmetry
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

    Attributes:
        modelled: the machine with the bandwidths of the model.
        facts: the same with hops as they count (:func:`nodetopo.allocation.bandwidth.levels`).
        is_small: every set of the machine can be compared within the time of a request.
        tree: the machine as nested groups; ``None`` where its groups do not nest, or where
            sets were measured, whose bandwidths can be anything.
        nearest: the most similar tree, for machines that are neither a tree nor small.
    """

    def __init__(self, facts: Facts, rules: Rules = DEFAULT) -> None:
        self.modelled = modelled = with_measured_pairs(facts, rules.measured)
        self.rules = rules
        self._level = level = levels(modelled, rules)
        hops = tuple(tuple(map(level, row)) for row in modelled.hops)
        self.facts = facts = replace(modelled, hops=hops)
        self._is_mesh = not facts.is_switched and any(
            sum(map(bool, row)) > 1 for row in facts.links
        )
        most = LARGEST_MESH if self._is_mesh else LARGEST_ENUMERATED
        self.is_small = len(facts.links) <= most
        has_sets = bool(rules.measured and rules.measured.sets)
        self.tree = None if has_sets else tree(facts)
        self.nearest = None if self.tree or self.is_small else nearest_tree(facts)

        self._everyone = (1 << len(facts.indices)) - 1
        self._symmetry = Symmetry(modelled, is_known=not has_sets)
        self._model = bandwidth(modelled, rules)
        self._modelled: dict[int, int] = {}
        self._set_terms: Mapping[str, Callable[[int], int]] = {
            "bandwidth_gb_s": lambda mask: -self.bandwidth(mask),
            "pair_bandwidth_gb_s": lambda mask: -term.pair_bandwidth(facts, positions(mask)),
            "numa_nodes": lambda mask: term.numa_nodes(facts, positions(mask)),
            "sockets": lambda mask: term.sockets(facts, positions(mask)),
            "hca_far": lambda mask: term.hca_far(facts, positions(mask)),
            "rail_loss": lambda mask: term.rail_loss(facts, positions(mask)),
            "hca_distance": lambda mask: term.hca_distance(facts, positions(mask)),
            "hca_nearness": lambda mask: term.hca_nearness(facts, positions(mask)),
            "reach_gb_s": lambda mask: term.reach(facts, positions(mask)),
        }
        self._free_terms: Mapping[str, Figure] = {
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
            self.bandwidth,
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

        They are those before the first term on the free GPUs. Where a policy begins with such
        terms, these are passed over.
        """
        order = self.order(size)
        start = next(at for at, name in enumerate(order) if name not in self._free_terms)
        own = takewhile(lambda name: name not in self._free_terms, order[start:])
        return tuple(name for name in own if name != "order")

    def value_left(self, left: int) -> int:
        """Return what the GPUs *left* are worth to later jobs, 0.01 GB/s."""
        if self._root is None:
            return self.tables.value_left(left)
        return remainder_value(self._root, left)

    def figure(self, name: str, later: Later = ()) -> Figure:
        """Return the term *name*, a field of :class:`Score`; *later* are GPUs that get free."""
        if name == "remainder_value" and later:
            return lambda mask, free: -self.value_with(free & ~mask, later)
        if name in self._free_terms:
            return self._free_terms[name]
        of_set = self._set_terms[name]
        return lambda mask, _free: of_set(mask)

    def bandwidth(self, mask: int) -> int:
        """Return as what bandwidth a set counts, 0.1 GB/s; 0 for one GPU."""
        return self._level(self.modelled_bandwidth(mask))

    def modelled_bandwidth(self, mask: int) -> int:
        """Return the modelled bandwidth of a set, 0.1 GB/s; 0 for one GPU."""
        value = self._modelled.get(mask)
        if value is None:
            like = self._symmetry.canonical(mask)
            value = self._model(positions(mask)) if like == mask else self.modelled_bandwidth(like)
            if self.is_small:  # at most 65,536 sets; on a larger machine memory would only grow
                self._modelled[mask] = value
        return value

    def value_with(self, left: int, later: Later) -> int:
        """Return what the GPUs *left* are worth, now and after each end of a job, added up."""
        return self.value_left(left) + sum(self.value_left(left | more) for more in later)

    def score(self, mask: int, free: int, degraded: int = 0, later: Later = ()) -> Score:
        """Return all terms of *mask* when it is taken from *free*; *later* are GPUs that get free.

        A *degraded* GPU that is not taken counts as in use in the other terms, unless no other is
        left: a later job is offered it last.
        """
        facts, members = self.facts, positions(mask)
        if free & ~mask & ~degraded:
            free &= mask | ~degraded
        is_pair = len(members) > 1
        return Score(
            degraded=(mask & degraded).bit_count(),
            bandwidth_gb_s=self.modelled_bandwidth(mask) / 10 if is_pair else None,
            counts_as_gb_s=self.bandwidth(mask) / 10 if is_pair else None,
            pair_bandwidth_gb_s=term.pair_bandwidth(facts, members) / 10,
            numa_nodes=term.numa_nodes(facts, members),
            sockets=term.sockets(facts, members),
            remainder_value=self.value_with(free & ~mask, later) / (100 * (1 + len(later))),
            hca_far=term.hca_far(facts, members),
            rail_loss=term.rail_loss(facts, members),
            hca_distance=term.hca_distance(facts, members),
            hca_nearness=term.hca_nearness(facts, members),
            broken_partitions=self._broken_partitions(mask, free),
            crowding=self._crowding(mask, free),
            reach_gb_s=term.reach(facts, members) / 10,
            order=tuple(facts.indices[member] for member in members),
        )

    def _broken_partitions(self, mask: int, free: int) -> int:
        return term.broken_partitions(term.whole_partitions(self.facts, free), mask)

    def _crowding(self, mask: int, free: int) -> int:
        return term.crowding(self.facts, positions(self._everyone & ~free | mask))
