"""What composed machines have in common: their software, and how all parts become one."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from msgspec import Struct, field
from msgspec.structs import replace

from nodetopo.model.gpu import ConfidentialCompute, Gpu, NvidiaDriver
from nodetopo.model.hca import LINK_ERRORS, DataDirect, Hca, NetDevice
from nodetopo.model.kubelet import KubeletSettings
from nodetopo.model.nvlink import NvLink, NvSwitch, ReportedPair
from nodetopo.model.pci import PciAddress
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.model.snapshot import Kernel, Origin, Provenance, Snapshot
from tests.compose.answers import with_answers
from tests.compose.cards import BMC_DISPLAY, INTEL_X550, NVIDIA
from tests.compose.host import Host
from tests.compose.host_settings import host_settings
from tests.compose.kubelet import AS_INSTALLED, as_read
from tests.compose.kubelet_state import kubelet_state
from tests.compose.machine import Bystander, Machine, Processor
from tests.compose.pci_tree import BridgeModel, Leaf, PciTree, Port, Root, leaf, port, root

CAPTURED_AT = datetime(2026, 11, 1, tzinfo=UTC)
UNSOURCED = (
    "bus numbers, PCI ids, serials, firmware versions, SLIT distances and MIG attributes: "
    "plausible, of no one machine; what the documents state was not checked on hardware"
)
"""Said in the provenance of every composed machine."""

NVIDIA_MODULES = ("nvidia", "nvidia_modeset", "nvidia_uvm")
RDMA_MODULES = ("ib_core", "ib_uverbs", "mlx5_core", "mlx5_ib", "rdma_ucm")

PARAMETERS: Mapping[str, str] = {
    "CoherentGPUMemoryMode": "",
    "CreateImexChannel0": "0",
    "DmaRemapPeerMmio": "1",
    "EnablePCIERelaxedOrderingMode": "0",
    "EnableResizableBar": "0",
    "GrdmaPciTopoCheckOverride": "0",
    "ImexChannelCount": "2048",
    "NvLinkDisable": "0",
    "RegistryDwords": "",
}
"""The driver's defaults of those parameters that placement depends on (open-gpu-kernel-modules
kernel-open/nvidia/nv-reg.h)."""


class Software(Struct, frozen=True, kw_only=True):
    """What runs on the machine.

    Attributes:
        modules: kernel modules; whether there is RDMA and peer memory follows from them.
    """

    driver: str = "580.95.05"
    nvml: str = "13.580.95.05"
    cuda: tuple[int, int] = (13, 0)
    is_open: bool = True
    kernel: str = "6.8.0-60-generic"
    machine: str = "x86_64"
    command_line: str = "BOOT_IMAGE=/boot/vmlinuz-6.8.0-60-generic root=/dev/md0 ro iommu=pt"
    modules: tuple[str, ...] = (*NVIDIA_MODULES, *RDMA_MODULES, "nvidia_peermem")
    numa_balancing: str = "0"
    swappiness: str = "60"
    transparent_hugepages: str = "madvise"
    rdma_netns: str = "shared"
    parameters: Mapping[str, str] = field(default_factory=lambda: PARAMETERS)
    imex_channels: tuple[int, ...] = ()


def compose(
    *,
    shape: str,
    name: str | None,
    product_name: str | None,
    description: str,
    sources: Sequence[str],
    host: Host,
    tree: PciTree,
    gpus: tuple[Gpu, ...],
    nvlinks: tuple[NvLink, ...] = (),
    pairs: tuple[ReportedPair, ...] = (),
    hcas: tuple[Hca, ...] = (),
    management_hcas: tuple[Hca, ...] = (),
    data_directs: tuple[DataDirect, ...] = (),
    netdevs: Mapping[str, NetDevice] | None = None,
    software: Software | None = None,
    kubelet: KubeletSettings = AS_INSTALLED,
    confidential_compute: ConfidentialCompute | None = None,
    issues: tuple[ProbeIssue, ...] = (),
    has_whole_cpu_tree: bool = False,
) -> Machine:
    """Return the machine of which all this is a part.

    What hangs in *tree* and is neither GPU nor HCA nor Data Direct function is a bystander;
    NVSwitches are found among them.

    Args:
        shape: directory under ``tests/nodes``, e.g. ``h100x8-nvswitch-2numa-8cx7``.
        name: of the bundled snapshot; ``None`` for a machine that is only tested.
        product_name: DMI's.
        description: one line for people.
        sources: published facts it was composed from; that the rest is not sourced is added.
        host: CPUs and NUMA nodes.
        tree: where everything is plugged in.
        gpus: by index.
        nvlinks: by (GPU, link).
        pairs: what NVML says of pairs.
        hcas: in order, see :func:`tests.compose.hcas.in_order`.
        management_hcas: those of the NVLink fabric.
        data_directs: by address.
        netdevs: network interfaces of bystanders, by the name of the leaf.
        software: the defaults of :class:`Software` if not given.
        kubelet: its settings.
        confidential_compute: where NVML tells.
        issues: what the agent should say that it could not read, or found uneven.
        has_whole_cpu_tree: see :class:`Machine`.
    """
    runs = software or Software()
    everything: tuple[Gpu | Hca | DataDirect, ...] = (
        *gpus,
        *hcas,
        *management_hcas,
        *data_directs,
    )
    used = {it.pci for it in everything}
    bystanders = tuple(
        Bystander(
            name=leaf_name,
            path=place.path,
            function=place.function,
            numa_node=place.numa_node,
            netdev=(netdevs or {}).get(leaf_name) or _CONSOLE_NETDEVS.get(leaf_name),
        )
        for leaf_name, place in tree.places.items()
        if place.pci not in used
    )
    snapshot = Snapshot(
        node=name or shape,
        captured_at=CAPTURED_AT,
        provenance=Provenance(
            origin=Origin.COMPOSED, description=description, sources=(*sources, UNSOURCED)
        ),
        driver_version=runs.driver,
        nvml_version=runs.nvml,
        cuda_version=runs.cuda,
        product_name=product_name,
        kernel=_kernel(runs),
        nvidia=NvidiaDriver(
            is_open=runs.is_open,
            parameters=runs.parameters,
            peer_memory="nvidia_peermem" in runs.modules,
            imex_channels=runs.imex_channels,
        ),
        confidential_compute=confidential_compute,
        gpus=gpus,
        pci_gpus=tuple(sorted(gpu.pci for gpu in gpus if gpu.pci is not None)),
        nvlinks=nvlinks,
        nvswitches=tuple(NvSwitch(pci=pci) for pci in nvswitch_addresses(tree)),
        pairs=pairs,
        bridges=tree.bridges(it.path for it in everything),
        numa_nodes=host.nodes,
        cpu=replace(host.cpu, l3_ids=tuple(range(len(host.cpu.l3_groups))))
        if has_whole_cpu_tree
        else host.cpu,
        hcas=tuple(map(_counting, hcas)),
        data_directs=data_directs,
        management_hcas=tuple(map(_counting, management_hcas)),
        kubelet=as_read(kubelet),
        kubelet_on_disk=as_read(kubelet),
        issues=issues,
    )
    return Machine(
        shape=shape,
        name=name,
        snapshot=_complete(snapshot, host.processor, bystanders),
        processor=host.processor,
        bystanders=bystanders,
        has_whole_cpu_tree=has_whole_cpu_tree,
    )


def _complete(
    snapshot: Snapshot, processor: Processor, bystanders: Iterable[Bystander]
) -> Snapshot:
    """Return *snapshot* with what follows from it: of the host, its kubelet and the API server."""
    interfaces = (it.netdev.name for it in bystanders if it.netdev is not None)
    found = replace(
        snapshot,
        host=host_settings(snapshot, processor, interfaces),
        kubelet_state=kubelet_state(snapshot),
    )
    return with_answers(found)


def _counting(hca: Hca) -> Hca:
    """Return *hca*, whose ports have counted no error of their link; EFA counts none of these."""
    counters = {} if hca.hca_type is None else dict.fromkeys(sorted(LINK_ERRORS), 0)
    return replace(hca, ports=tuple(replace(port, counters=counters) for port in hca.ports))


def nvswitch_addresses(tree: PciTree) -> tuple[PciAddress, ...]:
    """Return where the NVSwitches of *tree* are, by address."""
    found = (
        place.pci
        for place in tree.places.values()
        if place.function.vendor == NVIDIA and place.function.pci_class == "068000"
    )
    return tuple(sorted(found))


def console(*others: Port | Leaf, model: BridgeModel, bus: int = 0, node: int = 0) -> Root:
    """Return the first host bridge, with the BMC's display, an Ethernet port, and *others*."""
    ethernet = leaf("eno1", INTEL_X550, device=0x1B)
    display = port(leaf("bmc", BMC_DISPLAY), device=0x1C, bus=bus + 1)
    return root(bus, ethernet, display, *others, model=model, node=node)


_CONSOLE_NETDEVS = {"eno1": NetDevice(name="eno1", port=None, mtu=1500, state="up")}


def _kernel(runs: Software) -> Kernel:
    return Kernel(
        release=runs.kernel,
        command_line=runs.command_line,
        machine=runs.machine,
        modules=tuple(sorted(runs.modules)),
        sysctls={
            "kernel.numa_balancing": runs.numa_balancing,
            "vm.swappiness": runs.swappiness,
            "vm.zone_reclaim_mode": "0",
        },
        transparent_hugepages=runs.transparent_hugepages,
        rdma_netns=runs.rdma_netns if "ib_core" in runs.modules else None,
    )
