"""Rules on the memory that the kubelet keeps for the system."""

import re
import struct
from collections import Counter
from collections.abc import Iterator

from agent.checks.inputs import Inputs, no_gpus
from agent.checks.kubelet.inputs import (
    amount,
    missing_settings,
    missing_settings_and_nodes,
    place,
    reserved,
    running,
    starting,
    unless,
    unreadable,
)
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.kubelet import KubeletSettings
from agent.model.snapshot import Snapshot

_FIELD = "reservedMemory"
_POLICY = "memoryManagerPolicy"
_STATIC = "Static"
_MEMORY = "memory"
_HUGE_PAGES = "hugepages-"
_SIGNAL = "memory.available"
_PARTS = 1000
"""Amounts are compared in thousandths of a byte: 0.1Gi is no whole number of bytes."""
_IGNORED = ("0%", "100%")
"""Thresholds that the kubelet takes for none (pkg/kubelet/eviction/helpers.go)."""
_SHARE = re.compile(r"[0-9]{1,9}([.][0-9]{0,20})?%")
_UNITS = ((1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki"))
_DOCS = "https://kubernetes.io/docs/tasks/administer-cluster"

_not_static = unless(starting, _POLICY, _STATIC)


def _static(snapshot: Snapshot) -> KubeletSettings | None:
    settings = starting(snapshot)
    if settings is None or settings.memory_manager_policy != _STATIC:
        return None
    is_known = settings.reserved_memory is not None
    return settings if is_known and no_gpus(snapshot) is None else None


def _threshold(settings: KubeletSettings, capacity: int | None) -> int | None:
    """Return what hard eviction keeps, in :data:`_PARTS` of a byte; ``None`` if not known."""
    if settings.eviction_hard is None:
        return None
    text = settings.eviction_hard.get(_SIGNAL, "0%")
    if text in _IGNORED:
        return 0
    if not text.endswith("%"):
        return amount(text, per_unit=_PARTS)
    return None if capacity is None else _percent(text, capacity)


def _percent(text: str, capacity: int) -> int | None:
    if _SHARE.fullmatch(text) is None:
        return None
    # As the kubelet computes it: the share in 32 bits, the product in 64, cut to whole bytes.
    share = _single(_single(float(text.removesuffix("%"))) / 100)
    return int(capacity * share) * _PARTS if share <= 1 else None


def _single(number: float) -> float:
    return float(struct.unpack("f", struct.pack("f", number))[0])


def _capacity(snapshot: Snapshot) -> int | None:
    capacity = snapshot.node_status.capacity if snapshot.node_status else None
    return None if capacity is None else capacity.get(_MEMORY)


_needs_amounts = missing_settings_and_nodes(
    starting, _POLICY, _FIELD, "systemReserved", "kubeReserved", "evictionHard"
)


def _needs_sum(snapshot: Snapshot) -> Inputs:
    absent, settings = _needs_amounts(snapshot), starting(snapshot)
    text = (settings.eviction_hard or {}).get(_SIGNAL, "") if settings else ""
    is_share = text.endswith("%") and text not in _IGNORED
    if is_share and _capacity(snapshot) is None:
        return (*absent, "memory capacity of the Node object")
    return absent


def _bad_sum(snapshot: Snapshot) -> tuple[Finding, ...]:
    settings = _static(snapshot)
    if settings is None:
        return ()
    return (
        *unreadable(settings, _MEMORY),
        *_bad_threshold(settings),
        *_bad_entries(snapshot, settings),
        *_unequal(snapshot, settings),
    )


def _bad_threshold(settings: KubeletSettings) -> Iterator[Finding]:
    text = (settings.eviction_hard or {}).get(_SIGNAL)
    if text is None or text in _IGNORED:
        return
    found = _threshold(settings, 1 << 40)
    if found is None or found < 0 or (found == 0 and not text.endswith("%")):
        observed = f"{_SIGNAL}: {text}"
        expected = "a quantity above zero, or a percentage up to 100%"
        yield Finding(subject=place(settings, "evictionHard"), observed=observed, expected=expected)


def _bad_entries(snapshot: Snapshot, settings: KubeletSettings) -> Iterator[Finding]:
    subject = place(settings, _FIELD)
    entries = settings.reserved_memory or ()
    known = {node.id for node in snapshot.numa_nodes or ()}
    if snapshot.numa_nodes is not None:
        for node in sorted({entry.numa_node for entry in entries} - known):
            expected = "NUMA nodes that exist"
            yield Finding(subject=subject, observed=f"numaNode {node}", expected=expected)
    for entry in entries:
        for kind, text in entry.limits.items():
            if (amount(text) or 0) <= 0:
                observed = f"numaNode {entry.numa_node}: {kind}: {text}"
                yield Finding(subject=subject, observed=observed, expected="an amount above zero")
    pairs = Counter((entry.numa_node, kind) for entry in entries for kind in entry.limits)
    for (node, kind), times in pairs.items():
        if times > 1:
            observed = f"numaNode {node}: {kind} stated {times} times"
            yield Finding(subject=subject, observed=observed, expected="each once")


def _unequal(snapshot: Snapshot, settings: KubeletSettings) -> Iterator[Finding]:
    held = reserved(settings, _MEMORY, per_unit=_PARTS)
    threshold = _threshold(settings, _capacity(snapshot))
    total = _total(settings)
    if held is None or threshold is None or total is None or threshold < 0:
        return
    if total != held + threshold or total == 0:
        expected = (
            f"{_size(held + threshold)}: systemReserved and kubeReserved have {_size(held)}, "
            f"evictionHard {_SIGNAL} {_size(threshold)}"
        )
        observed = f"{_size(total)} of memory on all NUMA nodes"
        yield Finding(subject=place(settings, _FIELD), observed=observed, expected=expected)


def _total(settings: KubeletSettings) -> int | None:
    texts = [entry.limits.get(_MEMORY, "0") for entry in settings.reserved_memory or ()]
    amounts = [amount(text, per_unit=_PARTS) for text in texts]
    known = [one for one in amounts if one is not None]
    return sum(known) if len(known) == len(amounts) else None


def _size(parts: int) -> str:
    size, rest = divmod(parts, _PARTS)
    unit = next(((unit, name) for unit, name in _UNITS if size and size % unit == 0), None)
    if rest or unit is None:
        return f"{parts / _PARTS:.15g} bytes"
    return f"{size // unit[0]}{unit[1]}"


def _huge_pages(snapshot: Snapshot) -> tuple[Finding, ...]:
    settings = _static(snapshot)
    if settings is None:
        return ()
    return tuple(
        Finding(
            subject=place(settings, _FIELD),
            observed=f"numaNode {entry.numa_node}: {kind}: {text}",
            expected="memory only",
        )
        for entry in settings.reserved_memory or ()
        for kind, text in entry.limits.items()
        if kind.startswith(_HUGE_PAGES)
    )


def _nothing_kept(snapshot: Snapshot) -> tuple[Finding, ...]:
    settings = running(snapshot)
    if settings is None or no_gpus(snapshot) is not None:
        return ()
    if reserved(settings, _MEMORY) != 0:
        return tuple(unreadable(settings, _MEMORY))
    subject = f"{place(settings, 'systemReserved')} and {place(settings, 'kubeReserved')}"
    expected = "memory in one of them"
    return (Finding(subject=subject, observed="no memory reserved", expected=expected),)


RULES: tuple[Rule, ...] = (
    Rule(
        code="KUB-016",
        claim="reservedMemory adds up to what the node keeps back",
        why="With policy Static the kubelet does not start unless reservedMemory of all NUMA nodes "
        "is exactly systemReserved + kubeReserved + evictionHard.",
        area=Area.KUBELET,
        suite=Suite.AUDIT,
        severity=Severity.ERROR,
        needs=_needs_sum,
        check=_bad_sum,
        skips=_not_static,
        remedy="make the memory in reservedMemory, of all NUMA nodes together, the expected "
        "amount; drain the node, stop the kubelet, delete memory_manager_state, start the kubelet",
        reference=f"{_DOCS}/memory-manager/#reserved-memory-flag",
    ),
    Rule(
        code="KUB-017",
        claim="reservedMemory names no huge pages",
        why="The kubelet compares them with systemReserved and kubeReserved, which may name none, "
        "and does not start.",
        area=Area.KUBELET,
        suite=Suite.AUDIT,
        severity=Severity.ERROR,
        needs=missing_settings(starting, _POLICY, _FIELD),
        check=_huge_pages,
        skips=_not_static,
        remedy="take the hugepages entries out of reservedMemory before the kubelet restarts",
        reference="https://github.com/kubernetes/kubernetes/blob/v1.36.3/pkg/kubelet/cm/"
        "memorymanager/memory_manager.go",
    ),
    Rule(
        code="KUB-025",
        claim="memory is kept for the system and the kubelet",
        why="Without a reservation pods may take all memory but the eviction threshold, and the "
        "kernel's OOM killer meets the kubelet, the driver's daemons or the jobs at random.",
        area=Area.KUBELET,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=missing_settings(running, "systemReserved", "kubeReserved"),
        check=_nothing_kept,
        skips=no_gpus,
        remedy="set systemReserved: {memory: ...} or kubeReserved: {memory: ...} to what the "
        "system needs under load (with policy Static adapt reservedMemory too) and restart the "
        "kubelet",
        reference=f"{_DOCS}/reserve-compute-resources/",
    ),
)
