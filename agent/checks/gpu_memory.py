"""Rules on the memory of GPUs: what wears out, and what waits for a reset."""

from agent.checks.inputs import gpu_label, missing_of_gpus, no_gpus
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.gpu import Gpu
from agent.model.snapshot import Snapshot

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


RULES: tuple[Rule, ...] = (
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
