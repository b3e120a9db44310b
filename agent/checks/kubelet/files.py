"""Rules on the kubelet's state files: whether it starts with what they say."""

import re
from collections.abc import Iterable, Iterator

from agent.checks.inputs import Inputs, because, missing_gpus, missing_numa_nodes, no_gpus
from agent.checks.kubelet.cpu_manager import reserved_cpus
from agent.checks.kubelet.inputs import amount, is_on, lacking, place, reserved, starting, version
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.kubelet import KubeletSettings
from agent.model.kubelet_keys import (
    KEYS,
    MAX_ODD_KEYS,
    NEWEST,
    OLDEST,
    SINCE,
    Keys,
    OddKey,
    closest,
    spelled,
)
from agent.model.kubelet_state import CpuState, MemoryState
from agent.model.kubernetes import MILLICORES, Release, release
from agent.model.numa import CpuSet, NumaNode
from agent.model.snapshot import Snapshot

# Rules on the keys of the kubelet's files: whether what they state takes effect.

PLACEMENT = frozenset(
    """
    cpuManagerPolicy cpuManagerPolicyOptions memoryManagerPolicy topologyManagerPolicy
    topologyManagerScope topologyManagerPolicyOptions reservedSystemCPUs reservedMemory
    systemReserved kubeReserved evictionHard featureGates
    """.split()  # noqa: SIM905 - as prose
)
"""Keys that decide which CPUs, memory and devices a pod gets, with all that is inside them."""


NEAR = 0.9
"""How alike two names are of which one is a slip of the other: one letter of a dozen. No key is as
near to one of placement, so that a newer release has hardly one either."""


_FLAGS = {"reservedcpus": "reservedSystemCPUs", "podmaxpids": "podPidsLimit"}
"""Flags whose key has another name (cmd/kubelet/app/options/options.go), without dashes."""


_UNKNOWN = "unknown to the kubelet, without effect"


_INDEX = re.compile(r"\[[0-9]+\]")


_TASK = "https://kubernetes.io/docs/tasks/administer-cluster/kubelet-config-file/"


_REMEDY = (
    "write the key as the kubelet has it, or take it out (`journalctl -u kubelet | grep strict` "
    "names those of the file of --config), then restart the kubelet; where that changes the policy "
    "of a manager: drain the node, stop the kubelet, delete the manager's state file, start the "
    "kubelet"
)


def _kept(snapshot: Snapshot) -> tuple[OddKey, ...] | None:
    """Return the odd keys; ``None`` where they are not known, or more than any capture has."""
    settings = starting(snapshot)
    odd = settings.odd_keys if settings else None
    return odd if odd is not None and len(odd) <= MAX_ODD_KEYS else None


def _keys(snapshot: Snapshot) -> tuple[OddKey, ...]:
    return _kept(snapshot) or ()


def _missing(snapshot: Snapshot) -> Inputs:
    if _kept(snapshot) is not None:
        return ()
    return (f"keys of the kubelet's files{because(snapshot, 'kubelet')}",)


def _release(snapshot: Snapshot) -> Release | None:
    return release(version(snapshot))


def _needs_release(snapshot: Snapshot) -> Inputs:
    """Need a known release where a key's meaning depends on it."""
    found, absent = _release(snapshot), _missing(snapshot)
    if found is not None and found < OLDEST:
        return (*absent, f"keys of kubelets before {_words(OLDEST)}")
    dated = [odd for odd in _keys(snapshot) if _is_dated(odd)]
    if found is None:
        return (*absent, *(("version of the kubelet",) if dated else ()))
    if found <= NEWEST:
        return absent
    return (*absent, *(f"{odd.path}, unknown here" for odd in dated if _name(odd) is None))


def _is_dated(odd: OddKey) -> bool:
    """Return whether the release decides what the kubelet makes of a key."""
    if odd.is_repeated or _slip(odd) is not None:
        return False
    name = _name(odd)
    return name is None or name in SINCE


def _object(odd: OddKey) -> Keys:
    """Return the keys of the object that has *odd*."""
    known = KEYS
    for name in filter(None, _INDEX.sub("", odd.within).split(".")):
        known = known.get(name, {})
    return known


def _name(odd: OddKey) -> str | None:
    """Return the key that the kubelet takes *odd* for; ``None`` where it knows none."""
    return spelled(odd.key, _object(odd), any_case=odd.is_drop_in)


def _bare(key: str) -> str:
    return key.replace("-", "").replace("_", "").lower()


def _slip(odd: OddKey) -> str | None:
    """Return the way down to the key of which *odd* is surely a slip, in whatever release."""
    if _name(odd) is not None:
        return None
    beside, bare = _object(odd), _bare(odd.key)
    found = next((name for name in beside if _bare(name) == bare), None)
    if found is None and not odd.within:
        found = _FLAGS.get(bare)
    found = found or closest(odd.key, beside, NEAR)
    if found is None:
        return next((name for name in PLACEMENT if _bare(name) == bare), None)
    return f"{_INDEX.sub('', odd.within)}.{found}" if odd.within else found


def _guess(odd: OddKey) -> str | None:
    """Return the way down to a key that may be meant."""
    bare = _bare(odd.key)
    elsewhere = [path for path, name in _paths(KEYS) if _bare(name) == bare]
    return elsewhere[0] if len(elsewhere) == 1 else closest(odd.key, _object(odd))


def _paths(known: Keys, lead: str = "") -> Iterator[tuple[str, str]]:
    for name, inner in known.items():
        yield f"{lead}{name}", name
        yield from _paths(inner, f"{lead}{name}.")


def _misspelt(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(found for odd in _keys(snapshot) if (found := _misspelling(odd)) is not None)


def _misspelling(odd: OddKey) -> Finding | None:
    """Find a key that was to be one of placement, and has no effect."""
    if odd.is_repeated:
        return None
    name, meant = _name(odd), _slip(odd)
    if name in PLACEMENT and odd.is_overridden:
        observed = f"another case of letters, and hidden by {name}, stated or by default"
        return _finding(odd, observed, name)
    if meant is None or meant.split(".", maxsplit=1)[0] not in PLACEMENT:
        return None
    return _finding(odd, _UNKNOWN, meant)


def _passed_over(snapshot: Snapshot) -> tuple[Finding, ...]:
    found = _release(snapshot)
    judged = (_other(odd, found) for odd in _keys(snapshot) if _misspelling(odd) is None)
    return tuple(finding for finding in judged if finding is not None)


def _other(odd: OddKey, found: Release | None) -> Finding | None:
    """Find a key that has no effect, or another one than it seems."""
    if odd.is_repeated:
        return _finding(odd, "stated twice, of which the last counts", "stated once")
    name, meant = _name(odd), _slip(odd)
    if name is not None and name != odd.key:
        observed = f"another case of letters, which in drop-ins hides {name} or is hidden by it"
        return _finding(odd, observed, name)
    since = None if name is None else SINCE.get(name)
    if since is not None:
        if found is None or found >= since:
            return None
        observed = f"unknown to Kubernetes {_words(found)}, without effect"
        return _finding(odd, observed, f"Kubernetes {_words(since)} or newer")
    if meant is None and (found is None or not OLDEST <= found <= NEWEST):
        return None
    guess = _guess(odd)
    expected = f"perhaps {guess}" if guess else "a key of KubeletConfiguration v1beta1"
    return _finding(odd, _UNKNOWN, meant or expected)


def _finding(odd: OddKey, observed: str, expected: str) -> Finding:
    return Finding(subject=f"{odd.path} in {odd.file}", observed=observed, expected=expected)


def _words(found: Release) -> str:
    return f"{found[0]}.{found[1]}"


KEYS_RULES: tuple[Rule, ...] = (
    Rule(
        code="KUB-030",
        claim="no key of the kubelet's files misspells one that decides placement",
        why="The kubelet starts with a key that it does not know, and goes by the default of the "
        "one that was meant: of the file of --config its log has one line, of drop-ins none.",
        area=Area.KUBELET,
        suite=Suite.AUDIT,
        severity=Severity.ERROR,
        needs=_missing,
        check=_misspelt,
        remedy=_REMEDY,
        reference=_TASK,
    ),
    Rule(
        code="KUB-031",
        claim="every key of the kubelet's files takes effect",
        why="The kubelet passes over a key that its release does not know, all but the last of a "
        "key that is stated twice, and in drop-ins what is hidden by the same key in another case.",
        area=Area.KUBELET,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=_needs_release,
        check=_passed_over,
        remedy=_REMEDY,
        reference=_TASK,
    ),
)


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
