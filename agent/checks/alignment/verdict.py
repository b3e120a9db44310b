"""What is apart of what a container holds, where the machine could have had it together.

Everything is judged by the NUMA nodes of the GPUs, or without GPUs of the HCAs: the CPUs are to be
on all of them and on no other. What could not be otherwise is no fault: GPUs that are more than a
NUMA node has, CPUs that are more than theirs have, HCAs where there are none near the GPUs.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

from agent.checks.alignment.alignment_cause import Explaining
from agent.checks.alignment.alignment_nvlink import NvlinkSets
from agent.checks.alignment.alignment_parts import MEMORY, Cpus, Memory
from agent.checks.alignment.devices import DevicePlaces, HeldGpu, HeldHca
from agent.checks.alignment.record import Apart, Part
from agent.model.snapshot import Snapshot
from agent.topology.affinity import socket_of_node

MAX_CHOICES = 1000
"""Ways to choose NUMA nodes that are tried out; a machine with GPUs on 8 of them has 70 at most."""

MIB = 1 << 20

Nodes = Collection[int]


@dataclass(frozen=True, slots=True)
class Machine:
    """What one machine could give."""

    snapshot: Snapshot
    places: DevicePlaces
    nvlinks: NvlinkSets

    def gpus_apart(self, held: Sequence[HeldGpu], why: Explaining) -> Apart | None:
        """Return how *held* are on more NUMA nodes than so many need."""
        nodes = {one.node for one in held}
        counts = Counter(self._gpu_nodes().values())
        needed = _fewest(counts, len(held))
        is_known = all(one.gpu is not None and one.node is not None for one in held)
        if not is_known or len(nodes) <= needed or self._is_worth_it(held, needed):
            return None
        return Apart(
            part=Part.GPUS,
            observed=on({node for node in nodes if node is not None}),
            expected=f"on {needed} NUMA node{'s' if needed > 1 else ''}",
            causes=why.placed(),
        )

    def cpus_apart(self, near: Nodes, cpus: Cpus, why: Explaining) -> Apart | None:
        """Return how *cpus* are not where *near* says."""
        if cpus.nodes is None:
            return None
        absent = set(near) - set(cpus.nodes)
        surplus = set(cpus.nodes) - set(near)
        if surplus and (self._is_at_home(surplus, near) or self._is_too_many(cpus, near)):
            surplus = set()
        if absent and cpus.are_own and cpus.count < len(near):
            absent = set()
        if not absent and not surplus:
            return None
        return Apart(
            part=Part.CPUS,
            observed=f"{'own' if cpus.are_own else 'shared'} CPUs {cpus.cpus} {on(cpus.nodes)}",
            expected=on(near),
            causes=why.cpus(is_packed=bool(absent) and not surplus),
        )

    def memory_apart(
        self, near: Nodes, memory: Memory, cpus: Apart | None, why: Explaining
    ) -> Apart | None:
        """Return how *memory* is not where *near* says.

        Memory that nothing binds is where the threads are that use it first, so that it is apart
        only where they are (*cpus*).
        """
        if memory.nodes is None or set(memory.nodes) == set(near):
            return None
        if not memory.is_bound and cpus is None:
            return None
        if memory.is_bound and set(memory.nodes) > set(near) and self._fills(memory.size, near):
            return None
        return Apart(
            part=Part.MEMORY,
            observed=f"{'bound' if memory.is_bound else 'not bound'}, {on(memory.nodes)}",
            expected=on(near),
            causes=why.memory(is_bound=bool(memory.is_bound)),
        )

    def hcas_apart(self, near: Nodes, held: Sequence[HeldHca], why: Explaining) -> Apart | None:
        """Return how *held* are not where *near* says, as far as there are HCAs."""
        there = Counter(hca.numa_node for hca in self.snapshot.hcas or ())
        possible = {node for node in near if there[node]}
        nodes = {one.node for one in held if one.node is not None}
        if len(nodes) == 0 or any(one.node is None for one in held):
            return None
        surplus = nodes - set(near) if len(held) <= sum(there[n] for n in possible) else set()
        absent = possible - nodes if len(held) >= len(possible) else set()
        if not surplus and not absent:
            return None
        return Apart(
            part=Part.HCAS,
            observed=f"{', '.join(one.name for one in held)} {on(nodes)}",
            expected=on(possible),
            causes=why.placed(),
        )

    def _gpu_nodes(self) -> dict[int, int]:
        """Return the NUMA nodes of the machine's GPUs, by index, where known."""
        found = {gpu.index: self.places.gpu_node(gpu) for gpu in self.snapshot.gpus}
        return {index: node for index, node in found.items() if node is not None}

    def _is_worth_it(self, held: Sequence[HeldGpu], needed: int) -> bool:
        """Return whether NVLink joins *held*, and no so many on *needed* NUMA nodes."""
        where = self._gpu_nodes()
        nodes = sorted(set(where.values()))
        if not all(one.is_whole for one in held) or comb(len(nodes), needed) > MAX_CHOICES:
            return False
        groups = self.nvlinks.groups([one.gpu.index for one in held if one.gpu is not None])
        choices = (
            [index for index, node in where.items() if node in chosen]
            for chosen in combinations(nodes, needed)
        )
        return all(
            groups < self.nvlinks.fewest(len(held), gpus)
            for gpus in choices
            if len(gpus) >= len(held)
        )

    def _is_at_home(self, surplus: Nodes, near: Nodes) -> bool:
        """Return whether *surplus* are of the same sockets as *near*, and have no GPU to be near.

        So it is for whole machines whose sockets have NUMA nodes without GPUs.
        """
        sockets = socket_of_node(self.snapshot)
        home = {sockets.get(node) for node in near}
        has_all = set(self._gpu_nodes().values()) <= set(near)
        return has_all and None not in home and all(sockets.get(node) in home for node in surplus)

    def _is_too_many(self, cpus: Cpus, near: Nodes) -> bool:
        """Return whether *near* have fewer CPUs to give than it holds."""
        offer = self.snapshot.offer
        there = [node.cpus for node in self.snapshot.numa_nodes or () if node.id in near]
        if offer is not None and len(offer.cpus):
            there = [each & offer.cpus for each in there]
        return cpus.count > sum(map(len, there))

    def _fills(self, size: int, near: Nodes) -> bool:
        """Return whether *size* bytes are more than *near* have."""
        offer = self.snapshot.offer
        offered = sum(
            piece.size_bytes
            for piece in (() if offer is None else offer.memory)
            if piece.kind == MEMORY and all(node in near for node in piece.numa_nodes)
        )
        nodes = (node for node in self.snapshot.numa_nodes or () if node.id in near)
        return size > (offered or sum((node.memory_mib or 0) * MIB for node in nodes))


def on(nodes: Collection[int]) -> str:
    """Return *nodes* in words."""
    found = sorted(nodes)
    return f"on NUMA node{'s' if len(found) != 1 else ''} {', '.join(map(str, found)) or 'none'}"


def _fewest(counts: Counter[int], size: int) -> int:
    """Return the fewest NUMA nodes that hold *size* GPUs."""
    nodes = 0
    for count in sorted(counts.values(), reverse=True):
        if size <= 0:
            break
        size -= count
        nodes += 1
    return nodes + (size > 0)
