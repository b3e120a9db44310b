"""A rule on NVLinks that work, and had to be repaired on the way."""

from agent.checks.inputs import Inputs, unknown_of
from agent.checks.nvlink_inputs import active, lost, missing_lists, no_links
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.snapshot import Snapshot


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
