"""Rules on the kubelet's files: keys without effect, and state files that stop its start."""

import re
from collections.abc import Iterator

from nodetopo.checks.inputs import because, missing_gpus, missing_numa_nodes, no_gpus
from nodetopo.checks.rule import Finding, Judgement, Missing, Severity, rule
from nodetopo.components.audit.rules.kubelet.inputs import (
    amount,
    is_on,
    lacking,
    place,
    reserved,
    reserved_cpus,
    starting,
    version,
)
from nodetopo.components.audit.rules.kubelet.remedies import restarted_with
from nodetopo.model.kubelet import KubeletSettings
from nodetopo.model.kubelet_keys import (
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
from nodetopo.model.kubelet_state import CpuState, MemoryState
from nodetopo.model.kubernetes import MIB, MILLICORES, Release, release, size_text
from nodetopo.model.numa import CpuSet
from nodetopo.model.snapshot import Snapshot

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


@rule("KUB-030", Severity.ERROR)
def misspelt_keys(snapshot: Snapshot) -> Judgement:
    """Look for keys of placement that are misspelt or hidden."""
    odd_keys = _odd_keys(snapshot)
    yield from _missing_keys(snapshot)
    for odd in odd_keys or ():
        if (finding := _misspelling(odd)) is not None:
            yield finding


@rule("KUB-031", Severity.WARNING)
def keys_without_effect(snapshot: Snapshot) -> Judgement:
    """Look for all other keys that have no effect; of some only the release can tell."""
    odd_keys, number = _odd_keys(snapshot) or (), release(version(snapshot))
    yield from _missing_keys(snapshot)
    if number is not None and number < OLDEST:
        yield Missing(f"keys of kubelets before {_dotted(OLDEST)}")
    else:
        # The release decides where a key is known to some releases only, or to none.
        names = {odd: _name(odd) for odd in odd_keys if not odd.is_repeated and _slip(odd) is None}
        dated = [odd for odd, name in names.items() if name is None or name in SINCE]
        if number is None and dated:
            yield Missing("version of the kubelet")
        elif number is not None and number > NEWEST:
            for odd in dated:
                if names[odd] is None:
                    yield Missing(f"{odd.path}, unknown here")
    for odd in odd_keys:
        if _misspelling(odd) is None and (finding := _without_effect(odd, number)) is not None:
            yield finding


def _odd_keys(snapshot: Snapshot) -> tuple[OddKey, ...] | None:
    """Return the odd keys; ``None`` where they are not known, or more than any capture has."""
    settings = starting(snapshot)
    odd = settings.odd_keys if settings else None
    return odd if odd is not None and len(odd) <= MAX_ODD_KEYS else None


def _missing_keys(snapshot: Snapshot) -> Iterator[Missing]:
    if _odd_keys(snapshot) is None:
        yield Missing("keys of the kubelet's files", because(snapshot, "kubelet"))


def _misspelling(odd: OddKey) -> Finding | None:
    """Return the finding of a key meant for placement that has no effect."""
    if odd.is_repeated:
        return None
    name, meant = _name(odd), _slip(odd)
    if name in PLACEMENT and odd.is_overridden:
        observed = f"another case of letters, and hidden by {name}, stated or by default"
        return _finding(odd, observed, name)
    if meant is None or meant.split(".", maxsplit=1)[0] not in PLACEMENT:
        return None
    return _finding(odd, _UNKNOWN, meant)


def _without_effect(odd: OddKey, number: Release | None) -> Finding | None:
    """Return the finding of a key without effect, or with another effect than it seems."""
    if odd.is_repeated:
        return _finding(odd, "stated twice, of which the last counts", "stated once")
    name, meant = _name(odd), _slip(odd)
    if name is not None and name != odd.key:
        observed = f"another case of letters, which in drop-ins hides {name} or is hidden by it"
        return _finding(odd, observed, name)
    since = None if name is None else SINCE.get(name)
    if since is not None:
        if number is None or number >= since:
            return None
        observed = f"unknown to Kubernetes {_dotted(number)}, without effect"
        return _finding(odd, observed, f"Kubernetes {_dotted(since)} or newer")
    if meant is not None:
        return _finding(odd, _UNKNOWN, meant)
    if number is None or not OLDEST <= number <= NEWEST:
        return None
    bare = _bare(odd.key)
    elsewhere = [path for path, name in _paths(KEYS) if _bare(name) == bare]
    guess = elsewhere[0] if len(elsewhere) == 1 else closest(odd.key, _siblings(odd))
    expected = f"perhaps {guess}" if guess else "a key of KubeletConfiguration v1beta1"
    return _finding(odd, _UNKNOWN, expected)


def _finding(odd: OddKey, observed: str, expected: str) -> Finding:
    return Finding(subject=f"{odd.path} in {odd.file}", observed=observed, expected=expected)


def _siblings(odd: OddKey) -> Keys:
    """Return the known keys of the object that has *odd*."""
    keys = KEYS
    for name in filter(None, _INDEX.sub("", odd.within).split(".")):
        keys = keys.get(name, {})
    return keys


def _name(odd: OddKey) -> str | None:
    """Return the key that the kubelet takes *odd* for; ``None`` where it knows none."""
    return spelled(odd.key, _siblings(odd), any_case=odd.is_drop_in)


def _slip(odd: OddKey) -> str | None:
    """Return the path of the key of which *odd* is surely a slip, in whatever release."""
    if _name(odd) is not None:
        return None
    known, bare = _siblings(odd), _bare(odd.key)
    meant = next((name for name in known if _bare(name) == bare), None)
    if meant is None and not odd.within:
        meant = _FLAGS.get(bare)
    meant = meant or closest(odd.key, known, NEAR)
    if meant is None:
        return next((name for name in PLACEMENT if _bare(name) == bare), None)
    return f"{_INDEX.sub('', odd.within)}.{meant}" if odd.within else meant


def _bare(key: str) -> str:
    return key.replace("-", "").replace("_", "").lower()


def _paths(known: Keys, lead: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path and name of each key in *known* and below."""
    for name, inner in known.items():
        yield f"{lead}{name}", name
        yield from _paths(inner, f"{lead}{name}.")


def _dotted(number: Release) -> str:
    return f"{number[0]}.{number[1]}"


@rule("KUB-022", Severity.ERROR, unless=no_gpus, cure=restarted_with(drained=True))
def cpu_manager_state(snapshot: Snapshot) -> Judgement:
    """Compare cpu_manager_state with the settings and the CPUs, as the kubelet does."""
    settings = starting(snapshot)
    state = snapshot.kubelet_state.cpu if snapshot.kubelet_state else None
    policy = settings.cpu_manager_policy if settings else None
    yield from missing_gpus(snapshot)
    yield from lacking(snapshot, settings, "cpuManagerPolicy")
    if state is None:
        yield Missing("cpu_manager_state", because(snapshot, "kubelet"))
    elif policy == "static":
        rest = ("cpuManagerPolicyOptions", "featureGates", "systemReserved", "kubeReserved")
        yield from lacking(snapshot, settings, *rest)
        if snapshot.cpu is None:
            yield Missing("online CPUs")
    if settings is None or state is None or policy is None:
        return
    subject = _path(settings, "cpu_manager_state")
    if state.policy != policy:
        field = place(settings, "cpuManagerPolicy")
        expected = f"policy {policy} ({field})"
        yield Finding(subject=subject, observed=f"policy {state.policy}", expected=expected)
    elif policy == "static" and state.default:
        for observed, expected in _wrong_cpus(snapshot, settings, state, state.default):
            yield Finding(subject=subject, observed=observed, expected=expected)


def _path(settings: KubeletSettings, name: str) -> str:
    """Return the path of a state file; its directory is ``--root-dir``."""
    return f"{(settings.root_directory or '/var/lib/kubelet').rstrip('/')}/{name}"


def _wrong_cpus(
    snapshot: Snapshot, settings: KubeletSettings, state: CpuState, default: CpuSet
) -> Iterator[tuple[str, str]]:
    """Yield the observed and expected CPU sets that differ in the state file."""
    options, reservation = settings.cpu_manager_options, reserved_cpus(settings)
    is_strict = is_on(options, "strict-cpu-reservation")
    if reservation is not None and options is not None:
        if is_strict and default & reservation:
            shared = default & reservation
            yield f"reserved CPUs {shared} are shared", "none of them in defaultCpuSet"
        elif not is_strict and not reservation <= default:
            absent = CpuSet(reservation.cpus - default.cpus)
            yield f"reserved CPUs {absent} are not in defaultCpuSet", "all of them in it"
    listed_cpus = set(default.cpus)
    for uid, containers in (state.entries or {}).items():
        for container, cpus in containers.items():
            listed_cpus |= cpus.cpus
            if both := default & cpus:
                yield f"CPUs {both} of pod {uid} container {container} are shared", "no shared CPU"

    if snapshot.cpu is None or options is None:
        return
    online = snapshot.cpu.online.cpus
    expected = f"the online CPUs {snapshot.cpu.online}"
    if gone := listed_cpus - online:
        yield f"CPUs {CpuSet(frozenset(gone))}, which are not online", expected
        return
    # How many online CPUs may be in no set: with the strict option as many as are reserved. What
    # pods hold as a whole (podEntries) is not read.
    gates = settings.feature_gates
    if gates is None or gates.get("PodLevelResourceManagers", False):
        return
    spare: int | None = 0
    if is_strict and reservation is not None:
        spare = len(reservation)
    elif is_strict:
        millicores = reserved(settings, "cpu", per_unit=MILLICORES)
        spare = None if millicores is None else -(-millicores // MILLICORES)
    if spare is not None and len(new := online - listed_cpus) > spare:
        observed = f"CPUs {CpuSet(frozenset(new))} are in no set"
        yield observed, f"{expected}{', without the reserved ones' if spare else ''}"


@rule("KUB-023", Severity.ERROR, unless=no_gpus, cure=restarted_with(drained=True))
def memory_manager_state(snapshot: Snapshot) -> Judgement:
    """Compare memory_manager_state with the settings and the NUMA nodes, as the kubelet does."""
    settings = starting(snapshot)
    state = snapshot.kubelet_state.memory if snapshot.kubelet_state else None
    policy = settings.memory_manager_policy if settings else None
    yield from missing_gpus(snapshot)
    yield from lacking(snapshot, settings, "memoryManagerPolicy")
    if state is None:
        yield Missing("memory_manager_state", because(snapshot, "kubelet"))
    elif policy == "Static":
        yield from lacking(snapshot, settings, "reservedMemory")
        yield from missing_numa_nodes(snapshot)
        unread = [node.id for node in snapshot.numa_nodes or () if node.memory_mib is None]
        if unread:
            yield Missing(f"memory of NUMA node {', '.join(map(str, unread))}")
    if settings is None or state is None or policy is None:
        return
    subject = _path(settings, "memory_manager_state")
    if state.policy != policy:
        field = place(settings, "memoryManagerPolicy")
        expected = f"policy {policy} ({field})"
        yield Finding(subject=subject, observed=f"policy {state.policy}", expected=expected)
    elif policy == "Static" and state.blocks:
        for observed, expected in _wrong_memory(snapshot, settings, state):
            yield Finding(subject=subject, observed=observed, expected=expected)


def _wrong_memory(
    snapshot: Snapshot, settings: KubeletSettings, state: MemoryState
) -> Iterator[tuple[str, str]]:
    """Yield the observed and expected memory that differs in the state file."""
    nodes = {node.id: node for node in snapshot.numa_nodes or ()}
    node_ids = {block.numa_node for block in state.blocks}
    if snapshot.numa_nodes is not None and node_ids != set(nodes):
        stated, present = (", ".join(map(str, sorted(ids))) for ids in (node_ids, nodes))
        yield f"NUMA nodes {stated}", f"the NUMA nodes {present}"

    for block in state.blocks:
        node, size = nodes.get(block.numa_node), None
        if node is not None and block.kind == "memory":
            size = None if node.memory_mib is None else node.memory_mib << 20
        elif node is not None:
            page = amount(block.kind.removeprefix("hugepages-"))
            pages = (pool for pool in node.hugepages if pool.size_kib << 10 == page)
            size = next((pool.total * (pool.size_kib << 10) for pool in pages), None)
        if size is not None and block.total // MIB != size // MIB:
            observed = f"NUMA node {block.numa_node}: {block.total // MIB}Mi of {block.kind}"
            yield observed, f"{size // MIB}Mi, which are there"

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
            reserved = size_text(block.system_reserved, is_exact=True)
            observed = f"NUMA node {block.numa_node}: {reserved} of {block.kind}"
            field = place(settings, "reservedMemory")
            yield f"{observed} reserved", f"{size_text(kept, is_exact=True)} ({field})"
