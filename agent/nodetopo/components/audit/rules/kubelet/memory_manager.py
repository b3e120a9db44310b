"""Rules on the memory that the kubelet reserves for the system."""

import re
import struct
from collections import Counter

from nodetopo.checks.inputs import missing_numa_nodes, no_gpus
from nodetopo.checks.rule import Finding, Judgement, Missing, Severity, rule
from nodetopo.components.audit.rules.kubelet.inputs import (
    amount,
    kubelet_rule,
    missing_settings,
    place,
    reserved,
    running,
    starting,
    unreadable,
)
from nodetopo.components.audit.rules.kubelet.remedies import (
    memory_reserved,
    restarted_with,
    without_huge_pages,
)
from nodetopo.model.kubelet import KubeletSettings
from nodetopo.model.kubernetes import size_text
from nodetopo.model.snapshot import Snapshot

_POLICY = "memoryManagerPolicy"
_STATIC = "Static"
_RESERVED = "reservedMemory"
_SIGNAL = "memory.available"
_IGNORED = ("0%", "100%")
"""Thresholds that the kubelet takes for none (pkg/kubelet/eviction/helpers.go)."""
_PARTS = 1000
"""Amounts are compared in thousandths of a byte: 0.1Gi is no whole number of bytes."""


def _capacity(snapshot: Snapshot) -> int | None:
    status = snapshot.node_status
    return None if status is None or not status.capacity else status.capacity.get("memory")


def _capacity_of_share(snapshot: Snapshot) -> tuple[Missing, ...]:
    """Require the capacity if the threshold is a percentage of it."""
    settings = starting(snapshot)
    text = ((settings and settings.eviction_hard) or {}).get(_SIGNAL, "")
    is_share = text.endswith("%") and text not in _IGNORED
    is_unknown = is_share and _capacity(snapshot) is None
    return (Missing("memory capacity of the Node object"),) if is_unknown else ()


@kubelet_rule(
    "KUB-016",
    Severity.ERROR,
    policy=(_POLICY, _STATIC),
    needs=(
        _RESERVED,
        "systemReserved",
        "kubeReserved",
        "evictionHard",
        missing_numa_nodes,
        _capacity_of_share,
    ),
    cure=restarted_with(memory_reserved, drained=True),
)
def reserved_sum(snapshot: Snapshot, settings: KubeletSettings) -> Judgement:
    """Check the threshold, the entries and the sum, as the kubelet does at its start."""
    if settings.reserved_memory is None:
        return
    text = (settings.eviction_hard or {}).get(_SIGNAL)
    yield from unreadable(settings, "memory")
    if text is not None and text not in _IGNORED:
        kept = _threshold(settings, 1 << 40)
        if kept is None or kept < 0 or (kept == 0 and not text.endswith("%")):
            yield Finding(
                subject=place(settings, "evictionHard"),
                observed=f"{_SIGNAL}: {text}",
                expected="a quantity above zero, or a percentage up to 100%",
            )
    yield from _bad_entries(snapshot, settings)

    held = reserved(settings, "memory", per_unit=_PARTS)
    threshold = _threshold(settings, _capacity(snapshot))
    entries = [
        amount(entry.limits.get("memory", "0"), per_unit=_PARTS)
        for entry in settings.reserved_memory
    ]
    present = [entry for entry in entries if entry is not None]
    if held is None or threshold is None or threshold < 0 or len(present) < len(entries):
        return
    if (total := sum(present)) != held + threshold or total == 0:
        expected = (
            f"{_size(held + threshold)}: systemReserved and kubeReserved have {_size(held)}, "
            f"evictionHard {_SIGNAL} {_size(threshold)}"
        )
        observed = f"{_size(total)} of memory on all NUMA nodes"
        yield Finding(subject=place(settings, _RESERVED), observed=observed, expected=expected)


def _threshold(settings: KubeletSettings, capacity: int | None) -> int | None:
    """Return the threshold of hard eviction in :data:`_PARTS` of a byte; ``None`` if unknown."""
    if settings.eviction_hard is None:
        return None
    text = settings.eviction_hard.get(_SIGNAL, "0%")
    if text in _IGNORED:
        return 0
    if not text.endswith("%"):
        return amount(text, per_unit=_PARTS)
    if capacity is None or re.fullmatch(r"[0-9]{1,9}([.][0-9]{0,20})?%", text) is None:
        return None
    # As the kubelet computes it: the share in 32 bits, the product in 64, cut to whole bytes.
    share = _single(_single(float(text.removesuffix("%"))) / 100)
    return int(capacity * share) * _PARTS if share <= 1 else None


def _single(number: float) -> float:
    """Return *number* rounded to 32 bits."""
    return float(struct.unpack("f", struct.pack("f", number))[0])


def _bad_entries(snapshot: Snapshot, settings: KubeletSettings) -> Judgement:
    """Yield entries of reservedMemory of unknown NUMA nodes, without amount, or stated twice."""
    subject = place(settings, _RESERVED)
    entries = settings.reserved_memory or ()
    node_ids = {node.id for node in snapshot.numa_nodes or ()}
    if snapshot.numa_nodes is not None:
        for node in sorted({entry.numa_node for entry in entries} - node_ids):
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


def _size(parts: int) -> str:
    """Return an amount for a person; one of no whole bytes in full."""
    size, rest = divmod(parts, _PARTS)
    return f"{parts / _PARTS:.15g} bytes" if rest else size_text(size, is_exact=True)


@kubelet_rule(
    "KUB-017",
    Severity.ERROR,
    policy=(_POLICY, _STATIC),
    needs=(_RESERVED,),
    cure=restarted_with(without_huge_pages),
)
def reserved_huge_pages(_snapshot: Snapshot, settings: KubeletSettings) -> Judgement:
    """Look for huge pages in reservedMemory."""
    for entry in settings.reserved_memory or ():
        for kind, text in entry.limits.items():
            if kind.startswith("hugepages-"):
                yield Finding(
                    subject=place(settings, _RESERVED),
                    observed=f"numaNode {entry.numa_node}: {kind}: {text}",
                    expected="memory only",
                )


@rule("KUB-025", Severity.WARNING, unless=no_gpus, cure=restarted_with(memory_reserved))
def reserved_memory(snapshot: Snapshot) -> Judgement:
    """Expect a reservation of memory."""
    settings = running(snapshot)
    yield from missing_settings(snapshot, settings, "systemReserved", "kubeReserved")
    if settings is None:
        return
    if reserved(settings, "memory") != 0:
        yield from unreadable(settings, "memory")
        return
    subject = f"{place(settings, 'systemReserved')} and {place(settings, 'kubeReserved')}"
    expected = "memory in one of them"
    yield Finding(subject=subject, observed="no memory reserved", expected=expected)
