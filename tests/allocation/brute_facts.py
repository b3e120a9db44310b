"""Who is linked how and sits where, read from a snapshot by the definitions; all by position.

Shares no code with nodetopo.allocation: the tables of figures stand here a second time.
"""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import combinations
from math import floor
from types import MappingProxyType

from nodetopo.allocation.measured import Measured
from nodetopo.model.gpu import Gpu
from nodetopo.model.hca import Hca
from nodetopo.model.nvlink import Closeness
from nodetopo.model.snapshot import Snapshot
from nodetopo.rdma.rails import CHIP_GBPS
from nodetopo.topology.affinity import nearest_hcas, socket_of_node
from nodetopo.topology.domains import has_switch
from nodetopo.topology.links import usable_nvlinks_between
from nodetopo.topology.matrix import pci_closeness

GEN4: Mapping[int, int] = MappingProxyType({0: 24, 10: 24, 20: 22, 30: 20, 40: 18, 50: 14})
PER_LINK: Mapping[int, int] = MappingProxyType({1: 20, 2: 25, 3: 25, 4: 25, 5: 50})
FAMILY: Mapping[str, int] = MappingProxyType(
    {"pascal": 1, "volta": 2, "turing": 2, "ampere": 3, "hopper": 4, "blackwell": 5}
)


def tenths(gb_s: Fraction) -> int:
    """GB/s in units of 0.1, half up."""
    return floor(gb_s * 10 + Fraction(1, 2))


def _is_down(hca: Hca) -> bool:
    """All its ports are known not to be active."""
    states = {port.state for port in hca.ports}
    return bool(states) and not states & {None, "ACTIVE"}


def _rails(snapshot: Snapshot) -> list[Hca]:
    """HCAs nearest to some GPU, of equally near ones the fastest models, all of one link layer."""
    hcas = [hca for hca in snapshot.hcas or () if hca.kind != "software"]
    whole = {hca.pci for hca in hcas if hca.kind not in ("virtual-function", "subfunction")}
    hcas = [hca for hca in hcas if hca.parent is None or hca.parent not in whole]
    nearest = nearest_hcas(snapshot, hcas)
    if not snapshot.gpus or any(gpu.is_lost and gpu.index not in nearest for gpu in snapshot.gpus):
        return hcas
    groups = [
        [hca for hca in near.hcas if not any(_beats(other, hca, hcas) for other in near.hcas)]
        for near in nearest.values()
    ] or [hcas]
    for at, near in enumerate(nearest.values()):
        fastest = max(_most(hca, hcas) for hca in near.hcas)
        shown = [hca for hca in near.hcas if _most(hca, hcas) == fastest > 0]
        silent = [hca for hca in near.hcas if not _most(hca, hcas)]
        leading = [hca for hca in silent if shown and _leads(hca, shown, fastest, hcas)]
        groups[at] = leading or groups[at]
    layers = [layer for group in groups for layer in {_layer(hca) for hca in group} if layer]
    usual = max(sorted(layers, reverse=True), key=layers.count, default=None)
    return [
        hca
        for hca in hcas
        if any(hca in group for group in groups) and _layer(hca) in (usual, None)
    ]


def _leads(hca: Hca, usual: list[Hca], fastest: int, hcas: list[Hca]) -> bool:
    """Whether a card whose model is down everywhere is a rail, and those of *usual* are none."""
    if max((port.rate_gbps or 0 for port in hca.ports), default=0) > fastest:
        return True
    ids = (hca.function.vendor, hca.function.device) if hca.function else (None, None)
    has_most = all(_alike(hca, hcas) > _alike(other, hcas) for other in usual)
    return CHIP_GBPS.get(ids, 0) > fastest and has_most


def _alike(hca: Hca, hcas: list[Hca]) -> int:
    """How many cards of the node are of its model."""
    return sum(o is hca or (_is_told(hca) and _model(o) == _model(hca)) for o in hcas)


def _beats(other: Hca, hca: Hca, hcas: list[Hca]) -> bool:
    """Whether the model of *other* is faster; an unknown speed beats nothing, and is not beaten."""
    return 0 < _most(hca, hcas) < _most(other, hcas)


def _most(hca: Hca, hcas: list[Hca]) -> int:
    return max(
        (
            round(port.rate_gbps)
            for other in hcas
            if other is hca or (_is_told(hca) and _model(other) == _model(hca))
            for port in other.ports
            if port.state == "ACTIVE" and port.rate_gbps and port.rate_gbps >= 1
        ),
        default=0,
    )


def _model(hca: Hca) -> tuple[object, ...]:
    ids = (hca.function.vendor, hca.function.device) if hca.function else None
    return hca.kind, ids, hca.hca_type, hca.board_id


def _is_told(hca: Hca) -> bool:
    return any(_model(hca)[1:])


def _layer(hca: Hca) -> str | None:
    """InfiniBand or Ethernet, by active ports if any; a port of both kinds counts as the former."""
    for ports in ([port for port in hca.ports if port.state == "ACTIVE"], hca.ports):
        for layer in ("InfiniBand", "Ethernet"):
            if any(port.layer == layer for port in ports):
                return layer
    return None


class Machine:
    """One machine. ``hops`` are in 0.1 GB/s, ``rates`` of one NVLink in GB/s."""

    def __init__(self, snapshot: Snapshot, measured: Measured | None = None) -> None:
        self.snapshot = snapshot
        self.gpus = sorted(snapshot.gpus, key=lambda gpu: gpu.index)
        self.indices = [gpu.index for gpu in self.gpus]
        self.is_switched = has_switch(snapshot)
        self.links: dict[frozenset[int], int] = {}
        self.rates: dict[frozenset[int], Fraction] = {}
        self.hops: dict[frozenset[int], int] = {}
        self._measure_pairs()
        self._replace(measured)
        self.nodes = [self._node(position) for position in range(len(self.gpus))]
        self.sockets = [self._socket(node) for node in self.nodes]
        self.models = [
            tuple(
                getattr(gpu, name)
                for name in ("product", "memory_mib", "compute_capability")
                if all(getattr(other, name) is not None for other in self.gpus)
            )
            for gpu in self.gpus
        ]
        self._rank_hcas()
        self.groups = set(self._groups())

    # --- bandwidth -------------------------------------------------------------------------

    def _measure_pairs(self) -> None:
        counts = usable_nvlinks_between(self.snapshot)
        self.pcie = pci_closeness(self.snapshot)
        for a, b in combinations(range(len(self.gpus)), 2):
            pair, one, two = frozenset((a, b)), self.gpus[a], self.gpus[b]
            self.links[pair] = counts[one.index, two.index] or 0
            self.rates[pair] = min(self._rate(one), self._rate(two))
            distance = self._distance(a, b)
            generation = min(self._generation(one), self._generation(two))
            gen4 = GEN4[50 if distance is None else distance]
            pcie = gen4 * Fraction(2) ** (generation - 4)
            pcie = min(pcie, self._slot(one), self._slot(two))
            wide = self.links[pair] * self.rates[pair] if self.links[pair] else pcie
            self.hops[pair] = tenths(wide)

    def _distance(self, a: int, b: int) -> Closeness | None:
        return self.pcie.get(frozenset((self.gpus[a].name, self.gpus[b].name)))

    def _rate(self, gpu: Gpu) -> Fraction:
        """The slowest link decides; one is as fast as its version, or slower if it says so."""
        family = FAMILY.get(gpu.architecture or "")
        rates = [Fraction(PER_LINK.get(family or 0, 20))]
        own = [
            link for link in self.snapshot.nvlinks or () if link.gpu == gpu.index and link.is_active
        ]
        if own:
            rates = [self._link_rate(link.version or family, link.speed_mbps) for link in own]
        return min(rates)

    def _link_rate(self, version: int | None, raw_mb_s: int | None) -> Fraction:
        payload = PER_LINK.get(version or 0)
        if raw_mb_s is None or raw_mb_s <= 0:
            return Fraction(payload or 20)
        raw = Fraction(raw_mb_s, 1000)
        if payload is not None:
            return min(raw, Fraction(payload))
        if (version or 0) > max(PER_LINK):
            return raw
        return max((Fraction(known) for known in PER_LINK.values() if known <= raw), default=raw)

    def _generation(self, gpu: Gpu) -> int:
        known = gpu.pcie and (gpu.pcie.max_generation or gpu.pcie.generation)
        return min(max(known, 1), 7) if known else 3

    def _slot(self, gpu: Gpu) -> Fraction:
        """What the lanes of a GPU carry; the narrowest of the node for one of unknown width."""
        active = [link for link in self.snapshot.nvlinks or () if link.gpu == gpu.index]
        beside_cpu = [link for link in active if link.is_active and link.peer_kind == "cpu"]
        if beside_cpu or (gpu.c2c is not None and gpu.c2c.is_enabled):
            lanes = 16
        else:
            known = [other.pcie.width for other in self.gpus if other.pcie and other.pcie.width]
            own = gpu.pcie.width if gpu.pcie else None
            lanes = own or min([*known, 16]) if known else 16
        whole = GEN4[0] * Fraction(2) ** (self._generation(gpu) - 4)
        return whole * Fraction(min(lanes, 16), 16)

    def _replace(self, measured: Measured | None) -> None:
        for gpus, width in (measured.pairs if measured else {}).items():
            pair = frozenset(self.indices.index(gpu) for gpu in gpus if gpu in self.indices)
            if len(pair) == 2:
                self.hops[pair] = width
                if self.links[pair]:
                    self.rates[pair] = Fraction(width, 10 * self.links[pair])

    # --- place -----------------------------------------------------------------------------

    def _node(self, position: int) -> object:
        """The NUMA node, or the GPU itself where it is not known."""
        node = self.gpus[position].numa_node
        if node is not None:
            return node
        with_cpus = [node.id for node in self.snapshot.numa_nodes or () if len(node.cpus)]
        return with_cpus[0] if len(with_cpus) == 1 else ("unknown", position)

    def _socket(self, node: object) -> object:
        """The socket, or the NUMA node, or the GPU itself where it is not known."""
        packages = self.snapshot.cpu.sockets if self.snapshot.cpu else ()
        if len(packages) == 1:
            return "S", packages[0].id
        known = socket_of_node(self.snapshot)
        return ("S", known[node]) if isinstance(node, int) and node in known else node

    # --- HCAs and partitions ---------------------------------------------------------------

    def _rank_hcas(self) -> None:
        """Nearest HCAs of each GPU, whether none is on its socket, and steps to them."""
        hcas = list(self.snapshot.hcas or ())
        up = [hca for hca in _rails(self.snapshot) if not _is_down(hca)]
        nearest = nearest_hcas(self.snapshot, up)
        self.near: list[set[int]] = []
        self.far: list[bool] = []
        self.steps: list[int] = []
        for gpu, socket in zip(self.gpus, self.sockets, strict=True):
            found = nearest.get(gpu.index)
            if found is None:
                self.near.append(set())
                self.far.append(bool(up))
                self.steps.append(5 if up else 0)
                continue
            self.near.append({n for n, hca in enumerate(hcas) if any(hca is h for h in found.hcas)})
            homes = [self._socket(hca.numa_node) for hca in found.hcas if hca.numa_node is not None]
            self.far.append(found.closeness == Closeness.SYS and socket not in homes)
            self.steps.append(found.closeness // 10)

    def _share_a_switch(self, a: int, b: int) -> bool:
        distance = self._distance(a, b)
        return distance is not None and distance <= Closeness.PIX

    def _groups(self) -> Iterator[frozenset[int]]:
        """GPUs behind one PCIe switch; behind NVSwitches also the pairs of indices 2i and 2i+1."""
        behind = {position: {position} for position in range(len(self.gpus))}
        near = [pair for pair in combinations(behind, 2) if self._share_a_switch(*pair)]
        while any(behind[a] != behind[b] for a, b in near):
            for a, b in near:
                behind[a] = behind[b] = behind[a] | behind[b]
        alone = [position for position, group in behind.items() if len(group) == 1]
        yield from (frozenset(group) for group in behind.values() if len(group) > 1)
        for a, b in combinations(alone, 2) if self.is_switched else ():
            if self.indices[a] // 2 == self.indices[b] // 2:
                yield frozenset((a, b))
