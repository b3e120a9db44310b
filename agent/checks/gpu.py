"""Rules on what a GPU says of its own condition."""

from collections.abc import Mapping
from types import MappingProxyType

from agent.checks.inputs import gpu_label, missing_of_gpus
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.gpu import Gpu
from agent.model.snapshot import Snapshot

RECOVERY: Mapping[int, str] = MappingProxyType(
    {
        0: "none",
        1: "GPU reset",
        2: "node reboot",
        3: "drain P2P",
        4: "drain and reset",
        5: "recover IMEX domain",
        6: "bus reset",
        7: "system reboot",
    },
)
"""NVML field 230 in words (nvml.h ``nvmlDeviceGpuRecoveryAction_t``)."""

FIRST_WITH_ROW_REMAPPING = (8, 0)
"""Compute capability of A100; older GPUs retire pages (NVIDIA GPU Memory Error Management)."""


def _waiting_for_recovery(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            subject=gpu_label(gpu),
            observed=RECOVERY.get(gpu.recovery_action, f"action {gpu.recovery_action}"),
            expected="none",
        )
        for gpu in snapshot.gpus
        if gpu.recovery_action
    )


def _failed_remaps(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            subject=gpu_label(gpu),
            observed="a row remap failed",
            expected="no failed row remap",
        )
        for gpu in snapshot.gpus
        if gpu.remapped_rows and gpu.remapped_rows.has_failed
    )


def _knows_remaps(gpu: Gpu) -> bool:
    capability = gpu.compute_capability
    is_older = capability is not None and capability < FIRST_WITH_ROW_REMAPPING
    return is_older or gpu.remapped_rows is not None


RULES: tuple[Rule, ...] = (
    Rule(
        code="GPU-001",
        claim="no GPU waits for a recovery action",
        why="The driver asks for a reset or a reboot after faults that leave the GPU unfit for "
        "new work; jobs placed on it fail or hang.",
        area=Area.GPU,
        suite=Suite.HEALTH,
        severity=Severity.ERROR,
        needs=missing_of_gpus("recovery action", lambda gpu: gpu.recovery_action is not None),
        check=_waiting_for_recovery,
        remedy="drain the node, then do what the driver asks for: reset the GPU with "
        "`nvidia-smi --gpu-reset -i N`, or reboot",
        reference="https://docs.nvidia.com/deploy/nvml-api/",
    ),
    Rule(
        code="GPU-002",
        claim="no GPU has failed to remap a memory row",
        why="A failed remap means that the spare rows of a memory bank are used up: the next "
        "uncorrectable error there takes the job down.",
        area=Area.GPU,
        suite=Suite.HEALTH,
        severity=Severity.ERROR,
        needs=missing_of_gpus("remapped rows", _knows_remaps),
        check=_failed_remaps,
        remedy="drain the node, run NVIDIA's field diagnostic and have the GPU replaced",
        reference="https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/",
    ),
)
