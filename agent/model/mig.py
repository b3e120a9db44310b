"""MIG: what a partitioned GPU offers instead of itself."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MigInstance:
    """One MIG device: a compute instance inside a GPU instance.

    Attributes:
        profile: as ``nvidia-smi -L`` names it, e.g. ``1g.10gb``.
        gpu_instance, compute_instance: the ids that NVML gives them on their GPU.
    """

    uuid: str
    profile: str | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None
    memory_mib: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mig:
    """A GPU's MIG state; NVML reports a *pending* mode until the next reset."""

    is_enabled: bool
    is_pending: bool | None = None
    instances: tuple[MigInstance, ...] = ()
