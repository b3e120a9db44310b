"""A node's sysfs, procfs and host files, read whole or only where they change."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from nodetopo.model.gpu import NvidiaDriver
from nodetopo.model.hca import DataDirect, Hca
from nodetopo.model.host import HostSettings
from nodetopo.model.kubelet import KubeletSettings
from nodetopo.model.kubelet_state import KubeletState
from nodetopo.model.numa import CpuTopology, NumaNode
from nodetopo.model.nvlink import NvSwitch
from nodetopo.model.pci import PciAddress, PciBridge
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.model.snapshot import Kernel
from nodetopo.probes.host.settings import read_host_settings
from nodetopo.probes.kubelet.config import read_kubelet_settings
from nodetopo.probes.kubelet.state import read_kubelet_state
from nodetopo.probes.sysfs import changes
from nodetopo.probes.sysfs.cpu import read_cpu
from nodetopo.probes.sysfs.files import Files
from nodetopo.probes.sysfs.kernel import (
    gpu_memory_nodes,
    is_hidden,
    read_kernel,
    read_nvidia_driver,
)
from nodetopo.probes.sysfs.numa import read_numa
from nodetopo.probes.sysfs.pcie import PciTree, PlacedFunction
from nodetopo.probes.sysfs.rdma import read_rdma
from nodetopo.probes.sysfs.tree import Key, Memo, Outcome, Tree

PRODUCT_NAME = "class/dmi/id/product_name"
"""The machine's DMI name (kernel Documentation/ABI/testing/sysfs-class-dmi)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Roots:
    """Where the node's trees are seen from here.

    Attributes:
        host: the host's root directory, for the kubelet's files.
    """

    sysfs: Path = Path("/sys")
    procfs: Path = Path("/proc")
    host: Path = Path("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class PciFacts:
    """The devices on the PCI bus, RDMA devices included.

    Attributes:
        is_readable: whether a bus can be read.
        nvidia_gpus: the GPUs on PCI, with any driver.
        others: the unrequested ones of them, with the bound driver; a GPU whose device node this
            container lacks is left out.
        placed: the requested GPUs that are present.
    """

    is_readable: bool
    nvidia_gpus: tuple[PciAddress, ...]
    others: Mapping[PciAddress, str | None]
    placed: Mapping[PciAddress, PlacedFunction]
    nvswitches: tuple[NvSwitch, ...]
    bridges: tuple[PciBridge, ...]
    hcas: tuple[Hca, ...] | None
    data_directs: tuple[DataDirect, ...] | None
    management_hcas: tuple[Hca, ...] | None
    issues: tuple[ProbeIssue, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """All that is known of a node without NVML.

    Attributes:
        gpu_memory_nodes: the NUMA node that a GPU's own memory is, where it is one.
    """

    product_name: str | None
    kernel: Kernel
    nvidia: NvidiaDriver | None
    gpu_memory_nodes: Mapping[PciAddress, int]
    pci: PciFacts
    numa_nodes: tuple[NumaNode, ...] | None
    cpu: CpuTopology | None
    kubelet: KubeletSettings | None
    issues: tuple[ProbeIssue, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletFacts:
    """The kubelet's files on disk.

    Attributes:
        settings: with which files are younger than it, and which it passes over.
    """

    settings: KubeletSettings | None
    state: KubeletState | None
    issues: tuple[ProbeIssue, ...]


class Host:
    """Reads a node's trees; rereads only changing facts (:mod:`nodetopo.probes.sysfs.changes`)."""

    def __init__(self, roots: Roots) -> None:
        self.sysfs = Tree(roots.sysfs, changes.pattern(changes.SYSFS))
        self.procfs = Tree(roots.procfs, changes.pattern(changes.PROCFS))
        self.host = Tree(roots.host, changes.pattern(changes.HOST))
        self._memo = Memo(self.sysfs, self.procfs, self.host)
        self._seen: dict[tuple[str, Key], Outcome] = {}

    @property
    def reads(self) -> int:
        """Files opened, directories listed and links followed since :meth:`renew`."""
        return sum(tree.reads for tree in self._trees)

    @property
    def _trees(self) -> tuple[Tree, ...]:
        return self.sysfs, self.procfs, self.host

    def renew(self) -> bool:
        """Begin a scan; return whether all must be reread because hardware was added or removed."""
        for tree in self._trees:
            tree.renew()
        trees = {"sysfs": self.sysfs, "procfs": self.procfs}
        keys = [(name, key) for name, keys in changes.EVENTS.items() for key in keys]
        now = {(name, key): trees[name].outcome(key) for name, key in keys}
        has_event, self._seen = now != self._seen, now
        if has_event:
            self.forget()
        before = dict(self.sysfs.known)
        for pattern in map(re.compile, changes.SUBTREES):
            for key, outcome in before.items():
                match = pattern.fullmatch(key[1])
                if match is not None and self.sysfs.outcome(key) != outcome:
                    self.sysfs.forget(match[1])
        return has_event

    def forget(self) -> None:
        """Read everything again in this scan."""
        for tree in self._trees:
            tree.forget()

    def read(self, gpus: Iterable[PciAddress], *, counters: bool = False) -> HostFacts:
        """Return the node's facts, with the places of *gpus*.

        Args:
            counters: whether to read the error counters of HCAs too.
        """
        part, sysfs, procfs, host = self._memo.part, self.sysfs, self.procfs, self.host
        wanted = tuple(gpus)
        pci = part("pci", (wanted, counters), lambda: self._pci(wanted, counters=counters))
        numa_nodes, numa_issues = part("numa", None, lambda: read_numa(sysfs))
        cpu, cpu_issues = part("cpu", None, lambda: read_cpu(sysfs, procfs))
        kernel, kernel_issues = part("kernel", None, lambda: read_kernel(sysfs, procfs))
        nvidia, nvidia_issues = part(
            "nvidia", None, lambda: read_nvidia_driver(sysfs, procfs, host)
        )
        memory_nodes = part("memory", None, lambda: gpu_memory_nodes(procfs))
        kubelet, kubelet_issues = part("kubelet", None, lambda: read_kubelet_settings(host, procfs))
        dmi = Files("dmi", sysfs)
        product, dmi_issues = part(
            "dmi", None, lambda: (dmi.text(PRODUCT_NAME) or None, dmi.issues)
        )
        return HostFacts(
            product_name=product,
            kernel=kernel,
            nvidia=nvidia,
            gpu_memory_nodes=memory_nodes,
            pci=pci,
            numa_nodes=numa_nodes,
            cpu=cpu,
            kubelet=kubelet,
            issues=(
                *pci.issues,
                *numa_issues,
                *cpu_issues,
                *kernel_issues,
                *nvidia_issues,
                *kubelet_issues,
                *dmi_issues,
            ),
        )

    def settings(self, facts: HostFacts) -> tuple[HostSettings | None, tuple[ProbeIssue, ...]]:
        """Read the facts that only audits need; *facts* are the result of :meth:`read`."""
        return read_host_settings(
            self.sysfs, self.procfs, self.host, hcas=facts.pci.hcas, cpu=facts.cpu
        )

    def kubelet(self) -> KubeletFacts:
        """Read the kubelet's facts that only audits need.

        :meth:`read` already has an issue for unknown settings.
        """
        settings, _issues = read_kubelet_settings(self.host, self.procfs, history=True)
        root_directory = settings.root_directory if settings else None
        state, issues = read_kubelet_state(self.host, root_directory)
        return KubeletFacts(settings=settings, state=state, issues=issues)

    def _pci(self, gpus: tuple[PciAddress, ...], *, counters: bool) -> PciFacts:
        tree, wanted = PciTree(self.sysfs), frozenset(gpus)
        functions = ((address, tree.function(address)) for address in gpus)
        placed = {address: function for address, function in functions if function is not None}
        rdma = read_rdma(self.sysfs, tree, counters=counters)
        hcas = (*(rdma.hcas or ()), *(rdma.management_hcas or ()))
        paths = [function.path for function in placed.values()]
        paths += [hca.path for hca in hcas]
        paths += [direct.path for direct in rdma.data_directs or ()]
        nvidia_gpus, nvswitches = tree.nvidia_gpus(), tree.nvswitches()
        bridges = tree.bridges(filter(None, paths))
        return PciFacts(
            is_readable=tree.is_readable,
            nvidia_gpus=nvidia_gpus,
            others={
                address: tree.driver(address)
                for address in nvidia_gpus
                if address not in wanted and not is_hidden(self.procfs, address)
            },
            placed=placed,
            nvswitches=nvswitches,
            bridges=bridges,
            hcas=rdma.hcas,
            data_directs=rdma.data_directs,
            management_hcas=rdma.management_hcas,
            issues=(*tree.issues, *rdma.issues),
        )
