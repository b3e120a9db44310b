"""Rules on the kubelet's state files: whether it starts with what they say."""

from collections.abc import Iterable, Iterator

from agent.checks.inputs import Inputs, because, missing_gpus, missing_numa_nodes, no_gpus
from agent.checks.kubelet.cpu_manager import reserved_cpus
from agent.checks.kubelet.inputs import amount, is_on, lacking, place, reserved, starting
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.kubelet import KubeletSettings
from agent.model.kubelet_state import CpuState, MemoryState
from agent.model.numa import CpuSet, NumaNode
from agent.model.quantity import MILLICORES
from agent.model.snapshot import Snapshot

_ROOT = "/var/lib/kubelet"
"""The default of ``--root-dir``, where the state files lie."""

_CPU_POLICY = "cpuManagerPolicy"
_MEMORY_POLICY = "memoryManagerPolicy"
_MEMORY = "memory"
_POD_MANAGERS = "PodLevelResourceManagers"
_STRICT = "strict-cpu-reservation"
_SOURCE = "https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/kubelet/cm"


def _file(settings: KubeletSettings, name: str) -> str:
    return f"{(settings.root_directory or _ROOT).rstrip('/')}/{name}"


def _missing_state(snapshot: Snapshot, name: str) -> str:
    return f"{name}{because(snapshot, 'kubelet')}"


def _cpu_state(snapshot: Snapshot) -> CpuState | None:
    return snapshot.kubelet_state.cpu if snapshot.kubelet_state else None


def _needs_cpu(snapshot: Snapshot) -> Inputs:
    settings, state = starting(snapshot), _cpu_state(snapshot)
    absent = missing_gpus(snapshot) + lacking(snapshot, settings, _CPU_POLICY)
    if state is None:
        return (*absent, _missing_state(snapshot, "cpu_manager_state"))
    if settings is None or settings.cpu_manager_policy != "static":
        return absent
    rest = ("cpuManagerPolicyOptions", "featureGates", "systemReserved", "kubeReserved")
    online = () if snapshot.cpu else ("online CPUs",)
    return absent + lacking(snapshot, settings, *rest) + online


def _bad_cpu_state(snapshot: Snapshot) -> tuple[Finding, ...]:
    settings, state = starting(snapshot), _cpu_state(snapshot)
    if settings is None or state is None or no_gpus(snapshot) is not None:
        return ()
    subject = _file(settings, "cpu_manager_state")
    if settings.cpu_manager_policy is None:
        return ()
    if state.policy != settings.cpu_manager_policy:
        return (_other_policy(subject, state.policy, settings, _CPU_POLICY),)
    if state.policy != "static" or not state.default:
        return ()
    return tuple(
        Finding(subject=subject, observed=observed, expected=expected)
        for observed, expected in (
            *_misplaced(state.default, settings),
            *_overlapping(state, state.default),
            *_other_cpus(snapshot, settings, state, state.default),
        )
    )


def _other_policy(subject: str, policy: str, settings: KubeletSettings, field: str) -> Finding:
    return Finding(
        subject=subject,
        observed=f"policy {policy}",
        expected=f"policy {_policy(settings, field)} ({place(settings, field)})",
    )


def _policy(settings: KubeletSettings, field: str) -> str | None:
    is_cpu = field == _CPU_POLICY
    return settings.cpu_manager_policy if is_cpu else settings.memory_manager_policy


def _misplaced(default: CpuSet, settings: KubeletSettings) -> Iterator[tuple[str, str]]:
    cpus = reserved_cpus(settings)
    if cpus is None or settings.cpu_manager_options is None:
        return
    if is_on(settings.cpu_manager_options, _STRICT):
        if default & cpus:
            yield f"reserved CPUs {default & cpus} are shared", "none of them in defaultCpuSet"
    elif not cpus <= default:
        absent = CpuSet(cpus.cpus - default.cpus)
        yield f"reserved CPUs {absent} are not in defaultCpuSet", "all of them in it"


def _held(state: CpuState) -> Iterable[tuple[str, str, CpuSet]]:
    for uid, containers in (state.entries or {}).items():
        for container, cpus in containers.items():
            yield uid, container, cpus


def _overlapping(state: CpuState, default: CpuSet) -> Iterator[tuple[str, str]]:
    for uid, container, cpus in _held(state):
        if both := default & cpus:
            yield f"CPUs {both} of pod {uid} container {container} are shared", "no shared CPU"


def _other_cpus(
    snapshot: Snapshot, settings: KubeletSettings, state: CpuState, default: CpuSet
) -> Iterator[tuple[str, str]]:
    if snapshot.cpu is None or settings.cpu_manager_options is None:
        return
    known = frozenset(default.cpus.union(*(cpus.cpus for _, _, cpus in _held(state))))
    online = snapshot.cpu.online.cpus
    expected = f"the online CPUs {snapshot.cpu.online}"
    if gone := known - online:
        yield f"CPUs {CpuSet(gone)}, which are not online", expected
    elif len(new := online - known) > (spare := _spare(settings)) >= 0:
        observed = f"CPUs {CpuSet(new)} are in no set"
        yield observed, f"{expected}{', without the reserved ones' if spare else ''}"


def _spare(settings: KubeletSettings) -> int:
    """Return how many online CPUs may be in no set of the file; −1 if that is not known."""
    # What pods hold as a whole (its podEntries) is not read.
    if settings.feature_gates is None or settings.feature_gates.get(_POD_MANAGERS, False):
        return -1
    if not is_on(settings.cpu_manager_options, _STRICT):
        return 0
    cpus = reserved_cpus(settings)
    if cpus is not None:
        return len(cpus)
    millicores = reserved(settings, "cpu", per_unit=MILLICORES)
    return -1 if millicores is None else -(-millicores // MILLICORES)


def _memory_state(snapshot: Snapshot) -> MemoryState | None:
    return snapshot.kubelet_state.memory if snapshot.kubelet_state else None


def _needs_memory(snapshot: Snapshot) -> Inputs:
    settings, state = starting(snapshot), _memory_state(snapshot)
    absent = missing_gpus(snapshot) + lacking(snapshot, settings, _MEMORY_POLICY)
    if state is None:
        return (*absent, _missing_state(snapshot, "memory_manager_state"))
    if settings is None or settings.memory_manager_policy != "Static":
        return absent
    unread = [node.id for node in snapshot.numa_nodes or () if node.memory_mib is None]
    sizes = (f"memory of NUMA node {', '.join(map(str, unread))}",) if unread else ()
    nodes = missing_numa_nodes(snapshot)
    return absent + lacking(snapshot, settings, "reservedMemory") + nodes + sizes


def _bad_memory_state(snapshot: Snapshot) -> tuple[Finding, ...]:
    settings, state = starting(snapshot), _memory_state(snapshot)
    if settings is None or state is None or no_gpus(snapshot) is not None:
        return ()
    subject = _file(settings, "memory_manager_state")
    if settings.memory_manager_policy is None:
        return ()
    if state.policy != settings.memory_manager_policy:
        return (_other_policy(subject, state.policy, settings, _MEMORY_POLICY),)
    if state.policy != "Static" or not state.blocks:
        return ()
    return tuple(
        Finding(subject=subject, observed=observed, expected=expected)
        for observed, expected in (
            *_other_nodes(snapshot, state),
            *_other_sizes(snapshot, state),
            *_other_reserved(settings, state),
        )
    )


def _other_nodes(snapshot: Snapshot, state: MemoryState) -> Iterator[tuple[str, str]]:
    known = {block.numa_node for block in state.blocks}
    present = {node.id for node in snapshot.numa_nodes or ()}
    if snapshot.numa_nodes is not None and known != present:
        yield f"NUMA nodes {_list(known)}", f"the NUMA nodes {_list(present)}"


def _list(nodes: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(nodes)))


def _other_sizes(snapshot: Snapshot, state: MemoryState) -> Iterator[tuple[str, str]]:
    nodes = {node.id: node for node in snapshot.numa_nodes or ()}
    for block in state.blocks:
        node = nodes.get(block.numa_node)
        size = None if node is None else _present(node, block.kind)
        if size is not None and block.total >> 20 != size >> 20:
            observed = f"NUMA node {block.numa_node}: {block.total >> 20} MiB of {block.kind}"
            yield observed, f"{size >> 20} MiB, which are there"


def _present(node: NumaNode, kind: str) -> int | None:
    """Return the bytes of *kind* on *node*, whole MiB for memory; ``None`` if not known."""
    if kind == _MEMORY:
        return None if node.memory_mib is None else node.memory_mib << 20
    for pages in node.hugepages:
        size = pages.size_kib << 10
        if amount(kind.removeprefix("hugepages-")) == size:
            return pages.total * size
    return None


def _other_reserved(settings: KubeletSettings, state: MemoryState) -> Iterator[tuple[str, str]]:
    if settings.reserved_memory is None:
        return
    limits = {
        (entry.numa_node, kind): amount(text)
        for entry in settings.reserved_memory
        for kind, text in entry.limits.items()
    }
    for block in state.blocks:
        kept = limits.get((block.numa_node, block.kind), 0)
        if kept is not None and block.system_reserved != kept:
            observed = f"NUMA node {block.numa_node}: {block.system_reserved} bytes of {block.kind}"
            yield (
                f"{observed} reserved",
                f"{kept} bytes ({place(settings, 'reservedMemory')})",
            )


RULES: tuple[Rule, ...] = (
    Rule(
        code="KUB-022",
        claim="the CPU Manager's state file fits the settings and the machine",
        why="The kubelet does not start when the file has another policy, other CPUs than are "
        "online, or reserved CPUs in the wrong set.",
        area=Area.KUBELET,
        suite=Suite.AUDIT,
        severity=Severity.ERROR,
        needs=_needs_cpu,
        check=_bad_cpu_state,
        skips=no_gpus,
        remedy="drain the node, stop the kubelet, delete cpu_manager_state, start the kubelet",
        reference=f"{_SOURCE}/cpumanager/policy_static.go",
    ),
    Rule(
        code="KUB-023",
        claim="the Memory Manager's state file fits the settings and the machine",
        why="The kubelet does not start when the file has another policy, other NUMA nodes, "
        "other sizes or another reservation.",
        area=Area.KUBELET,
        suite=Suite.AUDIT,
        severity=Severity.ERROR,
        needs=_needs_memory,
        check=_bad_memory_state,
        skips=no_gpus,
        remedy="drain the node, stop the kubelet, delete memory_manager_state, start the kubelet",
        reference=f"{_SOURCE}/memorymanager/policy_static.go",
    ),
)
