"""Rules on what a GPU says of its own condition."""

from collections.abc import Mapping
from types import MappingProxyType

from agent.checks import gpu_memory, gpu_settings
from agent.checks.inputs import gpu_label, missing_of_gpus, no_gpus
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.gpu import Gpu, Virtualization
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

HELD_BACK: Mapping[int, str] = MappingProxyType(
    {
        0x20: "software thermal slowdown",
        0x40: "hardware thermal slowdown",
        0x80: "power brake from the power supply",
    },
)
"""Bits of ``nvmlDeviceGetCurrentClocksEventReasons`` that mean trouble (nvml.h
nvmlClocksEventReasons). A power cap is how a busy GPU lives, and HW slowdown (0x8) alone is also
reported while clocks change."""


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


def _held_back(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            subject=gpu_label(gpu),
            observed=reasons,
            expected="full clocks, or a power cap",
        )
        for gpu in snapshot.gpus
        if (reasons := _reasons(gpu.throttle_reasons or 0))
    )


def _reasons(bits: int) -> str:
    return ", ".join(text for bit, text in HELD_BACK.items() if bits & bit)


def _knows_reasons(gpu: Gpu) -> bool:
    # The clocks of a virtual GPU are its host's affair.
    return gpu.throttle_reasons is not None or gpu.virtualization is Virtualization.VGPU


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
        skips=no_gpus,
        remedy="drain the node, then do what the driver asks for: reset the GPU with "
        "`nvidia-smi --gpu-reset -i N`, or reboot",
        reference="https://docs.nvidia.com/deploy/nvml-api/",
    ),
    *gpu_memory.RULES,
    Rule(
        code="GPU-005",
        claim="no GPU is slowed down by heat or by its power supply",
        why="The clocks drop to half or less, and a collective runs at the pace of its slowest "
        "GPU.",
        area=Area.GPU,
        suite=Suite.HEALTH,
        severity=Severity.WARNING,
        needs=missing_of_gpus("reasons of low clocks", _knows_reasons),
        check=_held_back,
        skips=no_gpus,
        remedy="check fans, air flow, inlet temperature and coolant; for a power brake check the "
        "power supplies and the rack's power budget",
        reference="https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html",
    ),
    *gpu_settings.RULES,
)
