"""Rules on settings of GPUs that an administrator chooses."""

from agent.checks.gpu_memory import has_no_ecc
from agent.checks.inputs import gpu_label, missing_of_gpus, no_gpus
from agent.checks.rule import Area, Finding, Rule, Severity, Suite
from agent.model.gpu import Gpu
from agent.model.snapshot import Snapshot


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


RULES: tuple[Rule, ...] = (
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
