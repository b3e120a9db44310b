"""Where each CPU lies: what the CPU Manager knows of the machine.

Source: kubernetes 1.36 pkg/kubelet/cm/cpumanager/topology, filled as cadvisor 0.56 fills it
(utils/sysinfo): a last-level cache counts only where it is not one whole NUMA node's; without
one, the socket stands for it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from agent.admission.hints import sums
from agent.model.numa import CpuTopology, NumaNode


@dataclass(frozen=True, slots=True)
class Place:
    """Where one CPU lies; a core is named by its lowest CPU."""

    numa: int
    socket: int
    core: int
    cache: int


@dataclass(frozen=True, kw_only=True)
class CpuLayout:
    """All CPUs of the machine.

    Attributes:
        sockets: how many there are, with or without CPUs.
    """

    places: Mapping[int, Place]
    sockets: int
    _totals: dict[str, Mapping[int, frozenset[int]]] = field(default_factory=dict, repr=False)

    def members(self, level: str) -> Mapping[int, frozenset[int]]:
        """Return the CPUs of each part of one *level*: numa, socket, core or cache."""
        if level not in self._totals:
            self._totals[level] = grouped(self, level, self.places)
        return self._totals[level]

    @cached_property
    def nodes(self) -> tuple[int, ...]:
        """The NUMA nodes that have CPUs, ascending."""
        return tuple(sorted(self.members("numa")))

    @cached_property
    def cpus(self) -> frozenset[int]:
        """All CPUs."""
        return frozenset(self.places)

    @cached_property
    def installed(self) -> Mapping[int, int]:
        """How many CPUs every set of NUMA nodes has."""
        return sums({node: len(self.members("numa")[node]) for node in self.nodes})

    @property
    def per_core(self) -> int:
        """CPUs of a core, on average, rounded down."""
        return len(self.places) // max(len(self.members("core")), 1)

    @property
    def per_socket(self) -> int:
        """CPUs of a socket, likewise."""
        return len(self.places) // max(self.sockets, 1)

    @property
    def per_cache(self) -> int:
        """CPUs of a cache, likewise."""
        return len(self.places) // max(len(self.members("cache")), 1)

    def by_node(self, cpus: Iterable[int]) -> Counter[int]:
        """Count *cpus* by NUMA node."""
        return Counter(self.places[cpu].numa for cpu in cpus if cpu in self.places)

    def sockets_of(self, nodes: Iterable[int]) -> frozenset[int]:
        """Return the sockets that have CPUs on any of *nodes*."""
        wanted = frozenset(nodes)
        return frozenset(place.socket for place in self.places.values() if place.numa in wanted)


def grouped(layout: CpuLayout, level: str, cpus: Iterable[int]) -> Mapping[int, frozenset[int]]:
    """Return *cpus* by the part of *level* that they lie in."""
    found: dict[int, set[int]] = {}
    for cpu in cpus:
        found.setdefault(getattr(layout.places[cpu], level), set()).add(cpu)
    return {part: frozenset(members) for part, members in found.items()}


def cpu_layout(nodes: Iterable[NumaNode], cpu: CpuTopology) -> CpuLayout:
    """Put the layout together from what the kernel shows."""
    sockets = {one: socket.id for socket in cpu.sockets for one in socket.cpus}
    cores = {one: min(core) for core in cpu.cores for one in core}
    caches = {one: min(group) for group in cpu.l3_groups for one in group}
    sizes = Counter(caches.values())
    places: dict[int, Place] = {}
    for node in nodes:
        members = [one for one in node.cpus if one in cpu.online]
        threads = Counter(cores.get(one, one) for one in members)
        for one in members:
            core, socket = cores.get(one, one), sockets.get(one, 0)
            whole = len(threads) * threads[core]
            is_split = one in caches and sizes[caches[one]] != whole
            places[one] = Place(node.id, socket, core, caches[one] if is_split else socket)
    return CpuLayout(places=places, sockets=len(cpu.sockets) or 1)
