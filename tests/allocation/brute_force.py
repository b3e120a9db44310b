"""The best set by definition: every set, every ring, every packing, written out slowly.

Shares no code with agent.allocation. Bandwidths are in GB/s, rounded to 0.1.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from itertools import combinations, pairwise, permutations
from types import MappingProxyType

from agent.model.gpu import Gpu
from agent.model.nvlink import Closeness
from agent.model.snapshot import Snapshot
from agent.topology.affinity import nearest_hcas, socket_of_node
from agent.topology.domains import has_switch
from agent.topology.links import nvlinks_between
from agent.topology.matrix import pci_closeness

Gpus = frozenset[int]
GEN4: Mapping[int, float] = MappingProxyType({0: 24, 10: 24, 20: 22, 30: 20, 40: 18, 50: 14})
PER_LINK: Mapping[int | None, float] = MappingProxyType(
    {None: 20, 1: 20, 2: 25, 3: 25, 4: 25, 5: 50}
)
FAMILY: Mapping[str | None, int] = MappingProxyType({"volta": 2, "hopper": 4})


def rounded(gb_s: float) -> float:
    """Round half up to 0.1."""
    return int(gb_s * 10 + 0.5) / 10


class BruteForce:
    """The objective of one machine."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.gpus = {gpu.index: gpu for gpu in snapshot.gpus}
        counts, names = nvlinks_between(snapshot), pci_closeness(snapshot)
        self.links: dict[tuple[int, int], int] = {}
        self.pcie: dict[tuple[int, int], Closeness | None] = {}
        for a, b in permutations(self.gpus, 2):
            is_mig = any(gpu.mig and gpu.mig.is_enabled for gpu in (self.gpus[a], self.gpus[b]))
            self.links[a, b] = 0 if is_mig else counts[min(a, b), max(a, b)] or 0
            self.pcie[a, b] = names.get(frozenset((f"GPU{a}", f"GPU{b}")))
        self.value_left = cache(self._value_left)
        self.packed = cache(self._packed)
        self.hop = cache(self._hop)
        self.bandwidth = cache(self._bandwidth)
        self.pair_sum = cache(self._pair_sum)
        self.spans = cache(self._spans)
        self.hca_terms = cache(self._hca_terms)
        self.groups = self._groups()

    # --- bandwidth -------------------------------------------------------------------------

    def rate(self, a: int, b: int) -> float:
        """The bandwidth of one NVLink between two GPUs."""
        return min(self._rate(self.gpus[a]), self._rate(self.gpus[b]))

    def _rate(self, gpu: Gpu) -> float:
        rates = [
            min(
                PER_LINK[link.version or FAMILY.get(gpu.architecture)],
                (link.speed_mbps or 1e9) / 1000,
            )
            for link in self.snapshot.nvlinks or ()
            if link.gpu == gpu.index and link.is_active
        ]
        return min(rates, default=PER_LINK[FAMILY.get(gpu.architecture)])

    def _hop(self, a: int, b: int) -> float:
        """The bandwidth between two GPUs, over NVLink where there is one."""
        if self.links[a, b]:
            return rounded(self.links[a, b] * self.rate(a, b))
        generation = min(self._generation(self.gpus[a]), self._generation(self.gpus[b]))
        distance = self.pcie[a, b]
        return rounded(GEN4[50 if distance is None else distance] * 2.0 ** (generation - 4))

    def _generation(self, gpu: Gpu) -> int:
        return (gpu.pcie.max_generation if gpu.pcie else None) or 3

    def _bandwidth(self, chosen: Gpus) -> float:
        pairs = list(combinations(sorted(chosen), 2))
        if len(chosen) < 2:
            return 0.0
        if not any(self.links[pair] for pair in pairs) or len(chosen) == 2:
            return min(self.hop(*pair) for pair in pairs)
        if not has_switch(self.snapshot):
            rings = self._disjoint_rings(sorted(chosen))
            if rings:
                return rounded(2 * rings * min(self.rate(*p) for p in pairs if self.links[p]))
        return max(min(self.hop(a, b) for a, b in ring) for ring in rings_through(sorted(chosen)))

    def _pair_sum(self, chosen: Gpus) -> float:
        return round(sum(self.hop(a, b) for a, b in combinations(sorted(chosen), 2)), 1)

    def _disjoint_rings(self, chosen: Sequence[int]) -> int:
        candidates = [
            frozenset(frozenset(pair) for pair in ring)
            for ring in rings_through(chosen)
            if all(self.links[pair] for pair in ring)
        ]
        rings = sorted(set(candidates), key=lambda ring: sorted(map(sorted, ring)))

        @cache
        def most(first: int, left: frozenset[tuple[frozenset[int], int]]) -> int:
            if first == len(rings):
                return 0
            spare, best = dict(left), most(first + 1, left)
            if all(spare[edge] for edge in rings[first]):
                used = {edge: n - (edge in rings[first]) for edge, n in spare.items()}
                best = max(best, 1 + most(first, frozenset(used.items())))
            return best

        edges = {frozenset(pair): self.links[pair] for pair in combinations(chosen, 2)}
        return most(0, frozenset(edges.items()))

    # --- place -----------------------------------------------------------------------------

    def node(self, index: int) -> object:
        """The NUMA node, or the GPU itself where it is not known."""
        gpu = self.gpus[index]
        if gpu.numa_node is not None:
            return gpu.numa_node
        with_cpus = [node.id for node in self.snapshot.numa_nodes or () if len(node.cpus)]
        return with_cpus[0] if len(with_cpus) == 1 else ("unknown", index)

    def socket(self, index: int) -> object:
        """The socket, or the NUMA node, or the GPU itself where it is not known."""
        return self._socket_of(self.node(index))

    def _socket_of(self, node: object) -> object:
        packages = self.snapshot.cpu.sockets if self.snapshot.cpu else ()
        if len(packages) == 1:
            return "S", packages[0].id
        known = socket_of_node(self.snapshot)
        return ("S", known[node]) if isinstance(node, int) and node in known else node

    def _spans(self, chosen: Gpus) -> tuple[int, int]:
        """How many NUMA nodes and sockets *chosen* is spread over."""
        return len({self.node(gpu) for gpu in chosen}), len({self.socket(gpu) for gpu in chosen})

    # --- what is left ----------------------------------------------------------------------

    def _value_left(self, left: Gpus) -> float:
        return round(sum(w * self.packed(left, j) for j, w in ((2, 1), (4, 2), (8, 3))), 2)

    def _packed(self, left: Gpus, job: int) -> float:
        if len(left) < job:
            return 0.0
        first = min(left)
        best = self.packed(left - {first}, job)
        for others in combinations(sorted(left - {first}), job - 1):
            chosen = frozenset((first, *others))
            best = max(best, self._worth(chosen) + self.packed(left - chosen, job))
        return best

    def _worth(self, chosen: Gpus) -> float:
        nodes, sockets = self.spans(chosen)
        return self.bandwidth(chosen) * (1 - 0.1 * (nodes > 1) - 0.1 * (sockets > 1))

    # --- HCAs and partitions ---------------------------------------------------------------

    def _hca_terms(self, chosen: Gpus) -> tuple[int, int, int]:
        """GPUs with a far HCA, GPUs that share one, steps to all."""
        if not self.snapshot.hcas:
            return 0, 0, 0
        nearest = nearest_hcas(self.snapshot)
        near = {g: {h.name for h in nearest[g].hcas} if g in nearest else set() for g in self.gpus}
        far = distance = 0
        for gpu in chosen:
            if gpu not in nearest:
                far, distance = far + 1, distance + 5
                continue
            distance += nearest[gpu].closeness // 10
            nodes = [hca.numa_node for hca in nearest[gpu].hcas if hca.numa_node is not None]
            sockets = [self._socket_of(node) for node in nodes]
            far += nearest[gpu].closeness == Closeness.SYS and self.socket(gpu) not in sockets
        if not any(near.values()):
            return far, 0, distance
        return far, len(chosen) - most_served([near[gpu] for gpu in sorted(chosen)]), distance

    def broken(self, chosen: Gpus, free: Gpus) -> int:
        """Whole groups of *free* that *chosen* would split."""
        return sum(
            1 for group in self.groups if group <= free and group & chosen and group - chosen
        )

    def _groups(self) -> set[Gpus]:
        behind = {gpu: {gpu} for gpu in self.gpus}
        for _ in self.gpus:
            for a, b in permutations(self.gpus, 2):
                distance = self.pcie[a, b]
                if distance is not None and distance <= Closeness.PIX:
                    behind[a] |= behind[b]
        alone = {gpu for gpu, group in behind.items() if len(group) == 1}
        for gpu in alone:
            behind[gpu] = {other for other in alone if other // 2 == gpu // 2}
        return {frozenset(group) for group in behind.values() if len(group) > 1}

    # --- the whole objective ---------------------------------------------------------------

    def key(self, chosen: Gpus, free: Gpus) -> tuple[object, ...]:
        """Every term of *chosen*, so that less is better."""
        return (
            -self.bandwidth(chosen),
            -self.pair_sum(chosen),
            *self.spans(chosen),
            -self.value_left(free - chosen),
            *self.hca_terms(chosen),
            self.broken(chosen, free),
            tuple(sorted(chosen)),
        )

    def ranked(
        self, free: Collection[int], required: Collection[int], size: int
    ) -> list[tuple[object, ...]]:
        """All feasible sets of GPU indices, best first, by their keys."""
        sets = [frozenset(chosen) for chosen in combinations(sorted(free), size)]
        keys = [self.key(s, frozenset(free)) for s in sets if s.issuperset(required)]
        return sorted(keys)


def rings_through(chosen: Sequence[int]) -> Iterator[list[tuple[int, int]]]:
    """Every closed way through all of *chosen*, in both directions."""
    for order in permutations(chosen[1:]):
        yield list(pairwise((chosen[0], *order, chosen[0])))


def most_served(wishes: Sequence[set[str]]) -> int:
    """The most GPUs that can have an HCA of their wish each."""
    if not wishes:
        return 0
    rest = wishes[1:]
    return max(
        most_served(rest),
        *(1 + most_served([wish - {hca} for wish in rest]) for hca in wishes[0]),
        0,
    )
