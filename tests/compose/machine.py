"""What a composed machine is described by: our own records, and what only hardware ids tell."""

from dataclasses import dataclass

from agent.model.numa import CpuSet, CpuTopology, HugePages, NumaNode, Socket
from agent.model.pci import PciAddress, PcieLink, PciPath
from agent.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class PciIds:
    """A function's ids: vendor:device and the board's own, four lower-case hex digits each."""

    vendor: str
    device: str
    subsystem_vendor: str
    subsystem_device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bystander:
    """A PCI function that is neither GPU nor HCA, such as an NVSwitch or the BMC's display."""

    path: PciPath
    pci_class: str
    ids: PciIds
    link: PcieLink
    numa_node: int = 0
    netdev: str | None = None

    @property
    def address(self) -> PciAddress:
        """Its own address."""
        return self.path.hops[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Processor:
    """One CPU model; caches in KiB: level 1 and 2 per core, level 3 per socket."""

    vendor: str
    model: str
    family: int
    model_number: int
    stepping: int
    mhz: int
    cores: int
    l1d_kib: int
    l1i_kib: int
    l2_kib: int
    l3_kib: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine to be written as ``nvml.txt`` and ``sysfs.txt``.

    Attributes:
        shape: directory under ``tests/nodes``.
        name: of the bundled snapshot.
        snapshot: what the agent should find on it, provenance included.
        gpu_ids, hca_ids: of all its GPUs and HCAs.
        nvml_architecture: what ``nvmlDeviceGetArchitecture`` answers (nvml.h NVML_DEVICE_ARCH_*).
        hca_board: the ``board_id`` of its HCAs, their firmware's PSID.
    """

    shape: str
    name: str
    snapshot: Snapshot
    processor: Processor
    gpu_ids: PciIds
    nvml_architecture: int
    hca_ids: PciIds | None = None
    hca_board: str | None = None
    bystanders: tuple[Bystander, ...] = ()


def two_sockets(
    processor: Processor, *, memory_mib: int, distance: int
) -> tuple[tuple[NumaNode, ...], CpuTopology]:
    """Return the NUMA nodes and CPUs of a dual-socket, hyper-threaded server, one node a socket.

    Linux numbers the first threads of all cores before the second ones.
    """
    cores = 2 * processor.cores
    nodes = tuple(
        NumaNode(
            id=socket,
            cpus=_threads(range(socket * processor.cores, (socket + 1) * processor.cores), cores),
            memory_mib=memory_mib,
            distances=(10, distance) if socket == 0 else (distance, 10),
            hugepages=(
                HugePages(size_kib=2048, total=0, free=0),
                HugePages(size_kib=1048576, total=0, free=0),
            ),
        )
        for socket in range(2)
    )
    cpu = CpuTopology(
        online=CpuSet.of(range(2 * cores)),
        vendor=processor.vendor,
        model=processor.model,
        sockets=tuple(Socket(id=node.id, cpus=node.cpus) for node in nodes),
        cores=tuple(_threads(range(core, core + 1), cores) for core in range(cores)),
        l3_groups=tuple(node.cpus for node in nodes),
    )
    return nodes, cpu


def _threads(first: range, cores: int) -> CpuSet:
    return CpuSet.of([*first, *(cpu + cores for cpu in first)])
