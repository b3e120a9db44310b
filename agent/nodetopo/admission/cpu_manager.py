"""The CPU Manager's ``static`` policy: which NUMA nodes it proposes, and which CPUs it gives.

Semantics of kubernetes 1.36 and 1.37 pkg/kubelet/cm/cpumanager/policy_static.go.
"""

from collections import Counter

from msgspec import Struct, field
from msgspec.structs import replace

from nodetopo.admission.cpu_assignment import (
    CpuLayout,
    NotEnoughCpusError,
    cpu_layout,
    take_packed,
    take_spread,
)
from nodetopo.admission.errors import SMT_ALIGNMENT_ERROR, Missing, Refusal, check_walk
from nodetopo.admission.hints import Choices, Hints
from nodetopo.admission.state import ActivePods, choice, flag
from nodetopo.model.kubelet import KubeletSettings
from nodetopo.model.kubernetes import MILLICORES, Release, quantity, release
from nodetopo.model.numa import CpuSet
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.node_sets import Family, mask_of, near_any, nodes_of, with_amount

_STATIC, _NONE = "static", "none"

SOCKETS_SINCE: Release = (1, 37)
"""From which on ``distribute-cpus-across-numa`` takes notice of ``align-by-socket``."""

_MOST_CPUS = 8192
"""CPUs that are computed; the most that Linux can be built for on x86 (NR_CPUS)."""

_MOST_SPREAD = 10
"""NUMA nodes with CPUs over which ``distribute-cpus-across-numa`` is computed: it tries their
combinations, which double with each."""


class CpuOptions(Struct, frozen=True, kw_only=True):
    """``cpuManagerPolicyOptions``, each by its name there."""

    full_pcpus_only: bool = False
    distribute_cpus_across_numa: bool = False
    align_by_socket: bool = False
    distribute_cpus_across_cores: bool = False
    strict_cpu_reservation: bool = False
    prefer_align_cpus_by_uncorecache: bool = False


_OPTIONS = tuple(CpuOptions.__struct_fields__)


class CpuManager(Struct, kw_only=True):
    """The CPUs of one node and who has them."""

    layout: CpuLayout
    options: CpuOptions
    shared: frozenset[int]  # no container has them exclusively (`defaultCpuSet`)
    reserved: frozenset[int]  # no container can have them exclusively
    # Pod uid → container → exclusive CPUs.
    held: dict[str, dict[str, frozenset[int]]] = field(default_factory=dict)
    reusable: frozenset[int] = frozenset()  # of init containers of the pod being admitted
    kubelet: Release | None = None  # if unknown, up to 1.36 is assumed

    def copy(self) -> "CpuManager":
        """Return an independent copy to admit the next pod on."""
        held = {uid: dict(containers) for uid, containers in self.held.items()}
        return replace(self, held=held, reusable=frozenset())

    def release(self, uid: str) -> None:
        """Return the CPUs of one pod to the shared ones."""
        for cpus in self.held.pop(uid, {}).values():
            self.shared |= cpus

    def hints(self, wanted: int) -> Hints:
        """Return the NUMA nodes that *wanted* CPUs can come from, for a container or a pod."""
        check_walk(len(self.layout.nodes), "CPU Manager", "cpuManagerPolicy none avoids it")
        needed = mask_of(self.layout.by_node(self.reusable))
        large = with_amount(self.layout.installed, wanted)
        narrowest = len(self.layout.nodes) if large.narrowest is None else large.narrowest
        fitting = with_amount(self.free, wanted).nonempty.including(needed)
        return {"cpu": Choices(fitting, self._preferred(fitting, narrowest))}

    def give(
        self, uid: str, container: str, wanted: int, mask: int | None, *, is_init: bool
    ) -> frozenset[int]:
        """Give *wanted* CPUs to a container, from the NUMA nodes of *mask* first."""
        self._check_cores(wanted)
        free = self.available | self.reusable
        aligned = free & self._near(mask)
        try:
            taken = self._take(aligned, min(wanted, len(aligned)))
            taken |= self._take(free - taken, wanted - len(taken))
        except NotEnoughCpusError as error:
            raise Refusal.unexpected(str(error)) from None
        self.shared -= taken
        self.held.setdefault(uid, {})[container] = taken
        self.reusable = self.reusable | taken if is_init else self.reusable - taken
        return taken

    @property
    def available(self) -> frozenset[int]:
        return self.shared - self.reserved

    @property
    def free(self) -> dict[int, int]:
        """The number of CPUs of each NUMA node for the pod that is being admitted."""
        counts = self.layout.by_node(self.available | self.reusable)
        return {node: counts[node] for node in self.layout.nodes}

    def _take(self, free: frozenset[int], wanted: int) -> frozenset[int]:
        return take(self.layout, self.options, free, wanted, self.kubelet)

    def _preferred(self, fitting: Family, narrowest: int) -> Family:
        """Return the sets that are preferred: by socket, those of as few sockets as are needed."""
        narrow = fitting.of_size(narrowest)
        per_socket = len(self.layout.nodes) // self.layout.sockets
        if not self.options.align_by_socket or not per_socket:
            return narrow
        needed = -(-narrowest // per_socket)
        members = self.layout.members("socket").values()
        sockets = Counter(mask_of(self.layout.by_node(cpus)) for cpus in members)
        every = mask_of(self.layout.nodes)
        fewer, more = (near_any(sockets, count, every) for count in (needed, needed + 1))
        return narrow | (fitting & fewer) - more

    def _near(self, mask: int | None) -> frozenset[int]:
        """Return the CPUs of the NUMA nodes of *mask*, or of their whole sockets on request."""
        nodes = () if mask is None else nodes_of(mask)
        if not self.options.align_by_socket:
            level, parts = "numa", frozenset(nodes)
        else:
            level, parts = "socket", self.layout.sockets_of(nodes)
        members = self.layout.members(level)
        return frozenset().union(*(members.get(part, ()) for part in parts))

    def _check_cores(self, wanted: int) -> None:
        """Raise Refusal where whole cores are required and not available."""
        if not self.options.full_pcpus_only:
            return
        per_core, places = self.layout.per_core, self.layout.places
        if wanted % per_core:
            problem = f"requested {wanted} cpus not multiple cpus per core = {per_core}"
            raise Refusal(SMT_ALIGNMENT_ERROR, f"SMT Alignment Error: {problem}")
        broken = {places[cpu].core for cpu in self.reserved if cpu in places}
        members = self.layout.members("core")
        free = len(self.shared - frozenset().union(*(members[core] for core in broken)))
        if wanted > free:
            problem = f"not enough free physical CPUs: available physical CPUs = {free}"
            counts = f"requested CPUs = {wanted}, CPUs per core = {per_core}"
            raise Refusal(SMT_ALIGNMENT_ERROR, f"SMT Alignment Error: {problem}, {counts}")


def take(
    layout: CpuLayout,
    options: CpuOptions,
    free: frozenset[int],
    wanted: int,
    kubelet: Release | None,
) -> frozenset[int]:
    """Return *wanted* of the *free* CPUs by the policy's options, as this *kubelet* takes them."""
    if options.distribute_cpus_across_numa:
        group = layout.per_core if options.full_pcpus_only else 1
        # The kubelet's last check of the shares, new in 1.37 too, changes nothing but by socket.
        is_new = kubelet is not None and kubelet >= SOCKETS_SINCE
        by_socket = is_new and options.align_by_socket
        return take_spread(layout, free, wanted, group, by_socket=by_socket)
    return take_packed(
        layout,
        free,
        wanted,
        by_cache=options.prefer_align_cpus_by_uncorecache,
        spread_cores=options.distribute_cpus_across_cores,
    )


def cpu_manager_of(
    snapshot: Snapshot, settings: KubeletSettings, active: ActivePods
) -> CpuManager | None:
    """Return the CPU Manager of *snapshot*; ``None`` under policy ``none``.

    The state file is the kubelet's own record; without it, PodResources says what pods hold.
    """
    state = snapshot.kubelet_state.cpu if snapshot.kubelet_state is not None else None
    stated = state.policy if state is not None else settings.cpu_manager_policy
    policy = choice(stated, "cpuManagerPolicy", (_STATIC, _NONE))
    if policy == _NONE and settings.cpu_manager_options:
        raise Missing("a kubelet that starts: cpuManagerPolicyOptions without policy static")
    if policy == _NONE:
        return None
    options, layout = _options(settings), _layout(snapshot)
    if options.distribute_cpus_across_numa and len(layout.nodes) > _MOST_SPREAD:
        most = f"distribute-cpus-across-numa and more than {_MOST_SPREAD} NUMA nodes with CPUs"
        raise Missing(f"an answer for {most}, which is not worked out")
    if options.prefer_align_cpus_by_uncorecache and not layout.has_cache_ids:
        raise Missing("the numbers of the L3 caches, which some NUMA nodes share with a socket")
    kubelet = release(snapshot.kubelet_version)
    if options.distribute_cpus_across_numa and options.align_by_socket and kubelet is None:
        options_ = "distribute-cpus-across-numa together with align-by-socket"
        raise Missing(f"the kubelet's version, by which {options_} takes other CPUs")
    reserved = _reserved(snapshot, settings, layout, options, kubelet)
    if state is not None and state.default is not None:  # has pods that are gone, too
        shared = state.default.cpus
        entries = (state.entries or {}).items()
        held = {uid: {name: it.cpus for name, it in cpus.items()} for uid, cpus in entries}
    else:
        reported = active.cpus()
        if reported is None:
            raise Missing("the CPUs that pods have, by the kubelet's state file or PodResources")
        held = reported
        taken = [cpus for containers in held.values() for cpus in containers.values()]
        strict = reserved if options.strict_cpu_reservation else frozenset()
        shared = layout.cpus.difference(*taken, strict)
    manager = CpuManager(
        layout=layout,
        options=options,
        shared=shared,
        reserved=reserved,
        held=held,
        kubelet=kubelet,
    )
    for uid in [uid for uid in held if not active.counts(uid)]:
        manager.release(uid)
    return manager


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
    return layout


def _reserved(
    snapshot: Snapshot,
    settings: KubeletSettings,
    layout: CpuLayout,
    options: CpuOptions,
    kubelet: Release | None,
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
    try:
        millicores = sum(
            quantity(reserved.get("cpu", "0"), per_unit=MILLICORES)
            for reserved in (settings.system_reserved, settings.kube_reserved)
        )
    except ValueError as error:
        raise Missing(f"a kubelet that starts: reserved CPU is {error}") from None
    try:
        return take(layout, options, layout.cpus, -(-millicores // MILLICORES), kubelet)
    except NotEnoughCpusError as error:
        raise Missing(f"a kubelet that starts: {error}") from None
