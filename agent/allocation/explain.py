"""Why a set was chosen, in sentences that a person can read aloud and check on the matrix.

Every part is a function of its own, of positions in the snapshot, so that whoever places
something else than whole GPUs can use the parts that fit.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from agent.allocation.explain_bandwidth import BandwidthExplanation
from agent.allocation.facts import UNKNOWN, Facts
from agent.allocation.masks import positions
from agent.allocation.rules import DEFAULT, TERMS, Model, Rules
from agent.allocation.score import Score
from agent.allocation.wording import counted, listed, way
from agent.model.snapshot import Snapshot
from agent.topology.affinity import nearest_hcas

TERM: Mapping[str, str] = MappingProxyType(
    {
        "bandwidth_gb_s": "bandwidth",
        "pair_bandwidth_gb_s": "bandwidth added up over its pairs",
        "numa_nodes": "NUMA nodes",
        "sockets": "sockets",
        "remainder_value": "worth of what is left to later jobs",
        "hca_far": "GPUs without an HCA on their socket",
        "rail_loss": "GPUs that share an HCA",
        "hca_distance": "distance to the HCAs",
        "broken_partitions": "GPU pairs broken up",
        "crowding": "crowding of NUMA nodes",
        "gpus": "GPUs touched",
        "load": "devices in use that it joins",
        "doubled": "pairs of its own on one GPU",
        "idle_gpus": "idle GPUs put to use",
        "left": "devices left over on the GPUs touched",
    },
)
"""How people call the fields of :class:`Score`, and of the record of shared GPUs."""

MORE_IS_BETTER = frozenset({"bandwidth_gb_s", "pair_bandwidth_gb_s", "remainder_value"})
"""The fields of :class:`Score` of which more is better; of the others, less."""


class Explanation:
    """Explain the answers for one machine, by one choice of rules."""

    def __init__(self, snapshot: Snapshot, facts: Facts, rules: Rules = DEFAULT) -> None:
        self._snapshot = snapshot
        self._facts = facts
        self._rules = rules
        self._bandwidth = BandwidthExplanation(snapshot, facts, rules)
        self._nearest = nearest_hcas(snapshot)

    def reasons(self, scores: Sequence[Score], left: int | None) -> tuple[str, ...]:
        """Return the sentences for the first of *scores*; the others are sets beside it.

        *left* are the GPUs that remain available, as a mask of positions; ``None`` where it
        is not known what was available, and so neither what is left nor what else there was.
        """
        chosen = self.members(scores[0])
        lines = [
            self.bandwidth(scores[0]),
            self.isolated(chosen),
            self.places(chosen),
            self.hcas(chosen, scores[0].rail_loss),
        ]
        if left is not None:
            lines += [self.against(scores), self.leaves(left, scores[0].remainder_value)]
        return tuple(line for line in lines if line)

    def members(self, score: Score) -> tuple[int, ...]:
        """Return the positions of the set of *score*."""
        return tuple(self._facts.indices.index(index) for index in score.order)

    def bandwidth(self, score: Score) -> str:
        """Return what the set of *score* reaches, by which model, and over what."""
        return self._bandwidth.sentence(score)

    def model(self, indices: Sequence[int]) -> Model:
        """Return what gave the bandwidth of a set: ``table`` where it was measured."""
        return self._bandwidth.model(indices)

    def links(self, chosen: Sequence[int]) -> str:
        """Return what joins the set; empty for one GPU."""
        return self._bandwidth.links(chosen)

    def isolated(self, chosen: Iterable[int]) -> str:
        """Return which GPUs no other GPU can reach; empty where there is none.

        In MIG mode there is no peer access (NVIDIA MIG user guide, limitations).
        """
        gpus = self._snapshot.gpus
        apart = [member for member in chosen if (mig := gpus[member].mig) and mig.is_enabled]
        if not apart:
            return ""
        verb = "is" if len(apart) == 1 else "are"
        return f"{self.names(apart)} {verb} in MIG mode: no NVLink, no peer access"

    def places(self, chosen: Sequence[int]) -> str:
        """Return on which NUMA nodes the set is, and how many sockets that are, if known."""
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
        """Return the NUMA nodes of the set, ascending; ``None`` where one is not known."""
        found = {self._facts.numa[member] for member in chosen}
        if any(kind == UNKNOWN for kind, _ in found):
            return None
        return tuple(sorted(number for _, number in found))

    def hcas(self, chosen: Sequence[int], shared: int) -> str:
        """Return the nearest HCAs; empty without HCAs.

        *shared* is ``rail_loss``: the GPUs that must share one, or have none that is known.
        """
        if not self._snapshot.hcas:
            return ""
        near = [member for member in chosen if self._facts.indices[member] in self._nearest]
        if not near:
            return "the nearest HCAs are not known"
        without = [member for member in chosen if member not in near]
        verb = "has" if len(without) == 1 else "have"
        apart = f"; {self.names(without)} {verb} no known HCA" if without else ""
        return self._known_hcas(near, shared - len(without)) + apart

    def _known_hcas(self, chosen: Sequence[int], shared: int) -> str:
        names = self.hca_names(chosen)
        levels = {self._nearest[self._facts.indices[member]].closeness for member in chosen}
        distance = f"{'at worst ' if len(levels) > 1 else ''}{way(max(levels))}"
        every = ", ".join(names)
        if shared:
            verb = "shares its" if shared == 1 else "share their"
            return f"{counted(shared, 'GPU')} {verb} HCA with another: {every}, {distance}"
        if len(chosen) == 1:
            return f"nearest HCA{'' if len(names) == 1 else 's'} {every}, {distance}"
        each = "one HCA each:" if len(names) == len(chosen) else "an HCA for each among"
        return f"{each} {every}, {distance}"

    def hca_names(self, chosen: Iterable[int]) -> tuple[str, ...]:
        """Return the names of the HCAs that are nearest to any GPU of the set."""
        indices = (self._facts.indices[member] for member in chosen)
        near = [self._nearest[index] for index in indices if index in self._nearest]
        return tuple(sorted({hca.name for one in near for hca in one.hcas}, key=_natural))

    def against(self, scores: Sequence[Score]) -> str:
        """Return how the first of *scores* compares with the second."""
        if len(scores) == 1:
            return "no other set is possible"
        verdict = compared(scores[0], scores[1], TERMS[self._rules.policy])
        kind = "better" if verdict.startswith("wins") else "next best"
        return f"{kind} {names(scores[1].order)}: {verdict}"

    def leaves(self, left: int, value: float) -> str:
        """Return what remains of the available GPUs, and its weighted worth in GB/s."""
        members = positions(left)
        if not members:
            return "leaves no GPU"
        groups = Counter(self._facts.numa[member] for member in members)
        worth = f", worth {value:g} weighted GB/s to later jobs" if value else ""
        if any(kind == UNKNOWN for kind, _ in groups):
            return f"leaves {counted(len(members), 'GPU')}{worth}"
        parts = [
            f"{counted(count, 'GPU')}{' together' if count > 1 else ''} on NUMA node {node}"
            for (_, node), count in sorted(groups.items())
        ]
        return f"leaves {listed(parts)}{worth}"

    def names(self, chosen: Iterable[int]) -> str:
        """Return the names of the GPUs at *chosen*."""
        return listed(f"GPU{self._facts.indices[member]}" for member in chosen)


def compared(ours: Score, theirs: Score, terms: Sequence[str]) -> str:
    """Return at which of *terms* the set of *theirs* loses against that of *ours*, or wins."""
    lost = next((name for name in terms if getattr(theirs, name) != getattr(ours, name)), None)
    if lost is None:
        return "equal in every term"
    if lost == "order":
        winner = (
            "the lower GPU numbers win" if ours.order < theirs.order else "its numbers are lower"
        )
        return f"equal in every term, {winner}"
    a, b = getattr(theirs, lost) or 0, getattr(ours, lost) or 0
    verb = "wins" if (a > b) == (lost in MORE_IS_BETTER) else "loses"
    return f"{verb} on {TERM.get(lost, lost)}, {a:g} against {b:g}"


def names(indices: Iterable[int]) -> str:
    """Return the names of GPUs by index."""
    return " ".join(f"GPU{index}" for index in indices)


def _natural(name: str) -> tuple[str, int]:
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or 0)
