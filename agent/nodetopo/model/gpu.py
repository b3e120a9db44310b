"""A GPU as NVML and sysfs describe it, with its MIG devices and its driver."""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from nodetopo.model.limits import GpuIndex, Mib, NumaId, NumaIds, NvLinks, SpeedMbps
from nodetopo.model.numa import CpuSet
from nodetopo.model.pci import PciAddress, PcieLink, PciFunction, PciPath


class MigPlacement(Struct, frozen=True, kw_only=True):
    """Where a GPU instance lies, in memory slices (``nvmlGpuInstancePlacement_t``)."""

    start: int
    size: int


class MigAttributes(Struct, frozen=True, kw_only=True):
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


class MigInstance(Struct, frozen=True, kw_only=True):
    """One MIG device: a compute instance inside a GPU instance."""

    uuid: str
    parent_uuid: str | None = None  # the GPU's
    profile: str | None = None  # as `nvidia-smi -L` names it: 1g.10gb
    profile_id: int | None = None  # number of the GPU instance's profile (`nvmlGpuInstanceGetInfo`)
    placement: MigPlacement | None = None
    # gpu_instance, compute_instance: NVML's ids on the GPU
    gpu_instance: int | None = None
    compute_instance: int | None = None
    memory_mib: Mib | None = None
    attributes: MigAttributes | None = None


class Mig(Struct, frozen=True, kw_only=True):
    """A GPU's MIG state."""

    is_enabled: bool
    is_pending: bool | None = None  # the other mode takes effect at the next reset
    max_instances: int | None = None  # most MIG devices of the GPU
    instances: tuple[MigInstance, ...] = ()


class NvidiaDriver(Struct, frozen=True, kw_only=True):
    """The loaded NVIDIA kernel module as procfs and sysfs show it."""

    # The open kernel module, which dma-buf needs (/proc/driver/nvidia/version).
    is_open: bool | None = None
    parameters: Mapping[str, str] | None = None  # /proc/driver/nvidia/params, without NVreg_
    # An RDMA driver can register GPU memory through nvidia_peermem (NCCL's own test:
    # `memory_peers/nv_mem*` or the module `nvidia_peermem`).
    peer_memory: bool | None = None
    imex_channels: tuple[int, ...] | None = None  # numbers of /dev/nvidia-caps-imex-channels


class ConfidentialCompute(Struct, frozen=True, kw_only=True):
    """The state of confidential computing (``nvmlSystemGetConfComputeState``)."""

    is_enabled: bool  # GPU memory is encrypted, which turns peer access off
    is_dev_tools: bool | None = None  # the developers' mode, which protects nothing


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


class Fabric(Struct, frozen=True, kw_only=True):
    """The GPU's membership in a multi-node NVLink fabric (``nvmlGpuFabricInfoV_t``)."""

    state: FabricState
    status: int | None = None  # `nvmlReturn_t` of the registration; 0 is success
    # None when all zero, as on an HGX board without a multi-node fabric.
    cluster_uuid: str | None = None
    clique_id: int | None = None  # the partition inside the cluster
    health_mask: int | None = None  # raw bits; None on drivers that do not report it


class RemappedRows(Struct, frozen=True, kw_only=True):
    """Memory rows that the GPU replaced (``nvmlDeviceGetRemappedRows``)."""

    correctable: int
    uncorrectable: int
    is_pending: bool
    has_failed: bool


class EccErrors(Struct, frozen=True, kw_only=True):
    """Uncorrectable memory errors (``nvmlDeviceGetTotalEccErrors``)."""

    volatile: int | None = None  # since the driver was loaded
    aggregate: int | None = None  # in the life of the GPU


class C2c(Struct, frozen=True, kw_only=True):
    """The chip-to-chip link between a Grace CPU and its GPU; other GPUs report it disabled."""

    is_enabled: bool  # nvmlDeviceGetC2cModeInfoV
    links: NvLinks | None = None  # field NVML_FI_DEV_C2C_LINK_COUNT
    # Of one link, one direction (field NVML_FI_DEV_C2C_LINK_GET_MAX_BW).
    speed_mbps: SpeedMbps | None = None


class Virtualization(StrEnum):
    """How the GPU reached this kernel (``nvmlGpuVirtualizationMode_t``, in its order)."""

    NONE = "none"
    PASSTHROUGH = "passthrough"
    VGPU = "vgpu"
    HOST_VGPU = "host-vgpu"
    HOST_VSGA = "host-vsga"


class Gpu(Struct, frozen=True, kw_only=True):
    """One physical GPU."""

    index: GpuIndex  # NVML's order, by PCI address; not CUDA_VISIBLE_DEVICES
    uuid: str | None = None  # None only in snapshots read from text without UUIDs
    minor: int | None = None  # the N of /dev/nvidiaN; not always the index
    pci: PciAddress | None = None
    path: PciPath | None = None
    function: PciFunction | None = None
    product: str | None = None  # nvmlDeviceGetName
    architecture: str | None = None  # NVIDIA's name in lower case: hopper
    compute_capability: tuple[int, int] | None = None  # (major, minor)
    memory_mib: Mib | None = None
    # serial, vbios: of the board
    serial: str | None = None
    vbios: str | None = None
    module_id: int | None = None  # the place on the baseboard (nvmlDeviceGetModuleId)
    # Equal for GPUs behind the same PCIe switch chip of one board (`nvmlDeviceGetBoardId`, nvml.h).
    board_id: int | None = None
    numa_node: NumaId | None = None  # of the PCI function; None if firmware gave none (sysfs −1)
    # All nodes that `nvidia-smi topo -m` lists, CPU node first; differs from `numa_node` if GPU
    # memory is a separate node (Grace).
    numa_affinity: NumaIds | None = None
    # The node formed by the GPU's memory (`GPU NUMA ID`); None if it is not a node, as on x86.
    memory_numa_node: NumaId | None = None
    cpu_affinity: CpuSet | None = None  # the nearest CPUs
    pcie: PcieLink | None = None  # NVML's view of the link; sysfs's is in `function`
    persistence: bool | None = None
    virtualization: Virtualization | None = None
    # ecc, ecc_pending: on now, and after the next reset
    ecc: bool | None = None
    ecc_pending: bool | None = None
    ecc_errors: EccErrors | None = None
    mig: Mig | None = None
    fabric: Fabric | None = None
    c2c: C2c | None = None
    nvlink_count: NvLinks | None = None  # of the product, connected or not (field 91)
    remapped_rows: RemappedRows | None = None
    retired_pages_pending: bool | None = None  # memory pages wait for a reset to be retired
    # The GPU's on-chip memory had more uncorrectable errors than NVIDIA's field diagnostic accepts
    # (`nvmlDeviceGetSramEccErrorStatus`, from A100 on). None also where the library is older than
    # the call, or wants more rights for it.
    is_over_sram_threshold: bool | None = None
    # NVML field 230; 0 none, 1 reset, 2 reboot, 3 drain P2P, 4 drain and reset, 5 recover the IMEX
    # domain, 6 bus reset, 7 reboot of the system (nvml.h `nvmlDeviceGpuRecoveryAction_t`).
    recovery_action: int | None = None
    # Raw bits of `nvmlDeviceGetCurrentClocksEventReasons`, why the clocks are reduced, at the last
    # whole scan; a periodic scan keeps them.
    throttle_reasons: int | None = None
    is_lost: bool = False  # NVML answered GPU_IS_LOST; all other fields are the last known

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
