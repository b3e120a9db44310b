"""Rules on NVLinks: every link that is wired is up, clean, and open to peer access."""

from collections import Counter
from itertools import combinations

from nodetopo.checks.inputs import confidential, gpu_label, no_gpus, statuses, unknown_of
from nodetopo.checks.rule import Finding, Judgement, Missing, Severity, Skip, rule
from nodetopo.components.audit.rules.nvlink_inputs import (
    active,
    knows_links,
    lost,
    missing_links,
    missing_lists,
    no_links,
)
from nodetopo.model.nvlink import NvLink, P2pStatus, PeerKind
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.links import direct_links, gpus_out_of_nvlink, switch_links, training_gpus
from nodetopo.topology.wiring import has_switches, is_module, modules_without_links, wired_gpus


def _no_nvlink(snapshot: Snapshot) -> str | None:
    links, reason = snapshot.nvlinks, None
    if links is None or not knows_links(snapshot) or _unread_gpus(snapshot):
        return no_gpus(snapshot)
    if not links and not has_switches(snapshot):
        reason = "no NVLink"
    elif all(link.is_active is False for link in links) and not wired_gpus(snapshot):
        has_modules = any(map(is_module, snapshot.gpus))
        reason = "no NVLink in use" if has_modules else "no NVLink bridge"
    return no_gpus(snapshot) or reason


@rule("NVL-001", Severity.ERROR, unless=_no_nvlink)
def link_states(snapshot: Snapshot) -> Judgement:
    """Find links that are down although they are wired, and GPUs behind NVSwitches without any."""
    wired = wired_gpus(snapshot) - training_gpus(snapshot)
    divided = {gpu.pci for gpu in snapshot.gpus if gpu.is_divided and gpu.pci is not None}
    for link in snapshot.nvlinks or ():
        if link.is_active is False and link.gpu in wired and link.peer not in divided:
            yield Finding(subject=_name(link), observed="inactive", expected="active")
    if snapshot.nvlinks is not None and has_switches(snapshot):
        listed = {link.gpu for link in snapshot.nvlinks} | _unread_gpus(snapshot)
        for gpu in snapshot.gpus:
            if gpu.index not in listed and not gpu.is_divided:
                yield Finding(
                    subject=gpu_label(gpu),
                    observed="no NVLinks",
                    expected="NVLinks to the NVSwitches of the node",
                )
    yield from _missing_states(snapshot)


@rule("NVL-002", Severity.ERROR, unless=_no_nvlink)
def link_counts(snapshot: Snapshot) -> Judgement:
    """Find pairs of GPUs whose ends differ, and GPUs with fewer links to NVSwitches than others."""
    links, divided = snapshot.nvlinks or (), _divided(snapshot)

    # From GPU to GPU. Links that are down at both ends agree, and yet do not fit the wiring.
    index = {gpu.pci: gpu.index for gpu in snapshot.gpus if gpu.pci is not None}
    ends = [(link, (link.gpu, index[link.peer])) for link in links if link.peer in index]
    wired = Counter(pair for _, pair in ends)
    up = Counter(pair for link, pair in ends if link.is_active)
    training = training_gpus(snapshot)
    silent_pairs = {pair for link, pair in ends if link.is_active is None or link.gpu in training}
    for a, b in sorted({(min(pair), max(pair)) for pair in wired}):
        is_known = not {(a, b), (b, a)} & silent_pairs and not {a, b} & divided
        expected = max(wired[a, b], wired[b, a])
        if is_known and not up[a, b] == up[b, a] == expected:
            yield Finding(
                subject=f"GPU{a} and GPU{b}",
                observed=f"{up[a, b]} up at GPU{a}, {up[b, a]} up at GPU{b}",
                expected=f"{expected} at both",
            )

    # From GPUs to NVSwitches.
    silent = {link.gpu for link in links if link.is_active is None}
    silent |= _unread_gpus(snapshot) | divided | training
    to_switches = [link for link in links if link.peer_kind is PeerKind.SWITCH]
    most = max(Counter(link.gpu for link in to_switches).values(), default=0)
    up_to_switches = Counter(link.gpu for link in to_switches if link.is_active)
    for gpu in snapshot.gpus:
        if up_to_switches[gpu.index] != most and gpu.index not in silent:
            yield Finding(
                subject=gpu_label(gpu),
                observed=f"{up_to_switches[gpu.index]} links to NVSwitches up",
                expected=f"{most}, as many as its peers have",
            )

    yield from _missing_states(snapshot)
    # NVML names no far end for a link that is down.
    wired_ends = wired_gpus(snapshot)
    without_end = (
        _name(link)
        for link in links
        if link.gpu in wired_ends
        and link.is_active is not None
        and (link.peer_kind is None or (link.peer_kind is PeerKind.GPU and link.peer is None))
    )
    yield from unknown_of("far end", without_end)


@rule("NVL-003", Severity.WARNING, unless=no_links)
def recoveries(snapshot: Snapshot) -> Judgement:
    """Find links that work, and had to be repaired on the way."""
    silent = {gpu.index for gpu in snapshot.gpus if gpu.is_lost}
    for link in active(snapshot):
        if link.recoveries is None:
            silent.add(link.gpu)
        elif link.recoveries:
            yield Finding(
                subject=_name(link),
                observed=f"{link.recoveries} recoveries from errors",
                expected="none",
            )
    names = (gpu.name for gpu in snapshot.gpus if gpu.index in silent)
    yield from missing_lists(snapshot)
    yield from unknown_of("recoveries of the NVLinks", names)


@rule("NVL-005", Severity.ERROR)
def peer_access(snapshot: Snapshot) -> Judgement:
    """Find pairs that NVLinks join, directly or through NVSwitches, and the driver keeps apart.

    GPUs in MIG mode, which use no NVLink, and lost ones are left out.
    """
    direct, switched = direct_links(snapshot), switch_links(snapshot)
    out = gpus_out_of_nvlink(snapshot)
    pairs = [
        (a, b)
        for a, b in combinations([gpu.index for gpu in snapshot.gpus if gpu.index not in out], 2)
        if (direct[a, b] and direct[b, a]) or (switched[a] and switched[b])
    ]
    reason = no_links(snapshot) or confidential(snapshot)
    if reason is None and not pairs and knows_links(snapshot):
        reason = "no GPUs joined by NVLink"
    if reason:
        yield Skip(reason)
        return
    silent = []
    between = statuses(snapshot, "nvlink")
    for a, b in pairs:
        name, answers = f"GPU{a} and GPU{b}", between(a, b)
        if None in answers:
            silent.append(name)
        if refusals := sorted(
            {answer.value for answer in answers if answer and answer != P2pStatus.OK}
        ):
            yield Finding(
                subject=name,
                observed=", ".join(refusals),
                expected="peer access over NVLink",
            )
    yield from missing_lists(snapshot)
    yield from unknown_of("peer access", (*silent, *lost(snapshot)))


def _divided(snapshot: Snapshot) -> frozenset[int]:
    return frozenset(gpu.index for gpu in snapshot.gpus if gpu.is_divided)


def _unread_gpus(snapshot: Snapshot) -> frozenset[int]:
    """Return the GPUs that are lost, or of which NVML gave the state of no link."""
    linked = {link.gpu for link in snapshot.nvlinks or ()}
    refused = {
        gpu for issue in snapshot.issues if "NvLinkState" in issue.call for gpu in issue.gpus
    }
    return frozenset(
        gpu.index
        for gpu in snapshot.gpus
        if gpu.is_lost or (gpu.index in refused and gpu.index not in linked)
    )


def _missing_states(snapshot: Snapshot) -> tuple[Missing, ...]:
    """Return the links and GPUs of unknown state or unknown wiring."""
    absent = missing_links(snapshot)
    if snapshot.nvlinks is None:
        return absent
    training = training_gpus(snapshot)
    silent = (
        _name(link)
        for link in snapshot.nvlinks
        if link.is_active is None or (link.gpu in training and not link.is_active)
    )
    unread = [f"GPU{gpu}" for gpu in sorted(_unread_gpus(snapshot))]
    if not has_switches(snapshot):  # behind NVSwitches, a dead link is a finding
        modules = (gpu.name for gpu in modules_without_links(snapshot))
        unread += [name for name in modules if name not in unread]
    # An absent bridge of a PCIe card cannot be told from a dead one.
    wired = wired_gpus(snapshot)
    down = {link.gpu for link in snapshot.nvlinks if link.is_active is False}
    down -= wired | _divided(snapshot)
    names = ", ".join(f"GPU{gpu}" for gpu in sorted(down))
    bridges = (Missing(f"whether {names} should be bridged"),) if down and wired else ()
    return absent + unknown_of("state", silent) + unknown_of("NVLinks", unread) + bridges


def _name(link: NvLink) -> str:
    return f"GPU{link.gpu} link {link.link}"
