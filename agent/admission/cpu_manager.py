"""The CPU Manager's ``static`` policy: which NUMA nodes it proposes, and which CPUs it gives.

Semantics of kubernetes 1.36 pkg/kubelet/cm/cpumanager/policy_static.go.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from agent.admission.admission_cpu_spread import take_spread
from agent.admission.admission_cpu_take import NotEnoughCpusError, take_packed
from agent.admission.admission_refusal import SMT_ALIGNMENT_ERROR, Refusal
from agent.admission.cpu_assignment import CpuLayout
from agent.admission.hints import Hint, Hints, mask_of, narrowness, nodes_of, sums


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuOptions:
    """``cpuManagerPolicyOptions``, each by its name there."""

    full_pcpus_only: bool = False
    distribute_cpus_across_numa: bool = False
    align_by_socket: bool = False
    distribute_cpus_across_cores: bool = False
    strict_cpu_reservation: bool = False
    prefer_align_cpus_by_uncorecache: bool = False


@dataclass(slots=True, kw_only=True)
class Cpus:
    """The CPUs of one node and who has them.

    Attributes:
        shared: what no container has for itself (``defaultCpuSet``).
        reserved: what no container can have for itself.
        held: pod uid → container → its exclusive CPUs.
        reusable: those of init containers of the pod that is being admitted.
    """

    layout: CpuLayout
    options: CpuOptions
    shared: frozenset[int]
    reserved: frozenset[int]
    held: dict[str, dict[str, frozenset[int]]] = field(default_factory=dict)
    reusable: frozenset[int] = frozenset()

    def copy(self) -> "Cpus":
        """Return a copy that can be changed on its own."""
        held = {uid: dict(containers) for uid, containers in self.held.items()}
        return replace(self, held=held)

    def release(self, uid: str) -> None:
        """Take back what the containers of one pod have."""
        for cpus in self.held.pop(uid, {}).values():
            self.shared |= cpus

    def hints(self, wanted: int) -> Hints:
        """Return the NUMA nodes that *wanted* CPUs can come from, for a container or a pod."""
        needed = mask_of(self.layout.by_node(self.reusable))
        installed, free = self.layout.installed, self.free
        narrowest = min(
            (mask.bit_count() for mask, count in installed.items() if count >= wanted),
            default=len(self.layout.nodes),
        )
        found = (one for one in free if free[one] >= wanted and one & needed == needed)
        ordered = sorted(found, key=narrowness)
        return {"cpu": tuple(Hint(one, self._is_preferred(one, narrowest)) for one in ordered)}

    def give(self, uid: str, container: str, wanted: int, mask: int | None) -> frozenset[int]:
        """Give *wanted* CPUs to a container, from the NUMA nodes of *mask* first.

        Raises:
            Refusal: they cannot be had.
        """
        self._check_cores(wanted)
        free = self.available | self.reusable
        aligned = frozenset() if mask is None else self._aligned(mask, free)
        try:
            taken = self._take(aligned, min(wanted, len(aligned)))
            taken |= self._take(free - taken, wanted - len(taken))
        except NotEnoughCpusError as error:
            raise Refusal.unexpected(str(error)) from None
        self.shared -= taken
        self.held.setdefault(uid, {})[container] = taken
        return taken

    @property
    def available(self) -> frozenset[int]:
        """What can be given out now."""
        return self.shared - self.reserved

    @property
    def free(self) -> dict[int, int]:
        """How many CPUs every set of NUMA nodes has for the pod that is being admitted."""
        counts = self.layout.by_node(self.available | self.reusable)
        return sums({node: counts[node] for node in self.layout.nodes})

    def _is_preferred(self, mask: int, narrowest: int) -> bool:
        if self.options.align_by_socket:
            per_socket = len(self.layout.nodes) // self.layout.sockets
            needed = -(-narrowest // per_socket) if per_socket else -1
            if len(self.layout.sockets_of(nodes_of(mask))) == needed:
                return True
        return mask.bit_count() == narrowest

    def _check_cores(self, wanted: int) -> None:
        if not self.options.full_pcpus_only:
            return
        per_core = self.layout.per_core
        if wanted % per_core:
            words = f"requested {wanted} cpus not multiple cpus per core = {per_core}"
            raise Refusal(SMT_ALIGNMENT_ERROR, f"SMT Alignment Error: {words}")
        broken = {
            self.layout.places[cpu].core for cpu in self.reserved if cpu in self.layout.places
        }
        members = self.layout.members("core")
        free = len(self.shared - frozenset().union(*(members[core] for core in broken)))
        if wanted > free:
            words = f"not enough free physical CPUs: available physical CPUs = {free}"
            counts = f"requested CPUs = {wanted}, CPUs per core = {per_core}"
            raise Refusal(SMT_ALIGNMENT_ERROR, f"SMT Alignment Error: {words}, {counts}")

    def _aligned(self, mask: int, free: frozenset[int]) -> frozenset[int]:
        nodes = nodes_of(mask)
        if not self.options.align_by_socket:
            level, parts = "numa", frozenset(nodes)
        else:
            level, parts = "socket", self.layout.sockets_of(nodes)
        members: Mapping[int, frozenset[int]] = self.layout.members(level)
        return free & frozenset().union(*(members.get(part, frozenset()) for part in parts))

    def _take(self, free: frozenset[int], wanted: int) -> frozenset[int]:
        return take_by_options(self.layout, self.options, free, wanted)


def take_by_options(
    layout: CpuLayout, options: CpuOptions, free: frozenset[int], wanted: int
) -> frozenset[int]:
    """Return *wanted* of the *free* CPUs as the policy's options say.

    Raises:
        NotEnoughCpusError: there are not as many.
    """
    if options.distribute_cpus_across_numa:
        group = layout.per_core if options.full_pcpus_only else 1
        return take_spread(layout, free, wanted, group)
    return take_packed(
        layout,
        free,
        wanted,
        by_cache=options.prefer_align_cpus_by_uncorecache,
        spread_cores=options.distribute_cpus_across_cores,
    )
