"""The snapshot: all that is known about one node at one moment, and the program's boundary."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from agent import model
from agent.model.gpu import ConfidentialCompute, Gpu, NvidiaDriver
from agent.model.hca import DataDirect, Hca
from agent.model.host import HostSettings
from agent.model.kubelet import KubeletMetrics, KubeletSettings
from agent.model.kubelet_state import KubeletState
from agent.model.node import NodeOffer, NodeStatus
from agent.model.numa import CpuSet, CpuTopology, NumaNode
from agent.model.nvlink import NvLink, NvSwitch, ReportedPair
from agent.model.pci import PciAddress, PciBridge
from agent.model.pod import Pod

SCHEMA = model.SCHEMA

# "GPU3 nvmlDeviceGetNvLinkState links 0-3", "GPU1 GPU2 NVLink", "system nvmlSystemGetDriverVersion"
_SUBJECT = re.compile(
    r"(?P<device>system|GPU[0-9]{1,4}(?: GPU[0-9]{1,4})*)"
    r"(?: (?P<call>.+?)(?: links? [0-9,-]+)?)?",
    re.DOTALL,
)


class Origin(StrEnum):
    """Whether a stored machine was captured from hardware or composed from published facts."""

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

    The subject of an issue with a device is its device and call; :meth:`of_call` writes it, and
    the properties below read it.

    Attributes:
        probe: the probe that met it: ``nvml``, ``pcie``, ``numa``, ``rdma``, ``kubelet`` …
        subject: the device, call or file, e.g. ``GPU3 nvmlDeviceGetMemoryInfo``.
        reason: what came back.
    """

    probe: str
    subject: str
    reason: str

    @classmethod
    def of_call(
        cls, device: str, call: str, reason: str, *, links: Sequence[int] = ()
    ) -> "ProbeIssue":
        """Return the issue of an NVML *call* about a *device*.

        Args:
            device: ``GPU3``, a pair ``GPU3 GPU4``, or ``system``.
            links: the NVLinks of the device that the issue is about; none means all of it.
        """
        named = f" link{'s' if len(links) > 1 else ''} {CpuSet.of(links)}" if links else ""
        return cls(probe="nvml", subject=f"{device} {call}{named}", reason=reason)

    @property
    def device(self) -> str | None:
        """``GPU3``, ``GPU3 GPU4`` or ``system``; ``None`` where the subject is no device."""
        match = _SUBJECT.fullmatch(self.subject)
        return match and match["device"]

    @property
    def gpus(self) -> tuple[int, ...]:
        """The indices of the GPUs that the subject names: none, one or a pair."""
        names = (self.device or "").split()
        return tuple(int(name.removeprefix("GPU")) for name in names if name != "system")

    @property
    def call(self) -> str:
        """What was asked about the device, such as ``nvmlDeviceGetMigMode``; empty without one."""
        match = _SUBJECT.fullmatch(self.subject)
        return (match and match["call"]) or ""

    @property
    def is_whole(self) -> bool:
        """Whether NVML as a whole did not answer, rather than one call about one device."""
        return self.probe == "nvml" and self.device is None

    @property
    def pci(self) -> PciAddress | None:
        """The PCI address that is the subject; ``None`` where it is something else."""
        return PciAddress.parse_or_none(self.subject)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """The running kernel and the settings that placement depends on.

    Attributes:
        modules: loaded modules, sorted; ``None`` if ``/proc/modules`` was not readable.
        sysctls: dotted name → value, only those that checks use.
        transparent_hugepages: the selected word of ``transparent_hugepage/enabled``.
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
    ``None`` for a part means that it was not read; an empty tuple means that there is none.

    Attributes:
        node: name of the node; ``None`` in files without it.
        captured_at: UTC; ``None`` where the source is text without a date.
        cuda_version: of the driver's CUDA API, (major, minor).
        product_name: DMI name of the machine.
        pci_gpus: the NVIDIA GPUs on the PCI bus, whatever their driver and whether or not NVML
            lists them; without virtual functions.
        management_hcas: HCAs that belong to the NVLink fabric and not to jobs (their VPD says
            ``SMDL=SW_MNG``); nvidia-smi hides them too.
        kubelet: the settings that it runs with; from its files where it did not answer itself.
        kubelet_on_disk: the settings in its files and flags, with which it would start next.
        offer: what the kubelet can allocate (PodResources GetAllocatableResources).
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
