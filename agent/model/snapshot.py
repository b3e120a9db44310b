"""The snapshot: all that was learnt of one node at one moment, the boundary of the program."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from agent.model.gpu import ConfidentialCompute, Gpu, NvidiaDriver
from agent.model.hca import DataDirect, Hca
from agent.model.host import HostSettings
from agent.model.kubelet import KubeletMetrics, KubeletSettings
from agent.model.kubelet_state import KubeletState
from agent.model.node import NodeOffer, NodeStatus
from agent.model.numa import CpuTopology, NumaNode
from agent.model.nvlink import NvLink, NvSwitch, ReportedPair
from agent.model.pci import PciAddress, PciBridge
from agent.model.pod import Pod

SCHEMA = "nodetopo/v1"


class Origin(StrEnum):
    """Whether a stored machine was read off hardware or put together from published facts."""

    CAPTURED = "captured"
    COMPOSED = "composed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where a stored machine comes from; absent from a snapshot of the live node."""

    origin: Origin
    description: str
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeIssue:
    """Something that could not be read, and so is ``None`` or missing in the snapshot.

    Attributes:
        probe: which reader met it: ``nvml``, ``pcie``, ``numa``, ``rdma``, ``kubelet`` …
        subject: the device, call or file, e.g. ``GPU3 nvmlDeviceGetMemoryInfo``.
        reason: what came back.
    """

    probe: str
    subject: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """The running kernel and the settings that placement depends on.

    Attributes:
        modules: loaded modules, sorted; ``None`` if ``/proc/modules`` was not readable.
        sysctls: dotted name → value, only those that checks ask for.
        transparent_hugepages: the chosen word of ``transparent_hugepage/enabled``.
        rdma_netns: ``shared`` or ``exclusive`` (``ib_core``'s parameter ``netns_mode``).
    """

    release: str | None = None
    command_line: str | None = None
    machine: str | None = None
    modules: tuple[str, ...] | None = None
    sysctls: Mapping[str, str] | None = None
    transparent_hugepages: str | None = None
    rdma_netns: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One node at one moment.

    Order: *gpus* by index, *nvlinks* by (gpu, link), *numa_nodes* by id, *hcas* as the kernel
    registered them (so that position N is nvidia-smi's row ``NIC<N>``), *data_directs* by
    address (row ``DD<N>``), *pci_gpus* and *bridges* by address.
    ``None`` for a part means that it was not read; an empty tuple means that it was, and
    that there is none.

    Attributes:
        node: name of the node; ``None`` in files that do not know it.
        captured_at: UTC; ``None`` where the source is text without a date.
        cuda_version: of the driver's CUDA API, (major, minor).
        product_name: DMI name of the machine.
        pci_gpus: the NVIDIA GPUs that the PCI bus shows, whatever driver they have and whether
            or not NVML lists them; virtual functions are not among them.
        management_hcas: HCAs that belong to the NVLink fabric and not to jobs (their VPD says
            ``SMDL=SW_MNG``); nvidia-smi hides them too.
        kubelet: what it runs with; from its files where it did not answer itself.
        kubelet_on_disk: what its files and flags say, with which it would start next.
        offer: what the kubelet says that it can give out (PodResources GetAllocatableResources).
        agent_rights: ``verb resource`` → whether the agent's account may, e.g.
            ``get nodes/proxy``.
    """

    node: str | None = None
    captured_at: datetime | None = None
    provenance: Provenance | None = None
    driver_version: str | None = None
    nvml_version: str | None = None
    cuda_version: tuple[int, int] | None = None
    product_name: str | None = None
    kernel: Kernel | None = None
    nvidia: NvidiaDriver | None = None
    confidential_compute: ConfidentialCompute | None = None
    gpus: tuple[Gpu, ...] = ()
    pci_gpus: tuple[PciAddress, ...] | None = None
    nvlinks: tuple[NvLink, ...] | None = None
    nvswitches: tuple[NvSwitch, ...] | None = None
    pairs: tuple[ReportedPair, ...] = ()
    bridges: tuple[PciBridge, ...] | None = None
    numa_nodes: tuple[NumaNode, ...] | None = None
    cpu: CpuTopology | None = None
    hcas: tuple[Hca, ...] | None = None
    data_directs: tuple[DataDirect, ...] | None = None
    management_hcas: tuple[Hca, ...] | None = None
    host: HostSettings | None = None
    kubelet: KubeletSettings | None = None
    kubelet_on_disk: KubeletSettings | None = None
    kubelet_state: KubeletState | None = None
    kubelet_metrics: KubeletMetrics | None = None
    node_status: NodeStatus | None = None
    agent_rights: Mapping[str, bool] | None = None
    pods: tuple[Pod, ...] | None = None
    offer: NodeOffer | None = None
    issues: tuple[ProbeIssue, ...] = ()
