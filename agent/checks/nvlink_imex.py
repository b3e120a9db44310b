"""A rule on IMEX channels, by which processes share GPU memory across nodes over NVLink."""

from agent.checks.inputs import Inputs, because, has_no_gpus, unknown_of
from agent.checks.nvlink_inputs import lost, missing_lists, silent_members
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.snapshot import Snapshot

CHANNELS = "/dev/nvidia-caps-imex-channels"


def _without_channels(snapshot: Snapshot) -> tuple[Finding, ...]:
    if snapshot.nvidia is None or snapshot.nvidia.imex_channels != ():
        return ()
    return (Finding(subject=CHANNELS, observed="no channel", expected="channel0"),)


def _missing(snapshot: Snapshot) -> Inputs:
    is_known = snapshot.nvidia is not None and snapshot.nvidia.imex_channels is not None
    channels = () if is_known else (f"IMEX channels{because(snapshot, 'nvidia-driver')}",)
    return (*missing_lists(snapshot), *unknown_of("fabric state", _silent(snapshot)), *channels)


def _silent(snapshot: Snapshot) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*silent_members(snapshot), *lost(snapshot))))


def _skips(snapshot: Snapshot) -> str | None:
    if has_no_gpus(snapshot):
        return "no GPU"
    is_member = any(gpu.fabric and gpu.fabric.cluster_uuid for gpu in snapshot.gpus)
    is_known = not missing_lists(snapshot) and not _silent(snapshot)
    return "no multi-node NVLink" if is_known and not is_member else None


RULE = Rule(
    code="NVL-007",
    claim="there is an IMEX channel where NVLink joins nodes",
    why="Processes on different nodes share GPU memory over NVLink only through a channel. That of "
    "NVIDIA's DRA driver comes with a job, so that none before the first job is no fault.",
    area=Area.NVLINK,
    suite=Suite.AUDIT,
    severity=Severity.INFO,
    needs=_missing,
    check=_without_channels,
    skips=_skips,
    remedy="use ComputeDomains of NVIDIA's DRA driver, or load the driver with "
    "NVreg_CreateImexChannel0=1 and run the service nvidia-imex on all nodes",
    reference="https://docs.nvidia.com/multi-node-nvlink-systems/imex-guide/imexchannels.html",
)
