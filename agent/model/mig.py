"""MIG: what a partitioned GPU offers instead of itself."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MigPlacement:
    """Where a GPU instance lies, in memory slices (``nvmlGpuInstancePlacement_t``)."""

    start: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MigAttributes:
    """What a MIG device may use (``nvmlDeviceGetAttributes_v2``); counts, except the memory."""

    multiprocessors: int
    copy_engines: int
    decoders: int
    encoders: int
    jpeg_engines: int
    ofa_engines: int
    gpu_instance_slices: int
    compute_instance_slices: int
    memory_mib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MigInstance:
    """One MIG device: a compute instance inside a GPU instance.

    Attributes:
        parent_uuid: of the GPU it is a part of.
        profile: as ``nvidia-smi -L`` names it, e.g. ``1g.10gb``.
        profile_id: number of the GPU instance's profile (``nvmlGpuInstanceGetInfo``).
        gpu_instance, compute_instance: the ids that NVML gives them on their GPU.
    """

    uuid: str
    parent_uuid: str | None = None
    profile: str | None = None
    profile_id: int | None = None
    placement: MigPlacement | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None
    memory_mib: int | None = None
    attributes: MigAttributes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mig:
    """A GPU's MIG state.

    Attributes:
        is_pending: another mode waits for the next reset.
        max_instances: how many MIG devices the GPU can hold at most.
    """

    is_enabled: bool
    is_pending: bool | None = None
    max_instances: int | None = None
    instances: tuple[MigInstance, ...] = ()
