"""Avoidable misalignment of a container's resources, and its causes.

The NUMA nodes of the GPUs, or without GPUs of the HCAs, are the reference: the CPUs should be on
all of them and on no others. Unavoidable misalignment is not a fault: more GPUs than a NUMA node
has, more CPUs than the GPUs' nodes have, or no HCAs near the GPUs.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from itertools import combinations
from math import comb

from msgspec import Struct

from nodetopo.components.audit.alignment.devices import DevicePlaces, HeldGpu, HeldHca, NvlinkSets
from nodetopo.components.audit.alignment.record import (
    MEMORY,
    NONE,
    Apart,
    Cause,
    Cpus,
    Memory,
    Part,
    cpu_policy,
    memory_policy,
)
from nodetopo.model.kubernetes import MIB, MILLICORES
from nodetopo.model.pod import Container, Pod, pool
from nodetopo.model.qos import QosClass, asks_as_a_pod, class_of, pod_level
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.affinity import socket_of_node

# Why something of a running container is apart: the code of the rule that explains it, or a word
# where no rule can, such as what the node was like at admission.

NO_CPU_MANAGER = Cause(
    code="KUB-001", text="the CPU Manager has the policy none: no container has exclusive CPUs"
)


NO_TOPOLOGY_MANAGER = Cause(
    code="KUB-003",
    text="the Topology Manager has the policy none: devices and CPUs were chosen one by one",
)


NO_MEMORY_MANAGER = Cause(
    code="KUB-004", text="the Memory Manager has the policy None: memory follows the threads"
)


NOT_GUARANTEED = Cause(
    code="QOS-001", text="the pod is not Guaranteed, so that it shares its CPUs and memory"
)


NOT_WHOLE = Cause(code="QOS-002", text="the container asks for no whole number of CPUs")


POD_LEVEL = Cause(
    code="QOS-003",
    text="the pod states its resources as a whole, and the managers leave such pods out",
)


SHARES = Cause(
    code="shared-cpus",
    text="it has no exclusive CPUs: the pod is not Guaranteed (QOS-001), or does not request whole "
    "CPUs (QOS-002)",
)


BY_CLAIM = Cause(
    code="by-claim",
    text="the GPUs came by a ResourceClaim, which the Topology Manager does not see: CPUs and "
    "memory were chosen without them",
)


NO_NODE = Cause(
    code="device-without-node", text="a device plugin told the kubelet no NUMA node of its device"
)


UNKNOWN_NODE = Cause(code="NUM-001", text="the firmware tells no NUMA node of a GPU")


PACKED = Cause(
    code="packed",
    text="the CPUs fit on fewer NUMA nodes than the GPUs need, and the CPU Manager takes as few "
    "as it can; distribute-cpus-across-numa spreads them",
)


FRAGMENTED = Cause(
    code="fragmented",
    text="the policy best-effort let the pod in although no NUMA node had enough left",
)


UNEXPLAINED = Cause(
    code="unexplained",
    text="with today's settings the kubelet would not place it so: they were changed since, or "
    "something else changed its cgroup",
)


UNTOLD = Cause(code="unknown-policy", text="the Topology Manager's policy is not known")


KNOWN: tuple[Cause, ...] = (
    NO_CPU_MANAGER,
    NO_TOPOLOGY_MANAGER,
    NO_MEMORY_MANAGER,
    NOT_GUARANTEED,
    NOT_WHOLE,
    POD_LEVEL,
    SHARES,
    BY_CLAIM,
    NO_NODE,
    UNKNOWN_NODE,
    PACKED,
    FRAGMENTED,
    UNEXPLAINED,
    UNTOLD,
)
"""All of them; a metric has their codes as values of a label."""


Causes = tuple[Cause, ...]


class Explaining(Struct, frozen=True):
    """Explains the placement of a container."""

    pod: Pod
    container: Container
    snapshot: Snapshot
    places: DevicePlaces

    def cpus(self, *, is_packed: bool) -> Causes:
        """Explain CPUs that are apart; *is_packed* where they are all near some of the GPUs."""
        own = self.container.cpus or pool(self.pod)
        if not own:
            manager = (NO_CPU_MANAGER,) if cpu_policy(self.snapshot) == NONE else ()
            is_guaranteed, is_pod_level = self._is_guaranteed, asks_as_a_pod(self.pod)
            requests, is_whole = self.container.requests, None
            if requests is not None:
                asked = requests.get("cpu", 0)
                is_whole = asked > 0 and asked % MILLICORES == 0
            causes = (
                *manager,
                *((NOT_GUARANTEED,) if is_guaranteed is False else ()),
                *((NOT_WHOLE,) if is_whole is False and not is_pod_level else ()),
                *((POD_LEVEL,) if is_guaranteed and is_pod_level else ()),
            )
            return causes or ((SHARES,) if None in (is_guaranteed, is_whole) else (UNEXPLAINED,))
        cpuset = self.container.cpuset
        if cpuset is not None and not cpuset <= own:
            return (UNEXPLAINED,)
        is_by_claim = any(gpu.claim for gpu in self.places.gpus(self.container))
        if is_packed and self._policy != NONE and not is_by_claim:
            return (PACKED,)
        return self.placed()

    def memory(self, *, is_bound: bool) -> Causes:
        """Explain memory that is, or can be, apart."""
        if is_bound:
            return self.placed() if self.container.memory or self.pod.memory else (UNEXPLAINED,)
        manager = (NO_MEMORY_MANAGER,) if memory_policy(self.snapshot) == "None" else ()
        pod = (NOT_GUARANTEED,) if self._is_guaranteed is False else ()
        return (*manager, *pod) or (UNEXPLAINED,)

    def placed(self) -> Causes:
        """Explain resources that the Topology Manager should have aligned."""
        held = self.places.gpus(self.container)
        if any(gpu.claim is not None for gpu in held):
            return (BY_CLAIM,)
        if any(gpu.gpu is not None and gpu.gpu.numa_node is None for gpu in held):
            return (UNKNOWN_NODE,)
        unreported = (NO_NODE,) if self.places.lacks_node(self.container) else ()
        match self._policy:
            case "none":
                return (NO_TOPOLOGY_MANAGER, *unreported)
            case "best-effort":
                return unreported or (FRAGMENTED,)
            case None:
                return unreported or (UNTOLD,)
        return unreported or (UNEXPLAINED,)

    @property
    def _policy(self) -> str | None:
        settings = self.snapshot.kubelet
        return None if settings is None else settings.topology_manager_policy

    @property
    def _is_guaranteed(self) -> bool | None:
        settings = self.snapshot.kubelet
        gates = None if settings is None else settings.feature_gates
        level = pod_level(self.snapshot.kubelet_version, gates)
        qos = class_of(self.pod, level)
        return None if qos is None else qos == QosClass.GUARANTEED


MAX_CHOICES = 1000
"""Ways to choose NUMA nodes that are tried out; a machine with GPUs on 8 of them has 70 at most."""


Nodes = Collection[int]


class Machine(Struct, frozen=True):
    """The best placement that a machine could give a container."""

    snapshot: Snapshot
    places: DevicePlaces
    nvlinks: NvlinkSets

    def gpus_apart(self, held: Sequence[HeldGpu], why: Explaining) -> Apart | None:
        """Return how *held* GPUs are on more NUMA nodes than necessary."""
        nodes = {gpu.node for gpu in held}
        counts = Counter(self._gpu_nodes().values())
        needed = _fewest(counts, len(held))
        is_known = all(gpu.gpu is not None and gpu.node is not None for gpu in held)
        if not is_known or len(nodes) <= needed or self._is_worth_it(held, needed):
            return None
        return Apart(
            part=Part.GPUS,
            observed=on({node for node in nodes if node is not None}),
            expected=f"on {needed} NUMA node{'s' if needed > 1 else ''}",
            causes=why.placed(),
        )

    def cpus_apart(self, near: Nodes, cpus: Cpus, why: Explaining) -> Apart | None:
        """Return how *cpus* deviate from the nodes *near*."""
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
        """Return how *memory* deviates from the nodes *near*.

        Unbound memory is local to the threads that first use it, so it is apart only if they are
        (*cpus*).
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
        """Return how *held* HCAs deviate from the nodes *near*, if HCAs exist there."""
        there = Counter(hca.numa_node for hca in self.snapshot.hcas or ())
        possible = {node for node in near if there[node]}
        nodes = {hca.node for hca in held if hca.node is not None}
        if len(nodes) == 0 or any(hca.node is None for hca in held):
            return None
        surplus = nodes - set(near) if len(held) <= sum(there[n] for n in possible) else set()
        absent = possible - nodes if len(held) >= len(possible) else set()
        if not surplus and not absent:
            return None
        return Apart(
            part=Part.HCAS,
            observed=f"{', '.join(hca.name for hca in held)} {on(nodes)}",
            expected=on(possible),
            causes=why.placed(),
        )

    def _gpu_nodes(self) -> dict[int, int]:
        """Return the NUMA nodes of the machine's GPUs, by index, where known."""
        nodes = {gpu.index: self.places.gpu_node(gpu) for gpu in self.snapshot.gpus}
        return {index: node for index, node in nodes.items() if node is not None}

    def _is_worth_it(self, held: Sequence[HeldGpu], needed: int) -> bool:
        """Return whether NVLink joins *held*, and no equally large set on *needed* NUMA nodes."""
        where = self._gpu_nodes()
        nodes = sorted(set(where.values()))
        if not all(gpu.is_whole for gpu in held) or comb(len(nodes), needed) > MAX_CHOICES:
            return False
        groups = self.nvlinks.groups([gpu.gpu.index for gpu in held if gpu.gpu is not None])
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
    """Return *nodes* as a phrase."""
    names = ", ".join(map(str, sorted(nodes))) or "none"
    return f"on NUMA node{'s' if len(nodes) != 1 else ''} {names}"


def _fewest(counts: Counter[int], size: int) -> int:
    """Return the fewest NUMA nodes that hold *size* GPUs."""
    nodes = 0
    for count in sorted(counts.values(), reverse=True):
        if size <= 0:
            break
        size -= count
        nodes += 1
    return nodes + (size > 0)
