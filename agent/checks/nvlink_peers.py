"""A rule on peer access over NVLink: links alone do not make it, the driver must allow it."""

from collections.abc import Iterator
from itertools import combinations

from agent.checks.inputs import Inputs, unknown_of
from agent.checks.nvlink_inputs import knows_links, lost, missing_lists, no_links
from agent.checks.peer_access import Way, confidential, statuses
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.nvlink import P2pStatus
from agent.model.snapshot import Snapshot
from agent.topology.links import Pair, direct_links, gpus_out_of_nvlink, switch_links


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


def _missing(snapshot: Snapshot) -> Inputs:
    silent = (pair for pair, told in _told(snapshot) if None in told)
    return missing_lists(snapshot) + unknown_of("peer access", (*silent, *lost(snapshot)))


def _no_pairs(snapshot: Snapshot) -> str | None:
    is_without = knows_links(snapshot) and not linked_pairs(snapshot)
    return "no GPUs joined by NVLink" if is_without else None


def _skips(snapshot: Snapshot) -> str | None:
    return no_links(snapshot) or confidential(snapshot) or _no_pairs(snapshot)


RULE = Rule(
    code="NVL-005",
    claim="the driver allows peer access over every NVLink",
    why="GPUs that may not reach each other over NVLink exchange data through PCIe or host memory, "
    "without an error.",
    area=Area.NVLINK,
    suite=Suite.HEALTH,
    severity=Severity.ERROR,
    needs=_missing,
    check=_refused,
    skips=_skips,
    remedy="see `nvidia-smi topo -p2p n`; check the state of the fabric (NVL-004), the driver's "
    "parameters (GDR-002) and the kernel log, then reset the GPUs",
    reference="https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html",
)
