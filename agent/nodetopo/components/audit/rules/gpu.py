"""Rules on the condition and the settings of each GPU."""

from collections.abc import Mapping
from types import MappingProxyType

from nodetopo.checks.inputs import gpu_label, missing_of_gpus, no_gpus, unknown_of
from nodetopo.checks.rule import Finding, Judgement, Rule, Severity, rule
from nodetopo.components.audit.rules.each import gpu_rule, known
from nodetopo.model.gpu import FIRST_WITH_ROW_REMAPPING, Gpu, Virtualization
from nodetopo.model.snapshot import Snapshot

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

_SRAM_STATUS = "nvmlDeviceGetSramEccErrorStatus"
_MEMORY_ERRORS = "https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/"


@gpu_rule(
    "GPU-001",
    Severity.ERROR,
    "recovery action",
    expected="none",
    claim="GPU recovery actions",
    why="The driver asks for a reset or a reboot after faults that leave the GPU unfit for "
    "new work; jobs placed on it fail or hang.",
    remedy="drain the node, then do what the driver asks for: reset the GPU with "
    "`nvidia-smi --gpu-reset -i N`, or reboot",
    reference="https://docs.nvidia.com/deploy/nvml-api/",
)
def recovery_action(gpu: Gpu) -> str | None:
    """Return the recovery action that the driver asks for."""
    action = known(gpu.recovery_action)
    return RECOVERY.get(action, f"action {action}") if action else None


@gpu_rule(
    "GPU-002",
    Severity.ERROR,
    "remapped rows",
    expected="no failed row remap",
    claim="Row remapping of GPU memory",
    why="A failed remap means that the spare rows of a memory bank are used up: the next "
    "uncorrectable error there takes the job down.",
    remedy="drain the node, run NVIDIA's field diagnostic and have the GPU replaced",
    reference=_MEMORY_ERRORS,
)
def failed_remaps(gpu: Gpu) -> str | None:
    """Return that a row remap of *gpu* failed; older GPUs retire pages instead."""
    rows = gpu.remapped_rows
    if rows is None and (_retires_pages(gpu) or has_no_ecc(gpu)):
        return None
    return "a row remap failed" if known(rows).has_failed else None


@rule(
    "GPU-003",
    Severity.WARNING,
    unless=no_gpus,
    claim="GPU memory repairs at reset",
    why="The bad row or page stays in use until the GPU is reset: another error there takes "
    "the next job down.",
    remedy="when the GPU's jobs have ended, reset it with `nvidia-smi --gpu-reset -i N`, or "
    "reboot the node",
    reference=_MEMORY_ERRORS,
)
def pending_remaps(snapshot: Snapshot) -> Judgement:
    """Find GPUs with a row remap or a page retirement that is pending."""
    silent = []
    for gpu in snapshot.gpus:
        rows = gpu.remapped_rows
        state = gpu.retired_pages_pending if _retires_pages(gpu) else rows
        if state is None and not has_no_ecc(gpu):
            silent.append(gpu.name)
        is_remap = rows is not None and rows.is_pending
        if is_remap or gpu.retired_pages_pending:
            what = "a row remap" if is_remap else "the retirement of a page"
            yield Finding(
                subject=gpu_label(gpu),
                observed=f"{what} waits for a reset",
                expected="nothing waits",
            )
    yield from missing_of_gpus(snapshot, "pending row remaps", silent)


@rule(
    "GPU-004",
    Severity.WARNING,
    unless=no_gpus,
    claim="GPU memory error counts",
    why="An uncorrectable error ends the job that hits it, and makes a second error on the "
    "same GPU far more likely. A GPU whose on-chip memory (SRAM) exceeds NVIDIA's error threshold "
    "must be replaced.",
    remedy="reset the GPU when it is idle, which also clears the count, and run NVIDIA's field "
    "diagnostic if errors come back; if the SRAM threshold is exceeded, have the GPU replaced",
    reference=_MEMORY_ERRORS,
)
def uncorrectable_errors(snapshot: Snapshot) -> Judgement:
    """Find GPUs with uncorrectable errors; without ECC no errors are counted.

    Only a GPU that failed to answer leaves the threshold unknown: older drivers and GPUs have none.
    """
    silent = []
    for gpu in snapshot.gpus:
        count = gpu.ecc_errors.volatile if gpu.ecc_errors else None
        if count is None and gpu.ecc is not False and not has_no_ecc(gpu):
            silent.append(gpu.name)
        if count:
            yield Finding(
                subject=gpu_label(gpu),
                observed=f"{count} uncorrectable since the driver was loaded",
                expected="none",
            )
        if gpu.is_over_sram_threshold:
            yield Finding(
                subject=gpu_label(gpu),
                observed="SRAM error threshold exceeded",
                expected="not exceeded",
            )
    yield from missing_of_gpus(snapshot, "memory errors", silent)
    refused = {gpu for issue in snapshot.issues if issue.call == _SRAM_STATUS for gpu in issue.gpus}
    names = (gpu.name for gpu in snapshot.gpus if gpu.index in refused and not gpu.is_lost)
    yield from unknown_of("SRAM error threshold", names)


@gpu_rule(
    "GPU-005",
    Severity.WARNING,
    "reasons of low clocks",
    expected="full clocks, or a power cap",
    claim="GPU clocks under thermal and power limits",
    why="The clocks drop to half or less, and a collective runs at the pace of its slowest GPU.",
    remedy="check fans, air flow, inlet temperature and coolant; for a power brake check the "
    "power supplies and the rack's power budget",
    reference="https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html",
)
def low_clocks(gpu: Gpu) -> str | None:
    """Return the reason for low clocks of *gpu*; a vGPU's host controls them."""
    if gpu.throttle_reasons is None and gpu.virtualization is Virtualization.VGPU:
        return None
    bits = known(gpu.throttle_reasons)
    return ", ".join(text for bit, text in HELD_BACK.items() if bits & bit) or None


@gpu_rule(
    "GPU-006",
    Severity.WARNING,
    "persistence mode",
    expected="on",
    claim="Persistence mode",
    why="Without persistence mode the driver releases a GPU when its last program ends: "
    "every job waits seconds for the GPU to start, and settings and counters are lost.",
    remedy="run the service nvidia-persistenced on the host, or `nvidia-smi -pm 1` after each boot",
    reference="https://docs.nvidia.com/deploy/driver-persistence/",
)
def persistence_mode(gpu: Gpu) -> str | None:
    """Return the wrong persistence mode of *gpu*."""
    return None if known(gpu.persistence) else "persistence mode off"


@gpu_rule(
    "GPU-007",
    Severity.WARNING,
    "ECC mode",
    expected="ECC on",
    claim="ECC mode of GPU memory",
    why="With ECC off, a flipped bit in GPU memory silently corrupts results.",
    remedy="`nvidia-smi -e 1 -i N`, then reset the GPU or reboot; waive the check if you chose "
    "speed over ECC",
    reference="https://docs.nvidia.com/deploy/nvidia-smi/",
)
def ecc_mode(gpu: Gpu) -> str | None:
    """Return the wrong ECC mode of *gpu*: off now or after the next reset."""
    if has_no_ecc(gpu):
        return None
    if not known(gpu.ecc):
        return "ECC off, on after the next reset" if gpu.ecc_pending else "ECC off"
    return "ECC on, off after the next reset" if gpu.ecc_pending is False else None


RULES: tuple[Rule, ...] = (
    recovery_action,
    failed_remaps,
    pending_remaps,
    uncorrectable_errors,
    low_clocks,
    persistence_mode,
    ecc_mode,
)


def has_no_ecc(gpu: Gpu) -> bool:
    """Return whether *gpu* answers none of the questions on error correction.

    NVML returns NOT_SUPPORTED to all three for a card that has none, and for a virtual GPU; a GPU
    without a UUID was never asked.
    """
    is_silent = gpu.ecc is None and gpu.ecc_errors is None and gpu.remapped_rows is None
    return is_silent and gpu.uuid is not None


def _retires_pages(gpu: Gpu) -> bool:
    capability = gpu.compute_capability
    return capability is not None and capability < FIRST_WITH_ROW_REMAPPING
