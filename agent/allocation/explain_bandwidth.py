"""What a set reaches, by which model, and over what, in words.

What the driver does not tell is called unknown here, with what it counted as.
"""

from collections.abc import Iterable, Sequence
from itertools import combinations

from agent.allocation.bandwidth import mesh_rings, relay_bandwidth, ring_bandwidth
from agent.allocation.facts import (
    NVLINK_MB_S,
    NVLINK_OF_ARCHITECTURE,
    OLDEST_PCIE,
    Facts,
    distances,
    pcie_generation,
)
from agent.allocation.rules import Model, Rules
from agent.allocation.score import Score
from agent.allocation.wording import way
from agent.model.gpu import Gpu
from agent.model.snapshot import Snapshot
from agent.topology.links import active_links


class BandwidthExplanation:
    """Explain the bandwidth of sets of one machine, by one choice of rules."""

    def __init__(self, snapshot: Snapshot, facts: Facts, rules: Rules) -> None:
        self._snapshot = snapshot
        self._facts = facts
        self._rules = rules
        self._distances = distances(snapshot)
        self._links = {gpu.index: active_links(gpu, snapshot) for gpu in snapshot.gpus}

    def sentence(self, score: Score) -> str:
        """Return what the set of *score* reaches, by which model, and over what."""
        if score.bandwidth_gb_s is None:
            return "one GPU sends nothing to another"
        chosen = [self._facts.indices.index(index) for index in score.order]
        figure, links = f"{score.bandwidth_gb_s:g} GB/s", self.links(chosen)
        if self.model(score.order) is Model.TABLE:
            return f"{figure} as measured, {links}"
        unmeasured = ", this set was not measured" if self._rules.model is Model.TABLE else ""
        hops = self._measured(score.order)
        return f"{figure} by {self.model(score.order)}{hops}{unmeasured}, {links}"

    def model(self, indices: Sequence[int]) -> Model:
        """Return what gave the bandwidth of a set: ``table`` where it was measured."""
        measured = self._rules.measured
        if measured is not None and frozenset(indices) in measured.sets:
            return Model.TABLE
        return Model.RELAY if self._rules.model is Model.RELAY else Model.RING

    def _measured(self, indices: Sequence[int]) -> str:
        """Return how much of what the model went by was measured; empty for nothing."""
        pairs = self._rules.measured.pairs if self._rules.measured else {}
        known = {frozenset(pair) in pairs for pair in combinations(indices, 2)}
        if known == {True}:
            return " over measured links"
        return ", partly measured" if True in known else ""

    def _is_modelled(self, chosen: Iterable[int]) -> bool:
        """Return whether the rate of a link, rather than a measurement, gave the bandwidth."""
        indices = [self._facts.indices[member] for member in chosen]
        is_set = self.model(indices) is Model.TABLE
        return not is_set and self._measured(indices) != " over measured links"

    def links(self, chosen: Sequence[int]) -> str:
        """Return what joins the set; empty for one GPU."""
        facts, pairs = self._facts, tuple(combinations(chosen, 2))
        if not pairs:
            return ""
        counts = {facts.links[a][b] for a, b in pairs}
        if 0 not in counts and facts.is_switched:
            links = f"{self._nvlinks(min(counts), chosen)} each way through NVSwitch"
            return links + self._assumed(chosen)
        if 0 not in counts and len(chosen) == 2:
            return f"{self._nvlinks(min(counts), chosen)} between the two{self._assumed(chosen)}"
        if counts != {0} and not facts.is_switched and (mesh := self._mesh(chosen)):
            return mesh + self._assumed(chosen)
        return self._narrowest(pairs)

    def _mesh(self, chosen: Sequence[int]) -> str:
        """Return how NVLinks alone join the set; empty where they do not."""
        facts, kind = self._facts, self._kind(chosen)
        is_relay = self._rules.model is Model.RELAY
        if is_relay and relay_bandwidth(facts, chosen) > ring_bandwidth(facts, chosen):
            return f"data passed on by GPUs of the set over {kind}s"
        rings = mesh_rings(facts, chosen)
        if rings > 1:
            return f"{rings} rings of {kind}s that share no link, each used both ways"
        return f"a ring of {kind}s, used both ways" if rings else ""

    def _nvlinks(self, count: int, chosen: Sequence[int]) -> str:
        return f"{count} {self._kind(chosen)}{'' if count == 1 else 's'}"

    def _kind(self, chosen: Iterable[int]) -> str:
        """Return ``NVLink``, with its generation in front where all have the same."""
        indices = (self._facts.indices[member] for member in chosen)
        versions = {link.version for index in indices for link in self._links[index]}
        only = versions.pop() if len(versions) == 1 else None
        return "NVLink" if only is None else f"generation-{only} NVLink"

    def _assumed(self, chosen: Sequence[int]) -> str:
        """Return what NVLinks of unknown generation counted as; empty where it is known."""
        gpus = [self._snapshot.gpus[member] for member in chosen]
        is_known = all(self._has_known_rate(gpu) for gpu in gpus)
        if is_known or not self._is_modelled(chosen):
            return ""
        slowest = min(NVLINK_MB_S.values()) / 1000
        return f", of unknown generation, counted at {slowest:g} GB/s each"

    def _has_known_rate(self, gpu: Gpu) -> bool:
        generation = NVLINK_OF_ARCHITECTURE.get(gpu.architecture or "")
        links = self._links[gpu.index]
        if not links:
            return generation is not None
        return all(
            (link.version or generation) in NVLINK_MB_S or (link.speed_mbps or 0) > 0
            for link in links
        )

    def _narrowest(self, pairs: Sequence[tuple[int, int]]) -> str:
        links = self._facts.links
        over = [(a, b) for a, b in pairs if not links[a][b]]
        known = [one for a, b in over if (one := self._distances[a][b]) is not None]
        if len(known) < len(over):
            return "over PCIe, a distance within the set is unknown and taken as the farthest"
        mixed = "in part " if len(over) < len(pairs) else ""
        members = sorted({member for pair in over for member in pair})
        return f"{mixed}over PCIe{self._generation(members)}, at worst {way(max(known))}"

    def _generation(self, chosen: Sequence[int]) -> str:
        """Return the PCIe generation that the GPUs have in common, or what it counted as."""
        gpus = [self._snapshot.gpus[member] for member in chosen]
        oldest = min(pcie_generation(gpu, gpu) for gpu in gpus)
        is_known = all(
            gpu.pcie and (gpu.pcie.max_generation or gpu.pcie.generation) for gpu in gpus
        )
        if is_known or oldest < OLDEST_PCIE:
            return f" generation {oldest}"
        counted = f", counted as {oldest}" if self._is_modelled(chosen) else ""
        return f", generation not known{counted}"
