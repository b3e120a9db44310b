"""Rules on what a GPU says of its own condition."""

from collections.abc import Mapping
from types import MappingProxyType

from agent.checks.inputs import gpu_label, missing_of_gpus, no_gpus
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.gpu import Gpu, Virtualization
from agent.model.snapshot import Snapshot

# Rules on the memory of GPUs: what wears out, and what waits for a reset.

FIRST_WITH_ROW_REMAPPING = (8, 0)
"""Compute capability of A100; older GPUs retire pages (NVIDIA GPU Memory Error Management)."""


_REFERENCE = "https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/"


def has_no_ecc(gpu: Gpu) -> bool:
    """Return whether *gpu* answers none of the questions on error correction.

    NVML says NOT_SUPPORTED to all three for a card that has none, and for a virtual GPU; one
    without a UUID was never asked.
    """
    is_silent = gpu.ecc is None and gpu.ecc_errors is None and gpu.remapped_rows is None
    return is_silent and gpu.uuid is not None


def _is_older(gpu: Gpu) -> bool:
    capability = gpu.compute_capability
    return capability is not None and capability < FIRST_WITH_ROW_REMAPPING


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
    return _is_older(gpu) or has_no_ecc(gpu) or gpu.remapped_rows is not None


def _pending(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            subject=gpu_label(gpu),
            observed=f"{what} waits for a reset",
            expected="nothing waits",
        )
        for gpu in snapshot.gpus
        if (what := _waiting(gpu)) is not None
    )


def _waiting(gpu: Gpu) -> str | None:
    if gpu.remapped_rows and gpu.remapped_rows.is_pending:
        return "a row remap"
    return "the retirement of a page" if gpu.retired_pages_pending else None


def _knows_pending(gpu: Gpu) -> bool:
    told = gpu.retired_pages_pending if _is_older(gpu) else gpu.remapped_rows
    return has_no_ecc(gpu) or told is not None


def _uncorrectable(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            subject=gpu_label(gpu),
            observed=f"{gpu.ecc_errors.volatile} uncorrectable since the driver was loaded",
            expected="none",
        )
        for gpu in snapshot.gpus
        if gpu.ecc_errors and gpu.ecc_errors.volatile
    )


def _knows_errors(gpu: Gpu) -> bool:
    if gpu.ecc is False or has_no_ecc(gpu):  # then nothing is counted
        return True
    return gpu.ecc_errors is not None and gpu.ecc_errors.volatile is not None


MEMORY_RULES: tuple[Rule, ...] = (
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
        skips=no_gpus,
        remedy="drain the node, run NVIDIA's field diagnostic and have the GPU replaced",
        reference=_REFERENCE,
    ),
    Rule(
        code="GPU-003",
        claim="no GPU waits for a reset to replace worn memory",
        why="The bad row or page stays in use until the GPU is reset: another error there takes "
        "the next job down.",
        area=Area.GPU,
        suite=Suite.HEALTH,
        severity=Severity.WARNING,
        needs=missing_of_gpus("pending row remaps", _knows_pending),
        check=_pending,
        skips=no_gpus,
        remedy="when the GPU's jobs have ended, reset it with `nvidia-smi --gpu-reset -i N`, or "
        "reboot the node",
        reference=_REFERENCE,
    ),
    Rule(
        code="GPU-004",
        claim="no GPU has had an uncorrectable memory error since the driver was loaded",
        why="Such an error ends the job that met it. A second one on the same GPU is far more "
        "likely than a first one on another.",
        area=Area.GPU,
        suite=Suite.HEALTH,
        severity=Severity.WARNING,
        needs=missing_of_gpus("memory errors", _knows_errors),
        check=_uncorrectable,
        skips=no_gpus,
        remedy="reset the GPU when it is idle, which also clears the count, and run NVIDIA's "
        "field diagnostic if errors come back",
        reference=_REFERENCE,
    ),
)


# Rules on settings of GPUs that an administrator chooses.


def _without_persistence(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(subject=gpu_label(gpu), observed="persistence mode off", expected="on")
        for gpu in snapshot.gpus
        if gpu.persistence is False
    )


def _without_ecc(snapshot: Snapshot) -> tuple[Finding, ...]:
    return tuple(
        Finding(subject=gpu_label(gpu), observed=observed, expected="ECC on")
        for gpu in snapshot.gpus
        if (observed := _ecc_trouble(gpu)) is not None
    )


def _ecc_trouble(gpu: Gpu) -> str | None:
    if gpu.ecc is False:
        return "ECC off, on after the next reset" if gpu.ecc_pending else "ECC off"
    return "ECC on, off after the next reset" if gpu.ecc and gpu.ecc_pending is False else None


def _knows_ecc(gpu: Gpu) -> bool:
    return gpu.ecc is not None or has_no_ecc(gpu)


SETTINGS_RULES: tuple[Rule, ...] = (
    Rule(
        code="GPU-006",
        claim="every GPU is in persistence mode",
        why="Without it the driver lets go of a GPU when its last program ends: every job waits "
        "seconds for the GPU to start, and settings and counts are lost.",
        area=Area.GPU,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=missing_of_gpus("persistence mode", lambda gpu: gpu.persistence is not None),
        check=_without_persistence,
        skips=no_gpus,
        remedy="run the service nvidia-persistenced on the host, or `nvidia-smi -pm 1` after each "
        "boot",
        reference="https://docs.nvidia.com/deploy/driver-persistence/",
    ),
    Rule(
        code="GPU-007",
        claim="every GPU corrects memory errors",
        why="With ECC off, a flipped bit in GPU memory is a wrong result that nobody notices.",
        area=Area.GPU,
        suite=Suite.AUDIT,
        severity=Severity.WARNING,
        needs=missing_of_gpus("ECC mode", _knows_ecc),
        check=_without_ecc,
        skips=no_gpus,
        remedy="`nvidia-smi -e 1 -i N`, then reset the GPU or reboot; waive it where speed was "
        "chosen over ECC",
        reference="https://docs.nvidia.com/deploy/nvidia-smi/",
    ),
)


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
    *MEMORY_RULES,
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
    *SETTINGS_RULES,
)
