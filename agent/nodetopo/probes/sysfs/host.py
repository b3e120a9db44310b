"""A node's sysfs, procfs and host files, read whole or only where they change."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.model.pci import PciAddress
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.model.snapshot import Snapshot
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


class Roots(Struct, frozen=True, kw_only=True):
    """Where the node's trees are seen from here."""

    sysfs: Path = Path("/sys")
    procfs: Path = Path("/proc")
    host: Path = Path("/")  # the host's root directory, for the kubelet's files


class Places(Struct, frozen=True, kw_only=True):
    """The GPUs on the PCI bus, which NVML's are joined with."""

    listed: tuple[PciAddress, ...] | None  # with any driver; ``None`` if no bus can be read
    # The unrequested ones of them, with the bound driver; a GPU whose device node this container
    # lacks is left out.
    others: Mapping[PciAddress, str | None]
    placed: Mapping[PciAddress, PlacedFunction]  # the requested GPUs that are present
    # The NUMA node that a GPU's own memory is, where it is one.
    memory_nodes: Mapping[PciAddress, int]


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

    def read(
        self, gpus: Iterable[PciAddress], *, counters: bool = False
    ) -> tuple[Snapshot, Places]:
        """Return all that is known of the node without NVML, and the places of *gpus*.

        Args:
            counters: whether to read the error counters of HCAs too.
        """
        part, sysfs, procfs, host = self._memo.part, self.sysfs, self.procfs, self.host
        wanted, dmi = tuple(gpus), Files("dmi", sysfs)
        pci, places = part("pci", (wanted, counters), lambda: self._pci(wanted, counters=counters))
        read: Mapping[str, tuple[Any, tuple[ProbeIssue, ...]]] = {
            "numa_nodes": part("numa", None, lambda: read_numa(sysfs)),
            "cpu": part("cpu", None, lambda: read_cpu(sysfs, procfs)),
            "kernel": part("kernel", None, lambda: read_kernel(sysfs, procfs)),
            "nvidia": part("nvidia", None, lambda: read_nvidia_driver(sysfs, procfs, host)),
            "kubelet": part("kubelet", None, lambda: read_kubelet_settings(host, procfs)),
            "product_name": part("dmi", None, lambda: (dmi.text(PRODUCT_NAME) or None, dmi.issues)),
        }
        facts = replace(
            pci,
            issues=(*pci.issues, *(issue for _, issues in read.values() for issue in issues)),
            **{name: fact for name, (fact, _) in read.items()},
        )
        return facts, places

    def for_audits(self, snapshot: Snapshot, facts: Snapshot) -> Snapshot:
        """Return *snapshot* with what only audits need, for the HCAs and CPUs of *facts*.

        :meth:`read` already has an issue for unknown settings of the kubelet.
        """
        settings, issues = read_host_settings(
            self.sysfs, self.procfs, self.host, hcas=facts.hcas, cpu=facts.cpu
        )
        kubelet, _issues = read_kubelet_settings(self.host, self.procfs, history=True)
        root_directory = kubelet.root_directory if kubelet else None
        state, more = read_kubelet_state(self.host, root_directory)
        return replace(
            snapshot,
            host=settings,
            kubelet=kubelet,
            kubelet_on_disk=kubelet,
            kubelet_state=state,
            issues=(*snapshot.issues, *issues, *more),
        )

    def _pci(self, gpus: tuple[PciAddress, ...], *, counters: bool) -> tuple[Snapshot, Places]:
        tree, wanted = PciTree(self.sysfs), frozenset(gpus)
        functions = ((address, tree.function(address)) for address in gpus)
        placed = {address: function for address, function in functions if function is not None}
        rdma = read_rdma(self.sysfs, tree, counters=counters)
        paths = [function.path for function in placed.values()]
        paths += [hca.path for hca in (*(rdma.hcas or ()), *(rdma.management_hcas or ()))]
        paths += [direct.path for direct in rdma.data_directs or ()]
        nvidia_gpus, nvswitches = tree.nvidia_gpus(), tree.nvswitches()
        bridges = tree.bridges(filter(None, paths))
        listed = nvidia_gpus if tree.is_readable else None
        others = {
            address: tree.driver(address)
            for address in nvidia_gpus
            if address not in wanted and not is_hidden(self.procfs, address)
        }
        facts = Snapshot(
            pci_gpus=listed,
            nvswitches=nvswitches if tree.is_readable else None,
            bridges=bridges if tree.is_readable else None,
            hcas=rdma.hcas,
            data_directs=rdma.data_directs,
            management_hcas=rdma.management_hcas,
            issues=(*tree.issues, *rdma.issues),
        )
        memory_nodes = gpu_memory_nodes(self.procfs)
        places = Places(listed=listed, others=others, placed=placed, memory_nodes=memory_nodes)
        return facts, places
