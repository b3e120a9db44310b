"""Why a set was chosen, in lines that a person can check against the matrix."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from types import MappingProxyType

from agent.allocation.facts import UNKNOWN, Facts, distances, pcie_generation
from agent.allocation.score import Score, mesh_rings
from agent.allocation.terms import positions
from agent.model.snapshot import Snapshot
from agent.topology.affinity import nearest_hcas
from agent.topology.links import active_links
from agent.topology.matrix import word

TERM: Mapping[str, str] = MappingProxyType(
    {
        "bandwidth_gb_s": "ring bandwidth",
        "pair_bandwidth_gb_s": "pair bandwidth",
        "numa_nodes": "NUMA nodes",
        "sockets": "sockets",
        "remainder_value": "value of the GPUs left",
        "hca_far": "GPUs without an HCA on their socket",
        "rail_loss": "GPUs that share an HCA",
        "hca_distance": "distance to the HCAs",
        "broken_partitions": "whole GPU pairs broken up",
    },
)
"""How people call the fields of :class:`Score`."""


class Explanation:
    """Explain the answers for one machine."""

    def __init__(self, snapshot: Snapshot, facts: Facts) -> None:
        self._snapshot = snapshot
        self._facts = facts
        self._distances = distances(snapshot)
        self._nearest = nearest_hcas(snapshot)
        self._links = {gpu.index: active_links(gpu, snapshot) for gpu in snapshot.gpus}

    def reasons(self, scores: Sequence[Score], left: int) -> tuple[str, ...]:
        """Return the lines for the first of *scores*; the others are the next best sets.

        *left* are the GPUs that remain available, as a mask of positions.
        """
        best = scores[0]
        chosen = tuple(self._facts.indices.index(index) for index in best.order)
        lines = [
            self._bandwidth(best, chosen),
            self._numa_nodes(chosen),
            self._remainder(left),
            self._hcas(best),
            _against(scores),
        ]
        return tuple(line for line in lines if line)

    def _bandwidth(self, best: Score, chosen: tuple[int, ...]) -> str:
        if best.bandwidth_gb_s is None:
            return f"{_names(best)}: one GPU has no ring, what it leaves decides"
        return f"ring bandwidth {best.bandwidth_gb_s:.1f} GB/s: {self._ring(chosen)}"

    def _ring(self, chosen: tuple[int, ...]) -> str:
        facts = self._facts
        counts = {facts.links[a][b] for a, b in combinations(chosen, 2)}
        if 0 not in counts and (facts.is_switched or len(chosen) == 2):
            between = "to every GPU of the set" if len(chosen) > 2 else "between the two"
            return f"{min(counts)} {self._link(chosen)} {between}"
        if counts != {0} and not facts.is_switched and (rings := mesh_rings(facts, chosen)):
            kind = "ring" if rings == 1 else "rings that share no link"
            return f"{rings} {kind} over {self._link(chosen)}, used both ways"
        return self._narrowest(chosen)

    def _link(self, chosen: tuple[int, ...]) -> str:
        indices = (self._facts.indices[member] for member in chosen)
        versions = {link.version for index in indices for link in self._links[index]}
        only = versions.pop() if len(versions) == 1 else None
        return "NVLink" if only is None else f"NVLink{only}"

    def _narrowest(self, chosen: tuple[int, ...]) -> str:
        gpus, links = self._snapshot.gpus, self._facts.links
        pairs = [(a, b) for a, b in combinations(chosen, 2) if not links[a][b]]
        known = [one for a, b in pairs if (one := self._distances[a][b]) is not None]
        if len(known) < len(pairs):
            return "over PCIe, a distance within the set is unknown and taken as SYS"
        oldest = min(pcie_generation(gpus[a], gpus[b]) for a, b in pairs)
        return f"the ring crosses PCIe, generation {oldest}, {word(max(known))} at worst"

    def _numa_nodes(self, chosen: tuple[int, ...]) -> str:
        found = {self._facts.numa[member] for member in chosen}
        if any(kind == UNKNOWN for kind, _ in found):
            return "NUMA node not known for every GPU of the set"
        ids = sorted(number for _, number in found)
        plural = "" if len(ids) == 1 else "s"
        return f"{len(ids)} NUMA node{plural} (node{plural} {_listed(map(str, ids))})"

    def _remainder(self, left: int) -> str:
        groups = Counter(self._facts.numa[member] for member in positions(left))
        if not groups:
            return "leaves no GPU"
        if any(kind == UNKNOWN for kind, _ in groups):
            return f"leaves {_gpus(left.bit_count())}"
        parts = [
            f"{_gpus(count)}{' together' if count > 1 else ''} on NUMA node {node}"
            for (_, node), count in sorted(groups.items())
        ]
        return f"leaves {_listed(parts)}"

    def _hcas(self, best: Score) -> str:
        if not self._snapshot.hcas:
            return ""
        known = [self._nearest[index] for index in best.order if index in self._nearest]
        if not known:
            return "nearest HCAs not known"
        names = sorted({hca.name for near in known for hca in near.hcas}, key=_natural)
        worst = max(near.closeness for near in known)
        shared = f"; {best.rail_loss} of the GPUs must share one" if best.rail_loss else ""
        return f"nearest HCAs: {', '.join(names)} ({word(worst)}{shared})"


def _against(scores: Sequence[Score]) -> str:
    if len(scores) == 1:
        return "no other set is possible"
    best, other = scores[0], scores[1]
    lost = other.lost_at(best)
    if lost == "order":
        return f"next best {_names(other)}: equal in every term, the lower GPU numbers win"
    theirs, ours = _figure(getattr(other, lost)), _figure(getattr(best, lost))
    return f"next best {_names(other)}: loses on {TERM[lost]}, {theirs} against {ours}"


def _figure(value: float) -> str:
    return f"{value:.1f}" if isinstance(value, float) else str(value)


def _names(one: Score) -> str:
    return " ".join(f"GPU{index}" for index in one.order)


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"


def _listed(parts: Iterable[str]) -> str:
    *most, last = parts
    return f"{', '.join(most)} and {last}" if most else last


def _natural(name: str) -> tuple[str, int]:
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or 0)
