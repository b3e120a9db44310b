"""Rules on NVLink: every link that is wired is up, and both ends count the same."""

from collections import Counter
from collections.abc import Iterator
from itertools import combinations

from agent.checks import (
    nvlink_fabric,
)
from agent.checks import (
    nvlink_fabric as nvlink_imex,
)
from agent.checks import (
    nvlink_fabric as nvlink_manager,
)
from agent.checks.inputs import (
    Inputs,
    Way,
    confidential,
    gpu_label,
    has_no_gpus,
    statuses,
    unknown_of,
)
from agent.checks.nvlink_inputs import (
    active,
    is_module,
    knows_links,
    lost,
    missing_links,
    missing_lists,
    modules_without_links,
    no_links,
)
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.nvlink import NvLink, P2pStatus, PeerKind
from agent.model.snapshot import Snapshot
from agent.topology.links import Pair, direct_links, gpus_out_of_nvlink, switch_links

# A rule on NVLinks that work, and had to be repaired on the way.


def _recovered(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            subject=f"GPU{link.gpu} link {link.link}",
            observed=f"{link.recoveries} recoveries from errors",
            expected="none",
        )
        for link in active(snapshot)
        if link.recoveries
    )


def _missing(snapshot: Snapshot) -> Inputs:
    silent = {f"GPU{link.gpu}" for link in active(snapshot) if link.recoveries is None}
    names = [gpu.name for gpu in snapshot.gpus if gpu.name in silent or gpu.name in lost(snapshot)]
    return missing_lists(snapshot) + unknown_of("recoveries of the NVLinks", names)


RULE = Rule(
    code="NVL-003",
    claim="no NVLink has had to recover from errors",
    why="A link that is trained anew after errors stops all traffic across it for a moment; one "
    "that needs it again and again is about to fail for good.",
    area=Area.NVLINK,
    suite=Suite.HEALTH,
    severity=Severity.WARNING,
    needs=_missing,
    check=_recovered,
    skips=no_links,
    remedy="watch whether the count grows (`nvidia-smi nvlink -e`); if it does, look for XID 74 "
    "or 144 to 150 in the kernel log, reset the GPUs, and have the board or bridge serviced",
    reference="https://docs.nvidia.com/deploy/nvml-api/group__nvmlFieldValueEnums.html",
)


# A rule on peer access over NVLink: links alone do not make it, the driver must allow it.


def linked_pairs(snapshot: Snapshot) -> tuple[Pair, ...]:
    """Return the pairs of GPUs that NVLinks join which are up, directly or through NVSwitches.

    Without GPUs in MIG mode, which use no NVLink, and lost ones.
    """
    direct, switched = direct_links(snapshot), switch_links(snapshot)
    out = gpus_out_of_nvlink(snapshot)
    usable = [gpu.index for gpu in snapshot.gpus if gpu.index not in out]
    return tuple(
        (a, b)
        for a, b in combinations(usable, 2)
        if (direct[a, b] and direct[b, a]) or (switched[a] and switched[b])
    )


def _told(snapshot: Snapshot) -> Iterator[tuple[str, tuple[P2pStatus | None, ...]]]:
    """Yield each linked pair with what the driver says of both ways over NVLink."""
    known = statuses(snapshot, (Way.NVLINK,))
    for a, b in linked_pairs(snapshot):
        yield f"GPU{a} and GPU{b}", known(a, b)


def _refused(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(subject=pair, observed=refusal, expected="peer access over NVLink")
        for pair, told in _told(snapshot)
        if (refusal := ", ".join(sorted({it.value for it in told if it and it != P2pStatus.OK})))
    )


def _peers_missing(snapshot: Snapshot) -> Inputs:
    silent = (pair for pair, told in _told(snapshot) if None in told)
    return missing_lists(snapshot) + unknown_of("peer access", (*silent, *lost(snapshot)))


def _no_pairs(snapshot: Snapshot) -> str | None:
    is_without = knows_links(snapshot) and not linked_pairs(snapshot)
    return "no GPUs joined by NVLink" if is_without else None


def _skips(snapshot: Snapshot) -> str | None:
    return no_links(snapshot) or confidential(snapshot) or _no_pairs(snapshot)


PEERS_RULE = Rule(
    code="NVL-005",
    claim="the driver allows peer access over every NVLink",
    why="GPUs that may not reach each other over NVLink exchange data through PCIe or host memory, "
    "without an error.",
    area=Area.NVLINK,
    suite=Suite.HEALTH,
    severity=Severity.ERROR,
    needs=_peers_missing,
    check=_refused,
    skips=_skips,
    remedy="see `nvidia-smi topo -p2p n`; check the state of the fabric (NVL-004), the driver's "
    "parameters (GDR-002) and the kernel log, then reset the GPUs",
    reference="https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html",
)


_REFERENCE = "https://docs.nvidia.com/deploy/nvml-api/group__NvLink.html"


def _has_switches(snapshot: Snapshot) -> bool:
    links = snapshot.nvlinks or ()
    return bool(snapshot.nvswitches) or any(link.peer_kind is PeerKind.SWITCH for link in links)


def _wired_gpus(snapshot: Snapshot) -> frozenset[int]:
    """Return the GPUs whose links must all be up.

    A PCIe card without a bridge lists links too, all down and with no far end: that is no
    fault. An SXM module, a GPU beside NVSwitches, and one with any link that is up or
    names its far end is wired. In MIG mode a GPU uses no link.
    """
    whole = {gpu.index for gpu in snapshot.gpus} - _divided(snapshot)
    if _has_switches(snapshot):
        return frozenset(whole)
    linked = {link.gpu for link in snapshot.nvlinks or () if link.is_active or _has_peer(link)}
    is_alone = len(snapshot.gpus) == 1  # a virtual machine may own one module of a board
    modules = {gpu.index for gpu in snapshot.gpus if is_module(gpu) and not is_alone}
    return frozenset(whole & (linked | modules))


def _divided(snapshot: Snapshot) -> frozenset[int]:
    return frozenset(gpu.index for gpu in snapshot.gpus if gpu.is_divided)


def _has_peer(link: NvLink) -> bool:
    return link.peer is not None or link.peer_kind is not None


def _inactive(snapshot: Snapshot) -> tuple[Finding, ...]:
    wired = _wired_gpus(snapshot)
    divided = {gpu.pci for gpu in snapshot.gpus if gpu.is_divided and gpu.pci is not None}
    return tuple(
        Finding(subject=_name(link), observed="inactive", expected="active")
        for link in snapshot.nvlinks or ()
        if link.is_active is False and link.gpu in wired and link.peer not in divided
    ) + tuple(_without_links(snapshot))


def _without_links(snapshot: Snapshot) -> Iterator[Finding]:
    if snapshot.nvlinks is None or not _has_switches(snapshot):
        return
    known = {link.gpu for link in snapshot.nvlinks} | _unread_gpus(snapshot)
    for gpu in snapshot.gpus:
        if gpu.index not in known and not gpu.is_divided:
            yield Finding(
                subject=gpu_label(gpu),
                observed="no NVLinks",
                expected="NVLinks to the NVSwitches of the node",
            )


def _unread_gpus(snapshot: Snapshot) -> frozenset[int]:
    """Return the GPUs that are lost, or of which NVML would tell nothing about any link."""
    linked = {link.gpu for link in snapshot.nvlinks or ()}
    refused = {
        issue.subject.split()[0]
        for issue in snapshot.issues
        if issue.probe == "nvml" and "NvLinkState" in issue.subject
    }
    return frozenset(
        gpu.index
        for gpu in snapshot.gpus
        if gpu.is_lost or (gpu.name in refused and gpu.index not in linked)
    )


def _missing_states(snapshot: Snapshot) -> Inputs:
    absent = missing_links(snapshot)
    if snapshot.nvlinks is None:
        return absent
    silent = [_name(link) for link in snapshot.nvlinks if link.is_active is None]
    unread = [f"GPU{gpu}" for gpu in sorted(_unread_gpus(snapshot))]
    if not _has_switches(snapshot):  # behind NVSwitches it is a finding
        unread += [name for name in modules_without_links(snapshot) if name not in unread]
    return (
        *absent,
        *((f"state of {', '.join(silent)}",) if silent else ()),
        *((f"NVLinks of {', '.join(unread)}",) if unread else ()),
        *_missing_wiring(snapshot),
    )


def _missing_wiring(snapshot: Snapshot) -> Inputs:
    """Name the GPUs of which nobody can tell whether a bridge is absent or dead."""
    wired = _wired_gpus(snapshot)
    down = {link.gpu for link in snapshot.nvlinks or () if link.is_active is False}
    down -= wired | _divided(snapshot)
    names = ", ".join(f"GPU{gpu}" for gpu in sorted(down))
    return (f"whether {names} should be bridged",) if down and wired else ()


def _unequal(snapshot: Snapshot) -> tuple[Finding, ...]:
    return (*_unequal_pairs(snapshot), *_unequal_switch_links(snapshot))


def _unequal_pairs(snapshot: Snapshot) -> Iterator[Finding]:
    index = {gpu.pci: gpu.index for gpu in snapshot.gpus if gpu.pci is not None}
    direct = [link for link in snapshot.nvlinks or () if link.peer in index]
    wired = Counter((link.gpu, index[link.peer]) for link in direct if link.peer)
    silent = {(link.gpu, index[link.peer]) for link in direct if link.peer and _is_silent(link)}
    up = Counter((link.gpu, index[link.peer]) for link in direct if link.peer and link.is_active)
    for a, b in sorted({(min(pair), max(pair)) for pair in wired}):
        # Links that are down at both ends agree, and yet are not what the wiring gives.
        expected = max(wired[a, b], wired[b, a])
        is_told = not {(a, b), (b, a)} & silent and not {a, b} & _divided(snapshot)
        if not is_told or up[a, b] == up[b, a] == expected:
            continue
        yield Finding(
            subject=f"GPU{a} and GPU{b}",
            observed=f"{up[a, b]} up at GPU{a}, {up[b, a]} up at GPU{b}",
            expected=f"{expected} at both",
        )


def _unequal_switch_links(snapshot: Snapshot) -> Iterator[Finding]:
    links = [link for link in snapshot.nvlinks or () if link.peer_kind is PeerKind.SWITCH]
    silent = {link.gpu for link in snapshot.nvlinks or () if _is_silent(link)}
    silent |= _unread_gpus(snapshot) | _divided(snapshot)
    wired = Counter(link.gpu for link in links)
    up = Counter(link.gpu for link in links if link.is_active)
    expected = max(wired.values(), default=0)
    for gpu in snapshot.gpus:
        if up[gpu.index] != expected and gpu.index not in silent:
            yield Finding(
                subject=gpu_label(gpu),
                observed=f"{up[gpu.index]} links to NVSwitches up",
                expected=f"{expected}, as many as its peers have",
            )


def _is_silent(link: NvLink) -> bool:
    return link.is_active is None


def _missing_ends(snapshot: Snapshot) -> Inputs:
    """Need the far end of every wired link; NVML names none for a link that is down."""
    wired = _wired_gpus(snapshot)
    ends = [
        _name(link)
        for link in snapshot.nvlinks or ()
        if link.gpu in wired
        and link.is_active is not None
        and (link.peer_kind is None or (link.peer_kind is PeerKind.GPU and link.peer is None))
    ]
    return _missing_states(snapshot) + ((f"far end of {', '.join(ends)}",) if ends else ())


def _no_nvlink(snapshot: Snapshot) -> str | None:
    if has_no_gpus(snapshot):
        return "no GPU"
    is_without = snapshot.nvlinks == () and not _has_switches(snapshot)
    return "no NVLink" if is_without and knows_links(snapshot) else None


def _name(link: NvLink) -> str:
    return f"GPU{link.gpu} link {link.link}"


RULES: tuple[Rule, ...] = (
    Rule(
        code="NVL-001",
        claim="every NVLink of every GPU is active",
        why="Collectives run at the speed of the slowest link, and a GPU that lost its links "
        "falls back to PCIe without an error.",
        area=Area.NVLINK,
        suite=Suite.HEALTH,
        severity=Severity.ERROR,
        needs=_missing_states,
        check=_inactive,
        skips=_no_nvlink,
        remedy="look for XID 74 in the kernel log; on NVSwitch machines check that the fabric "
        "manager runs in the driver's version; reset the GPUs, and if a link stays down have "
        "the board serviced",
        reference=_REFERENCE,
    ),
    Rule(
        code="NVL-002",
        claim="both ends of every NVLink count the same links",
        why="A link that one end calls up and the other down carries nothing, and GPUs with "
        "fewer links than their peers hold all of them back.",
        area=Area.NVLINK,
        suite=Suite.HEALTH,
        severity=Severity.ERROR,
        needs=_missing_ends,
        check=_unequal,
        skips=_no_nvlink,
        remedy="reset both GPUs together; if the counts still differ have the link serviced",
        reference=_REFERENCE,
    ),
    RULE,
    nvlink_fabric.RULE,
    PEERS_RULE,
    nvlink_manager.MANAGER_RULE,
    nvlink_imex.IMEX_RULE,
)
