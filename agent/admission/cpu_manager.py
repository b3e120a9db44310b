"""The CPU Manager's ``static`` policy: which NUMA nodes it proposes, and which CPUs it gives.

Semantics of kubernetes 1.36 pkg/kubelet/cm/cpumanager/policy_static.go.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from agent.admission.cpu_assignment import (
    CpuLayout,
    NotEnoughCpusError,
    cpu_layout,
    take_packed,
    take_spread,
)
from agent.admission.errors import SMT_ALIGNMENT_ERROR, Missing, Refusal, check_nodes
from agent.admission.hints import Hint, Hints, mask_of, narrowness, nodes_of, sums
from agent.admission.state import Held, Holders, flag, held_cpus, word
from agent.model.kubelet import KubeletSettings
from agent.model.kubelet_state import CpuState
from agent.model.kubernetes import MILLICORES, quantity
from agent.model.numa import CpuSet
from agent.model.snapshot import Snapshot


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


# The CPU Manager of a node, put together from its snapshot.

_OPTIONS = tuple(CpuOptions.__dataclass_fields__)


_STATIC, _NONE = "static", "none"


_MOST_CPUS = 8192
"""CPUs that are worked out; the most that Linux can be built for on x86 (NR_CPUS)."""


def cpus_of(snapshot: Snapshot, settings: KubeletSettings, found: Holders) -> Cpus | None:
    """Return the CPUs and who has them; ``None`` under policy ``none``.

    The state file is the kubelet's own word; without it, what pods hold is PodResources'.

    Raises:
        Missing: something needed is not known, or the kubelet does not start like this.
    """
    state = snapshot.kubelet_state.cpu if snapshot.kubelet_state is not None else None
    stated = state.policy if state is not None else settings.cpu_manager_policy
    policy = word(stated, "cpuManagerPolicy", (_STATIC, _NONE))
    if policy == _NONE and settings.cpu_manager_options:
        raise Missing("a kubelet that starts: cpuManagerPolicyOptions without policy static")
    if policy == _NONE:
        return None
    options, layout = _options(settings), _layout(snapshot)
    reserved = _reserved(snapshot, settings, layout, options)
    shared, held = _held(
        state, found, layout, reserved if options.strict_cpu_reservation else set()
    )
    cpus = Cpus(layout=layout, options=options, shared=shared, reserved=reserved, held=held)
    for uid in [uid for uid in held if not found.counts(uid)]:
        cpus.release(uid)
    return cpus


def _options(settings: KubeletSettings) -> CpuOptions:
    stated = settings.cpu_manager_options
    if stated is None:
        raise Missing("cpuManagerPolicyOptions")
    unknown = sorted(name for name in stated if name.replace("-", "_") not in _OPTIONS)
    if unknown:
        raise Missing(f"a kubelet that starts: cpuManagerPolicyOptions has {unknown[0]!r}")
    return CpuOptions(**{name: flag(stated, name.replace("_", "-")) for name in _OPTIONS})


def _layout(snapshot: Snapshot) -> CpuLayout:
    if snapshot.cpu is None or snapshot.numa_nodes is None:
        raise Missing("the CPUs' topology")
    layout = cpu_layout(snapshot.numa_nodes, snapshot.cpu)
    if len(layout.places) > _MOST_CPUS:
        raise Missing(f"an answer for more than {_MOST_CPUS} CPUs, which is not worked out")
    if not layout.places:
        raise Missing("the CPUs of NUMA nodes")
    check_nodes(len(layout.nodes))
    return layout


def _reserved(
    snapshot: Snapshot, settings: KubeletSettings, layout: CpuLayout, options: CpuOptions
) -> frozenset[int]:
    if settings.reserved_system_cpus:
        try:
            return CpuSet.parse(settings.reserved_system_cpus).cpus
        except ValueError as error:
            raise Missing(f"a kubelet that starts: reservedSystemCPUs is {error}") from None
    if snapshot.offer is not None and len(snapshot.offer.cpus):
        return layout.cpus - snapshot.offer.cpus.cpus
    if settings.system_reserved is None or settings.kube_reserved is None:
        raise Missing("the CPUs reserved for the system")
    parts = (_millicores(settings.system_reserved), _millicores(settings.kube_reserved))
    try:
        return take_by_options(layout, options, layout.cpus, -(-sum(parts) // MILLICORES))
    except NotEnoughCpusError as error:
        raise Missing(f"a kubelet that starts: {error}") from None


def _millicores(reserved: Mapping[str, str]) -> int:
    try:
        return quantity(reserved.get("cpu", "0"), per_unit=MILLICORES)
    except ValueError as error:
        raise Missing(f"a kubelet that starts: reserved CPU is {error}") from None


def _held(
    state: CpuState | None, found: Holders, layout: CpuLayout, strict: "frozenset[int] | set[int]"
) -> tuple[frozenset[int], Held]:
    """Return the shared CPUs and those of containers, of pods that are gone too."""
    if state is not None and state.default is not None:
        entries = (state.entries or {}).items()
        held = {uid: {name: cpus.cpus for name, cpus in one.items()} for uid, one in entries}
        return state.default.cpus, held
    known = held_cpus(found)
    if known is None:
        raise Missing("the CPUs that pods have, by the kubelet's state file or PodResources")
    taken = (cpus for containers in known.values() for cpus in containers.values())
    return layout.cpus.difference(*taken, strict), known
