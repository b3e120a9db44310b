"""The snapshot: all that is known about one node at one moment, and the program's boundary."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, TypeAlias

from msgspec import Struct

from nodetopo import model
from nodetopo.model.dra import PublishedDevice
from nodetopo.model.gpu import ConfidentialCompute, Gpu, NvidiaDriver
from nodetopo.model.hca import DataDirect, Hca
from nodetopo.model.host import HostSettings
from nodetopo.model.kubelet import KubeletMetrics, KubeletSettings
from nodetopo.model.kubelet_state import KubeletState
from nodetopo.model.limits import MAX_GPUS, MAX_HCAS, MAX_NUMA_NODES, MAX_NVLINKS, MAX_PAIRS, Count
from nodetopo.model.node import NodeOffer, NodeStatus
from nodetopo.model.numa import CpuTopology, NumaNode
from nodetopo.model.nvlink import NvLink, NvSwitch, ReportedPair
from nodetopo.model.pci import PciAddress, PciBridge
from nodetopo.model.pod import Pod
from nodetopo.model.presence import ExpectedGpus, UnlistedGpu
from nodetopo.model.probe_issue import ProbeIssue

SCHEMA = model.SCHEMA

_Hcas: TypeAlias = Annotated[tuple[Hca, ...], Count(0, MAX_HCAS)]


class Origin(StrEnum):
    """Whether a stored machine was captured from hardware or composed from published facts."""

    CAPTURED = "captured"
    COMPOSED = "composed"


class Provenance(Struct, frozen=True, kw_only=True):
    """Where a stored machine comes from; absent from a snapshot of the live node."""

    origin: Origin
    description: str
    sources: tuple[str, ...] = ()


class Kernel(Struct, frozen=True, kw_only=True):
    """The running kernel and the settings that placement depends on."""

    release: str | None = None
    command_line: str | None = None
    machine: str | None = None
    modules: tuple[str, ...] | None = None  # loaded ones, sorted
    sysctls: Mapping[str, str] | None = None  # dotted name → value, only those that checks use
    transparent_hugepages: str | None = None  # the selected word
    rdma_netns: str | None = None  # shared or exclusive (ib_core's parameter `netns_mode`)


class Snapshot(Struct, frozen=True, kw_only=True):
    """One node at one moment.

    Order: *gpus* by index, *nvlinks* by (gpu, link), *numa_nodes* by id, *hcas* as the kernel
    registered them (so that position N is nvidia-smi's row ``NIC<N>``), *data_directs* by
    address (row ``DD<N>``), *pci_gpus* and *bridges* by address.
    ``None`` for a part means that it was not read; an empty tuple means that there is none.
    """

    node: str | None = None  # None in files without it
    captured_at: datetime | None = None  # UTC; None where the source is text without a date
    provenance: Provenance | None = None
    driver_version: str | None = None
    nvml_version: str | None = None
    cuda_version: tuple[int, int] | None = None  # of the driver's CUDA API, (major, minor)
    product_name: str | None = None  # of the machine, by DMI
    kernel: Kernel | None = None
    nvidia: NvidiaDriver | None = None
    confidential_compute: ConfidentialCompute | None = None
    gpus: Annotated[tuple[Gpu, ...], Count(0, MAX_GPUS)] = ()
    # The NVIDIA GPUs on the PCI bus, whatever their driver and whether or not NVML lists them;
    # without virtual functions.
    pci_gpus: Annotated[tuple[PciAddress, ...], Count(0, MAX_GPUS)] | None = None
    # Those of them that NVML does not list, though it answers. It is not known of a GPU that is
    # neither here nor in `gpus`.
    unlisted_gpus: Annotated[tuple[UnlistedGpu, ...], Count(0, MAX_GPUS)] = ()
    expected_gpus: ExpectedGpus | None = None  # how many a setting expects, or the machine has had
    nvlinks: Annotated[tuple[NvLink, ...], Count(0, MAX_GPUS * MAX_NVLINKS)] | None = None
    nvswitches: tuple[NvSwitch, ...] | None = None
    pairs: Annotated[tuple[ReportedPair, ...], Count(0, MAX_PAIRS)] = ()
    bridges: tuple[PciBridge, ...] | None = None
    numa_nodes: Annotated[tuple[NumaNode, ...], Count(0, MAX_NUMA_NODES)] | None = None
    cpu: CpuTopology | None = None
    hcas: _Hcas | None = None
    data_directs: Annotated[tuple[DataDirect, ...], Count(0, MAX_HCAS)] | None = None
    # HCAs that belong to the NVLink fabric and not to jobs (their VPD says `SMDL=SW_MNG`);
    # nvidia-smi hides them too.
    management_hcas: _Hcas | None = None
    host: HostSettings | None = None
    # In force; from its files where it did not answer itself.
    kubelet: KubeletSettings | None = None
    # From files and flags: with which it would start next.
    kubelet_on_disk: KubeletSettings | None = None
    kubelet_state: KubeletState | None = None
    kubelet_metrics: KubeletMetrics | None = None
    node_status: NodeStatus | None = None
    # "verb resource" → whether the agent's account has it, such as "get nodes/proxy"
    agent_rights: Mapping[str, bool] | None = None
    pods: tuple[Pod, ...] | None = None
    # What the kubelet can allocate (PodResources GetAllocatableResources).
    offer: NodeOffer | None = None
    # By DRA drivers for this node (ResourceSlices).
    published: tuple[PublishedDevice, ...] | None = None
    issues: tuple[ProbeIssue, ...] = ()

    @property
    def kubelet_version(self) -> str | None:
        """The version of the kubelet, by its own word, else by the Node object."""
        on_node = self.node_status.kubelet_version if self.node_status else None
        settings = (self.kubelet, self.kubelet_on_disk)
        return next((one.version for one in settings if one and one.version), on_node)
