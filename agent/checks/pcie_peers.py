"""A rule on peer access between GPUs that share a PCIe switch."""

from collections.abc import Iterator

from agent.checks.inputs import Inputs, has_no_gpus, missing_answers, unknown_of, virtual_machine
from agent.checks.nvlink_inputs import lost
from agent.checks.pcie_paths import missing_pairs, switch_pairs
from agent.checks.peer_access import Way, confidential, statuses
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.nvlink import P2pStatus
from agent.model.snapshot import Snapshot

REFUSALS = (
    P2pStatus.CHIPSET_NOT_SUPPORTED,
    P2pStatus.TOPOLOGY_NOT_SUPPORTED,
    P2pStatus.DISABLED_BY_REGKEY,
)
"""What the machine or a setting causes. That the GPU itself cannot (GeForce) is no finding."""


def _told(snapshot: Snapshot) -> Iterator[tuple[str, tuple[P2pStatus | None, ...]]]:
    """Yield each such pair of GPUs with what the driver says of reads and writes, both ways."""
    known = statuses(snapshot, (Way.READ, Way.WRITE))
    out = {gpu.index for gpu in snapshot.gpus if gpu.is_divided or gpu.is_lost}
    for a, b in switch_pairs(snapshot):
        if a.gpu is not None and b.gpu is not None and not {a.gpu, b.gpu} & out:
            yield f"{a.label} and {b.label}", known(a.gpu, b.gpu)


def _refused(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(subject=pair, observed=refusal, expected="peer access")
        for pair, told in _told(snapshot)
        if (refusal := ", ".join(sorted({status.value for status in told if status in REFUSALS})))
    )


def _missing(snapshot: Snapshot) -> Inputs:
    silent = (pair for pair, told in _told(snapshot) if None in told)
    return (
        *missing_answers(snapshot),
        *missing_pairs(snapshot),
        *unknown_of("peer access", (*silent, *lost(snapshot))),
    )


def _skips(snapshot: Snapshot) -> str | None:
    if has_no_gpus(snapshot):
        return "no GPU"
    reason = virtual_machine(snapshot) or confidential(snapshot)
    if reason is not None:
        return reason
    is_known = not missing_answers(snapshot) and not missing_pairs(snapshot) and not lost(snapshot)
    is_without = is_known and not any(_told(snapshot))
    return "no two GPUs share a PCIe switch" if is_without else None


RULE = Rule(
    code="PCI-004",
    claim="the driver allows peer access between GPUs that share a PCIe switch",
    why="Without it the data of the two goes through host memory.",
    area=Area.PCIE,
    suite=Suite.HEALTH,
    severity=Severity.WARNING,
    needs=_missing,
    check=_refused,
    skips=_skips,
    remedy="see `nvidia-smi topo -p2p r`; check ACS (PCI-005), the IOMMU (PCI-006) and the "
    "driver's parameters (GDR-002)",
    reference="https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html",
)
