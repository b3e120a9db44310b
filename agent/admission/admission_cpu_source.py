"""The CPU Manager of a node, put together from its snapshot."""

from collections.abc import Mapping

from agent.admission.admission_cpu_take import NotEnoughCpusError
from agent.admission.admission_options import flag, word
from agent.admission.cpu_assignment import CpuLayout, cpu_layout
from agent.admission.cpu_manager import CpuOptions, Cpus, take_by_options
from agent.admission.errors import Missing, check_nodes
from agent.admission.state import Held, Holders, held_cpus
from agent.model.kubelet import KubeletSettings
from agent.model.kubelet_state import CpuState
from agent.model.numa import CpuSet
from agent.model.quantity import MILLICORES, quantity
from agent.model.snapshot import Snapshot

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
