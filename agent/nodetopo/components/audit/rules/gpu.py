"""Rules on the condition and the settings of each GPU."""

from collections.abc import Mapping
from types import MappingProxyType

from nodetopo.checks.inputs import gpu_label, missing_of_gpus, no_gpus, unknown_of
from nodetopo.checks.rule import Finding, Judgement, Severity, rule
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


@gpu_rule("GPU-001", Severity.ERROR, "recovery action", expected="none")
def recovery_action(gpu: Gpu) -> str | None:
    """Return the recovery action that the driver asks for."""
    action = known(gpu.recovery_action)
    return RECOVERY.get(action, f"action {action}") if action else None


@gpu_rule("GPU-002", Severity.ERROR, "remapped rows", expected="no failed row remap")
def failed_remaps(gpu: Gpu) -> str | None:
    """Return that a row remap of *gpu* failed; older GPUs retire pages instead."""
    rows = gpu.remapped_rows
    if rows is None and (_retires_pages(gpu) or has_no_ecc(gpu)):
        return None
    return "a row remap failed" if known(rows).has_failed else None


@rule("GPU-003", Severity.WARNING, unless=no_gpus)
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


@rule("GPU-004", Severity.WARNING, unless=no_gpus)
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
    "GPU-005", Severity.WARNING, "reasons of low clocks", expected="full clocks, or a power cap"
)
def low_clocks(gpu: Gpu) -> str | None:
    """Return the reason for low clocks of *gpu*; a vGPU's host controls them."""
    if gpu.throttle_reasons is None and gpu.virtualization is Virtualization.VGPU:
        return None
    bits = known(gpu.throttle_reasons)
    return ", ".join(text for bit, text in HELD_BACK.items() if bits & bit) or None


@gpu_rule("GPU-006", Severity.WARNING, "persistence mode", expected="on")
def persistence_mode(gpu: Gpu) -> str | None:
    """Return the wrong persistence mode of *gpu*."""
    return None if known(gpu.persistence) else "persistence mode off"


@gpu_rule("GPU-007", Severity.WARNING, "ECC mode", expected="ECC on")
def ecc_mode(gpu: Gpu) -> str | None:
    """Return the wrong ECC mode of *gpu*: off now or after the next reset."""
    if has_no_ecc(gpu):
        return None
    if not known(gpu.ecc):
        return "ECC off, on after the next reset" if gpu.ecc_pending else "ECC off"
    return "ECC on, off after the next reset" if gpu.ecc_pending is False else None


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
