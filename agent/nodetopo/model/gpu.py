"""A GPU as NVML and sysfs describe it, with its MIG devices and its driver."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from nodetopo.model.limits import GpuIndex, Mib, NumaId, NumaIds, NvLinks, SpeedMbps
from nodetopo.model.numa import CpuSet
from nodetopo.model.pci import PciAddress, PcieLink, PciFunction, PciPath


@dataclass(frozen=True, slots=True, kw_only=True)
class MigPlacement:
    """Where a GPU instance lies, in memory slices (``nvmlGpuInstancePlacement_t``)."""

    start: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MigAttributes:
    """The resources of a MIG device (``nvmlDeviceGetAttributes_v2``); counts, except the memory."""

    multiprocessors: int
    copy_engines: int
    decoders: int
    encoders: int
    jpeg_engines: int
    ofa_engines: int
    gpu_instance_slices: int
    compute_instance_slices: int
    memory_mib: Mib


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
    memory_mib: Mib | None = None
    attributes: MigAttributes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mig:
    """A GPU's MIG state.

    Attributes:
        is_pending: whether another mode takes effect at the next reset.
        max_instances: the most MIG devices that the GPU can hold.
    """

    is_enabled: bool
    is_pending: bool | None = None
    max_instances: int | None = None
    instances: tuple[MigInstance, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NvidiaDriver:
    """The loaded NVIDIA kernel module as procfs and sysfs show it.

    Attributes:
        is_open: whether it is the open kernel module, which dma-buf needs
            (``/proc/driver/nvidia/version``).
        parameters: ``/proc/driver/nvidia/params``, names without the ``NVreg_``.
        peer_memory: whether an RDMA driver can register GPU memory through nvidia_peermem
            (NCCL's own test: ``memory_peers/nv_mem*`` or the module ``nvidia_peermem``).
        imex_channels: numbers of ``/dev/nvidia-caps-imex-channels``; ``None`` where not read.
    """

    is_open: bool | None = None
    parameters: Mapping[str, str] | None = None
    peer_memory: bool | None = None
    imex_channels: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfidentialCompute:
    """The state of confidential computing (``nvmlSystemGetConfComputeState``).

    Attributes:
        is_enabled: whether GPU memory is encrypted, which also turns peer access off.
        is_dev_tools: whether the mode for developers is on, which protects nothing.
    """

    is_enabled: bool
    is_dev_tools: bool | None = None


FIRST_WITH_ROW_REMAPPING = (8, 0)
"""Compute capability of A100. From it on, GPUs remap memory rows, where older ones retire pages
(NVIDIA GPU Memory Error Management), and report on their SRAM (nvml.h,
nvmlDeviceGetSramEccErrorStatus)."""

DISPLAYS = frozenset({"DGX Display", "NVIDIA DGX Display"})
"""Products that are not GPUs to compute on: the display adapters of DGX stations (go-nvlib,
pkg/nvlib/device/api.go)."""


class FabricState(StrEnum):
    """The state of the GPU's registration with the NVLink fabric (``nvmlGpuFabricState_t``)."""

    NOT_SUPPORTED = "not-supported"
    NOT_STARTED = "not-started"
    IN_PROGRESS = "in-progress"
    COMPLETED = "completed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """The GPU's membership in a multi-node NVLink fabric (``nvmlGpuFabricInfoV_t``).

    Attributes:
        status: the ``nvmlReturn_t`` of the registration; 0 is success.
        cluster_uuid: ``None`` when all zero, which is what an HGX board without a
            multi-node fabric reports.
        clique_id: the partition inside the cluster.
        health_mask: raw bits; ``None`` on drivers that do not report it.
    """

    state: FabricState
    status: int | None = None
    cluster_uuid: str | None = None
    clique_id: int | None = None
    health_mask: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemappedRows:
    """Memory rows that the GPU replaced (``nvmlDeviceGetRemappedRows``)."""

    correctable: int
    uncorrectable: int
    is_pending: bool
    has_failed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EccErrors:
    """Uncorrectable memory errors (``nvmlDeviceGetTotalEccErrors``).

    Attributes:
        volatile: since the driver was loaded.
        aggregate: in the life of the GPU.
    """

    volatile: int | None = None
    aggregate: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class C2c:
    """The chip-to-chip link between a Grace CPU and its GPU; other GPUs report it disabled.

    Attributes:
        is_enabled: ``nvmlDeviceGetC2cModeInfoV``.
        links: field ``NVML_FI_DEV_C2C_LINK_COUNT``.
        speed_mbps: of one link, one direction (field ``NVML_FI_DEV_C2C_LINK_GET_MAX_BW``).
    """

    is_enabled: bool
    links: NvLinks | None = None
    speed_mbps: SpeedMbps | None = None


class Virtualization(StrEnum):
    """How the GPU reached this kernel (``nvmlGpuVirtualizationMode_t``, in its order)."""

    NONE = "none"
    PASSTHROUGH = "passthrough"
    VGPU = "vgpu"
    HOST_VGPU = "host-vgpu"
    HOST_VSGA = "host-vsga"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One physical GPU.

    Attributes:
        index: NVML's order, by PCI address; not ``CUDA_VISIBLE_DEVICES``.
        uuid: ``None`` only in snapshots read from text without UUIDs.
        minor: the N of ``/dev/nvidiaN``; not always the index.
        product: ``nvmlDeviceGetName``.
        architecture: lower-case NVIDIA name, e.g. ``hopper``.
        compute_capability: (major, minor).
        serial, vbios: of the board.
        module_id: the place on the baseboard (``nvmlDeviceGetModuleId``).
        board_id: equal for GPUs behind the same PCIe switch chip of one board
            (``nvmlDeviceGetBoardId``, nvml.h).
        numa_node: the node of the PCI function; ``None`` if firmware gave none (sysfs −1).
        numa_affinity: all nodes that ``nvidia-smi topo -m`` lists, CPU node first; differs from
            *numa_node* if GPU memory is a separate node (Grace).
        memory_numa_node: the node formed by the GPU's memory (``GPU NUMA ID``); ``None`` if it is
            not a node, as on x86.
        cpu_affinity: the CPUs nearest to the GPU.
        is_lost: whether NVML answered GPU_IS_LOST; all other fields are then the last known.
        pcie: NVML's own view of the link; sysfs's is in *function*.
        ecc, ecc_pending: whether error correction is on, and will be after the next reset.
        nvlink_count: NVLinks of the product, connected or not (NVML field 91); ``None`` where the
            driver does not know the field.
        recovery_action: NVML field 230; 0 none, 1 reset, 2 reboot, 3 drain P2P, 4 drain and reset,
            5 recover the IMEX domain, 6 bus reset, 7 reboot of the system (nvml.h
            ``nvmlDeviceGpuRecoveryAction_t``).
        retired_pages_pending: whether memory pages wait for a reset to be retired.
        is_over_sram_threshold: whether the GPU's on-chip memory had more uncorrectable errors than
            NVIDIA's field diagnostic accepts (``nvmlDeviceGetSramEccErrorStatus``, from A100 on).
            ``None`` also where the library is older than the call, or wants more rights for it.
        throttle_reasons: raw bits of ``nvmlDeviceGetCurrentClocksEventReasons``, why the clocks are
            reduced, at the last whole scan; a periodic scan keeps them.
    """

    index: GpuIndex
    uuid: str | None = None
    minor: int | None = None
    pci: PciAddress | None = None
    path: PciPath | None = None
    function: PciFunction | None = None
    product: str | None = None
    architecture: str | None = None
    compute_capability: tuple[int, int] | None = None
    memory_mib: Mib | None = None
    serial: str | None = None
    vbios: str | None = None
    module_id: int | None = None
    board_id: int | None = None
    numa_node: NumaId | None = None
    numa_affinity: NumaIds | None = None
    memory_numa_node: NumaId | None = None
    cpu_affinity: CpuSet | None = None
    pcie: PcieLink | None = None
    persistence: bool | None = None
    virtualization: Virtualization | None = None
    ecc: bool | None = None
    ecc_pending: bool | None = None
    ecc_errors: EccErrors | None = None
    mig: Mig | None = None
    fabric: Fabric | None = None
    c2c: C2c | None = None
    nvlink_count: NvLinks | None = None
    remapped_rows: RemappedRows | None = None
    retired_pages_pending: bool | None = None
    is_over_sram_threshold: bool | None = None
    recovery_action: int | None = None
    throttle_reasons: int | None = None
    is_lost: bool = False

    @property
    def is_divided(self) -> bool:
        """Whether the GPU is known to be in MIG mode, in which it uses no NVLink."""
        return self.mig is not None and self.mig.is_enabled

    @property
    def is_of_lost_mode(self) -> bool:
        """Whether the GPU was lost before its MIG mode was read."""
        return self.is_lost and self.mig is None

    @property
    def id(self) -> str:
        """The UUID where known, else ``GPU<index>``: the name that other programs see."""
        return self.uuid or self.name

    @property
    def name(self) -> str:
        """The row name of ``nvidia-smi topo -m``: ``GPU<index>``."""
        return f"GPU{self.index}"
