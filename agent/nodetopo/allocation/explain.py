"""Why a set was chosen, in sentences that can be checked on the matrix.

Each sentence has a separate method, of positions in the snapshot, so that the explanation of MIG
devices and replicas can reuse applicable ones.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from types import MappingProxyType

from nodetopo.allocation.bandwidth import mesh_rings, relay_bandwidth, ring_bandwidth
from nodetopo.allocation.facts import (
    NVLINK_MB_S,
    NVLINK_OF_ARCHITECTURE,
    OLDEST_PCIE,
    UNKNOWN,
    Facts,
    distances,
    pcie_generation,
    usable_hcas,
)
from nodetopo.allocation.masks import positions
from nodetopo.allocation.rules import DEFAULT, Model, Rules
from nodetopo.allocation.score import Score
from nodetopo.model.nvlink import Closeness
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.affinity import nearest_hcas
from nodetopo.topology.domains import has_switch
from nodetopo.topology.lanes import missing_lanes
from nodetopo.topology.links import active_links
from nodetopo.topology.matrix import word

WAY: Mapping[Closeness, str] = MappingProxyType(
    {
        Closeness.INTERNAL: "inside one board",
        Closeness.PIX: "through one PCIe switch",
        Closeness.PXB: "through several PCIe switches",
        Closeness.PHB: "through a CPU's host bridge",
        Closeness.NODE: "between host bridges of one NUMA node",
        Closeness.SYS: "between NUMA nodes",
    },
)
"""The levels of ``nvidia-smi topo -m`` in words (its legend)."""

TERM: Mapping[str, str] = MappingProxyType(
    {
        "bandwidth_gb_s": "bandwidth",
        "pair_bandwidth_gb_s": "bandwidth added up over its pairs",
        "models": "GPU models",
        "numa_nodes": "NUMA nodes",
        "sockets": "sockets",
        "remainder_value": "worth of what is left to later jobs",
        "hca_far": "GPUs without an HCA on their socket",
        "rail_loss": "GPUs that share an HCA",
        "hca_distance": "distance to the HCAs",
        "hca_nearness": "nearness to an HCA",
        "rails_beside": "HCAs beside it",
        "degraded": "degraded GPUs",
        "shortfall_gb_s": "bandwidth within 6 %",
        "reach_gb_s": "bandwidth to other GPUs taken from later jobs",
        "broken_partitions": "GPU pairs broken up",
        "crowding": "crowding of NUMA nodes",
        "gpus": "GPUs touched",
        "load": "devices in use that it joins",
        "doubled": "pairs of its own on one GPU",
        "idle_gpus": "idle GPUs put to use",
        "left": "devices left over on the GPUs touched",
    },
)
"""Names of the fields of :class:`Score` and of ``SharedScore`` in sentences."""

MORE_IS_BETTER = frozenset({"bandwidth_gb_s", "pair_bandwidth_gb_s", "remainder_value"})
"""The fields of :class:`Score` of which more is better; of the others less is."""

LEFT_TO_OTHERS = frozenset({"reach_gb_s", "hca_nearness", "rails_beside"})
"""Those of which less is better because later jobs get what this one does not take."""


class Explanation:
    """Explain the answers for one machine by one choice of rules."""

    def __init__(
        self,
        snapshot: Snapshot,
        facts: Facts,
        rules: Rules = DEFAULT,
        value_of_all: Callable[[], int] | None = None,
    ) -> None:
        """Explain by *facts*; *value_of_all* is what all GPUs are worth to later jobs, 0.01 GB/s.

        Without it sentences do not say of how much the worth of what is left is.
        """
        self._value_of_all = value_of_all
        self._snapshot = snapshot
        self._facts = facts
        self._rules = rules
        self._distances = distances(snapshot)
        self._nvlinks = {gpu.index: active_links(gpu, snapshot) for gpu in snapshot.gpus}
        self._hcas = usable_hcas(snapshot)
        self._nearest = nearest_hcas(snapshot, self._hcas)
        self._faults = _faults(snapshot)

    def reasons(
        self, scores: Sequence[Score], left: int | None, degraded: int = 0
    ) -> tuple[str, ...]:
        """Return the sentences for the first of *scores*; the others are alternatives.

        *left* are the GPUs that remain available, as a mask of positions; ``None`` where it
        is not known what was available, and so neither the remainder nor the alternatives.
        *degraded* is a mask, too.
        """
        chosen = self.members(scores[0])
        bad = [member for member in chosen if degraded >> member & 1]
        lines = [
            self.bandwidth(scores[0]),
            self.degraded(bad),
            *self.faults(member for member in chosen if member not in bad),
            self.isolated(chosen),
            self.places(chosen),
            self.hcas(chosen, scores[0].rail_loss),
        ]
        if left is not None:
            lines += [
                self.against(scores, has_last=bool(left & degraded)),
                self.last(positions(left & degraded)),
                self.leaves(left, scores[0].remainder_value),
            ]
        return tuple(line for line in lines if line)

    def members(self, score: Score) -> tuple[int, ...]:
        """Return the positions of the set of *score*."""
        return tuple(self._facts.indices.index(index) for index in score.order)

    def names(self, chosen: Iterable[int]) -> str:
        """Return the names of the GPUs at *chosen*."""
        return listed(f"GPU{self._facts.indices[member]}" for member in chosen)

    def bandwidth(self, score: Score) -> str:
        """Return the bandwidth of the set of *score*, by which model, and over what."""
        if score.bandwidth_gb_s is None:
            return "one GPU sends nothing to another"
        bandwidth, links = f"{score.bandwidth_gb_s:g} GB/s", self.links(self.members(score))
        model = self.model(score.order)
        if model is Model.TABLE:
            return f"{bandwidth} as measured, {links}"
        unmeasured = ", this set was not measured" if self._rules.model is Model.TABLE else ""
        return f"{bandwidth} by {model}{self._measured(score.order)}{unmeasured}, {links}"

    def model(self, indices: Sequence[int]) -> Model:
        """Return the source of the bandwidth of a set: ``table`` where it was measured."""
        measured = self._rules.measured
        if measured is not None and frozenset(indices) in measured.sets:
            return Model.TABLE
        return Model.RELAY if self._rules.model is Model.RELAY else Model.RING

    def links(self, chosen: Sequence[int]) -> str:
        """Return what joins the set; empty for one GPU."""
        facts, pairs = self._facts, tuple(combinations(chosen, 2))
        if not pairs:
            return ""
        counts = {facts.links[a][b] for a, b in pairs}
        kind = self._nvlink_kind(chosen)
        if 0 not in counts and facts.is_switched:
            links = f"{counted(min(counts), kind)} each way through NVSwitch"
            return links + self._assumed_rate(chosen)
        if 0 not in counts and len(chosen) == 2:
            return f"{counted(min(counts), kind)} between the two{self._assumed_rate(chosen)}"
        if counts != {0} and not facts.is_switched:
            is_relay = self._rules.model is Model.RELAY
            if is_relay and relay_bandwidth(facts, chosen) > ring_bandwidth(facts, chosen):
                mesh = f"data passed on by GPUs of the set over {kind}s"
            elif (rings := mesh_rings(facts, chosen)) > 1:
                mesh = f"{rings} rings of {kind}s that share no link, each used both ways"
            else:
                mesh = f"a ring of {kind}s, used both ways" if rings else ""
            if mesh:
                return mesh + self._assumed_rate(chosen)
        return self._pcie(pairs)

    def degraded(self, chosen: Sequence[int]) -> str:
        """Return which of the set are degraded; empty for none."""
        if not chosen:
            return ""
        verb = "is" if len(chosen) == 1 else "are"
        return f"{self.names(chosen)} {verb} degraded{self._known_faults(chosen)}"

    def last(self, left: Sequence[int]) -> str:
        """Return which of the GPUs *left* come last because they are degraded; empty for none."""
        if not left:
            return ""
        verb = "comes last: it is" if len(left) == 1 else "come last: they are"
        return f"{self.names(left)} {verb} degraded{self._known_faults(left)}"

    def faults(self, chosen: Iterable[int]) -> Iterator[str]:
        """Yield for each of *chosen* what the snapshot shows to be wrong with its links."""
        for member in chosen:
            if known := self._faults.get(self._facts.indices[member]):
                yield f"{self.names([member])} has {listed(known)}"

    def _known_faults(self, chosen: Sequence[int]) -> str:
        """Return the same in brackets; empty where nothing is known to be wrong."""
        if len(chosen) == 1:
            faults = listed(self._faults.get(self._facts.indices[chosen[0]]) or ("",))
        else:
            faults = "; ".join(self.faults(chosen))
        return f" ({faults})" if faults else ""

    def isolated(self, chosen: Iterable[int]) -> str:
        """Return which GPUs no other GPU can reach; empty if there is none.

        In MIG mode there is no peer access (NVIDIA MIG user guide, limitations).
        """
        gpus = self._snapshot.gpus
        apart = [member for member in chosen if (mig := gpus[member].mig) and mig.is_enabled]
        if not apart:
            return ""
        verb = "is" if len(apart) == 1 else "are"
        return f"{self.names(apart)} {verb} in MIG mode: no NVLink, no peer access"

    def places(self, chosen: Sequence[int]) -> str:
        """Return the NUMA nodes of the set and, if known, how many sockets these are."""
        unknown = [member for member in chosen if self._facts.numa[member][0] == UNKNOWN]
        if unknown:
            return f"the NUMA node of {self.names(unknown)} is not known"
        nodes = self.numa_nodes(chosen)
        assert nodes is not None
        if len(nodes) == 1:
            return f"{'all ' if len(chosen) > 1 else ''}on NUMA node {nodes[0]}"
        sockets = {self._facts.sockets[member] for member in chosen}
        is_known = all(kind == "socket" for kind, _ in sockets)
        of = f", {counted(len(sockets), 'socket')}" if is_known else ""
        return f"on NUMA nodes {listed(map(str, nodes))}{of}"

    def numa_nodes(self, chosen: Iterable[int]) -> tuple[int, ...] | None:
        """Return the NUMA nodes of the set, ascending; ``None`` where any is unknown."""
        nodes = {self._facts.numa[member] for member in chosen}
        if any(kind == UNKNOWN for kind, _ in nodes):
            return None
        return tuple(sorted(number for _, number in nodes))

    def hcas(self, chosen: Sequence[int], shared: int) -> str:
        """Return the nearest HCAs; empty without HCAs.

        *shared* is ``rail_loss``: the GPUs that must share an HCA, or have none that is known.
        """
        if not self._hcas:
            return "every HCA is down" if self._snapshot.hcas else ""
        nearest = {
            member: self._nearest[index]
            for member in chosen
            if (index := self._facts.indices[member]) in self._nearest
        }
        if not nearest:
            return "the nearest HCAs are not known"
        without = [member for member in chosen if member not in nearest]
        sharing = shared - len(without)
        names = self.hca_names(chosen)
        levels = {near.closeness for near in nearest.values()}
        at_worst = "at worst " if len(levels) > 1 else ""
        every = f"{', '.join(names)}, {at_worst}{way(max(levels))}"
        if sharing:
            verb = "shares its" if sharing == 1 else "share their"
            text = f"{counted(sharing, 'GPU')} {verb} HCA with another: {every}"
        elif len(nearest) == 1:
            text = f"nearest HCA{'' if len(names) == 1 else 's'} {every}"
        else:
            each = "one HCA each:" if len(names) == len(nearest) else "an HCA for each among"
            text = f"{each} {every}"
        verb = "has" if len(without) == 1 else "have"
        return text + (f"; {self.names(without)} {verb} no known HCA" if without else "")

    def hca_names(self, chosen: Iterable[int]) -> tuple[str, ...]:
        """Return the names of the HCAs that are nearest to any GPU of the set."""
        indices = (self._facts.indices[member] for member in chosen)
        nearest = [self._nearest[index] for index in indices if index in self._nearest]
        names = {hca.name for near in nearest for hca in near.hcas}
        return tuple(sorted(names, key=_by_number))

    def against(self, scores: Sequence[Score], *, has_last: bool = False) -> str:
        """Return how the first of *scores* compares with the second.

        *has_last* says that degraded GPUs are left, and so sets that were not looked at.
        """
        if len(scores) == 1:
            return f"no other set {'has as few degraded GPUs' if has_last else 'is possible'}"
        terms, chosen = self._rules.terms(len(scores[0].order)), self.members(scores[0])
        verdict = compared(scores[0], scores[1], terms)
        kind = "better" if verdict.startswith("wins") else "next best"
        only = [member for member in self.members(scores[1]) if member not in chosen]
        return "; ".join((f"{kind} {names(scores[1].order)}: {verdict}", *self.faults(only)))

    def leaves(self, left: int, value: float) -> str:
        """Return what remains of the available GPUs, and its weighted value in GB/s."""
        members = positions(left)
        if not members:
            return "leaves no GPU"
        groups = Counter(self._facts.numa[member] for member in members)
        of = f" of the node's {self._value_of_all() / 100:g}" if self._value_of_all else ""
        worth = f", worth {value:g}{of} weighted GB/s to later jobs" if value else ""
        if any(kind == UNKNOWN for kind, _ in groups):
            return f"leaves {counted(len(members), 'GPU')}{worth}"
        parts = [
            f"{counted(count, 'GPU')}{' together' if count > 1 else ''} on NUMA node {node}"
            for (_, node), count in sorted(groups.items())
        ]
        return f"leaves {listed(parts)}{worth}"

    def _measured(self, indices: Sequence[int]) -> str:
        """Return how many of the hops that the model uses were measured; empty for none."""
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

    def _nvlink_kind(self, chosen: Iterable[int]) -> str:
        """Return ``NVLink``, with its generation in front where all have the same."""
        indices = (self._facts.indices[member] for member in chosen)
        versions = {link.version for index in indices for link in self._nvlinks[index]}
        only = versions.pop() if len(versions) == 1 else None
        return "NVLink" if only is None else f"generation-{only} NVLink"

    def _assumed_rate(self, chosen: Sequence[int]) -> str:
        """Return the rate assumed for NVLinks of unknown generation; empty where it is known."""
        is_known = True
        for gpu in (self._snapshot.gpus[member] for member in chosen):
            generation = NVLINK_OF_ARCHITECTURE.get(gpu.architecture or "")
            links = self._nvlinks[gpu.index]
            is_known &= all(
                (link.version or generation) in NVLINK_MB_S or (link.speed_mbps or 0) > 0
                for link in links
            )
            is_known &= bool(links) or generation is not None
        if is_known or not self._is_modelled(chosen):
            return ""
        slowest = min(NVLINK_MB_S.values()) / 1000
        return f", of unknown generation, counted at {slowest:g} GB/s each"

    def _pcie(self, pairs: Sequence[tuple[int, int]]) -> str:
        """Return the PCIe generation and distance of the *pairs* that no NVLink joins."""
        over = [(a, b) for a, b in pairs if not self._facts.links[a][b]]
        known = [distance for a, b in over if (distance := self._distances[a][b]) is not None]
        if len(known) < len(over):
            return "over PCIe, a distance within the set is unknown and taken as the farthest"
        mixed = "in part " if len(over) < len(pairs) else ""
        members = sorted({member for pair in over for member in pair})
        gpus = [self._snapshot.gpus[member] for member in members]
        oldest = min(pcie_generation(gpu, gpu) for gpu in gpus)
        if oldest < OLDEST_PCIE or all(
            gpu.pcie and (gpu.pcie.max_generation or gpu.pcie.generation) for gpu in gpus
        ):
            generation = f" generation {oldest}"
        else:
            assumed = f", counted as {oldest}" if self._is_modelled(members) else ""
            generation = f", generation not known{assumed}"
        return f"{mixed}over PCIe{generation}, at worst {way(max(known))}"


def compared(ours: Score, theirs: Score, terms: Sequence[str]) -> str:
    """Return the first of *terms* in which *theirs* loses against *ours*, or wins."""
    lost = theirs.lost_at(ours, terms)
    if lost is None:
        return "equal in every term"
    if lost == "order":
        is_ours = ours.order < theirs.order
        winner = "the lower GPU numbers win" if is_ours else "its numbers are lower"
        return f"equal in every term, {winner}"
    field = "bandwidth_gb_s" if lost == "shortfall_gb_s" else lost
    a, b = getattr(theirs, field) or 0, getattr(ours, field) or 0
    verb = "wins" if (a > b) == (field in MORE_IS_BETTER) else "loses"
    verdict = f"{verb} on {TERM.get(lost, lost)}, {a:g} against {b:g}"
    best = max(theirs.counts_as_gb_s or 0, ours.counts_as_gb_s or 0)
    if lost == "bandwidth_gb_s" and best > max(a, b):
        verdict += f" of {best:g} at best"
    return f"{verdict}, less is better" if lost in LEFT_TO_OTHERS else verdict


def _faults(snapshot: Snapshot) -> Mapping[int, tuple[str, ...]]:
    """Return by GPU index what is wrong with its links: lanes or NVLinks that it lacks.

    NVLinks lack where some are inactive and another GPU of the product has more; a card without its
    bridge has none, and that is no fault.
    """
    found: dict[int, list[str]] = {
        index: [f"{width} of {full} PCIe lanes"]
        for index, (width, full) in missing_lanes(snapshot).items()
    }
    states: dict[int, list[bool | None]] = {}
    for link in snapshot.nvlinks or ():
        states.setdefault(link.gpu, []).append(link.is_active)
    most: Counter[str | None] = Counter()
    for gpu in snapshot.gpus:
        most[gpu.product] = max(most[gpu.product], states.get(gpu.index, []).count(True))
    is_switched = has_switch(snapshot)
    for gpu in snapshot.gpus:
        own = states.get(gpu.index, [])
        up, best = own.count(True), most[gpu.product]
        if False in own and up < best and (up or is_switched) and not gpu.is_divided:
            found.setdefault(gpu.index, []).append(f"{up} of {best} NVLinks")
    return {index: tuple(faults) for index, faults in found.items()}


def names(indices: Iterable[int]) -> str:
    return " ".join(f"GPU{index}" for index in indices)


def way(distance: Closeness) -> str:
    """Return a distance in words, followed by nvidia-smi's word."""
    return f"{WAY[distance]} ({word(distance)})"


def counted(count: int, what: str) -> str:
    """Return *count* and *what* in singular or plural."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def listed(parts: Iterable[str]) -> str:
    """Return *parts*, at least one, as a list with "and" before the last."""
    *most, last = parts
    return f"{', '.join(most)} and {last}" if most else last


def _by_number(name: str) -> tuple[str, int]:
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or 0)
