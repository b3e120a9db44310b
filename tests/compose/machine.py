"""What a composed machine is described by: our own records, and what only a renderer needs."""

from msgspec import Struct

from nodetopo.model.gpu import Gpu
from nodetopo.model.hca import DataDirect, Hca, NetDevice
from nodetopo.model.pci import PciFunction, PciPath
from nodetopo.model.snapshot import Snapshot


class Bystander(Struct, frozen=True, kw_only=True):
    """A PCI function that is neither GPU nor HCA, such as an NVSwitch or the BMC's display.

    Attributes:
        netdev: a network interface that belongs to no RDMA device.
    """

    name: str
    path: PciPath
    function: PciFunction
    numa_node: int | None = None
    netdev: NetDevice | None = None


class Processor(Struct, frozen=True, kw_only=True):
    """One CPU model.

    Attributes:
        cores: of one socket.
        threads: hardware threads of a core in use.
        l1d_kib, l1i_kib, l2_kib: of one core.
        l3_kib: of one level-3 cache, which *cores_per_l3* cores share.
        are_threads_adjacent: POWER numbers the threads of a core in a row; others number the
            first threads of all cores before the second ones.
        hugepages_kib: sizes that the kernel offers with the page size in use.
        part: of arm64, (implementer, part) of MIDR_EL1, which is all that it prints.
    """

    vendor: str | None
    model: str
    cores: int
    threads: int
    l1d_kib: int
    l1i_kib: int
    l2_kib: int
    l3_kib: int
    cores_per_l3: int
    family: int | None = None
    model_number: int | None = None
    stepping: int = 0
    mhz: int = 2000
    machine: str = "x86_64"
    are_threads_adjacent: bool = False
    hugepages_kib: tuple[int, ...] = (2048, 1048576)
    part: tuple[int, int] | None = None


class Machine(Struct, frozen=True, kw_only=True):
    """A machine to be written as ``nvml.txt`` and ``sysfs.txt``.

    Attributes:
        shape: directory under ``tests/nodes``.
        name: of the bundled snapshot; ``None`` for a machine that is only tested.
        snapshot: what the agent should find on it, provenance included.
        has_whole_cpu_tree: whether the CPU tree has every file that cadvisor reads, so that
            a real kubelet can run on it; else only what the agent reads, a tenth of it.
    """

    shape: str
    name: str | None
    snapshot: Snapshot
    processor: Processor
    bystanders: tuple[Bystander, ...] = ()
    has_whole_cpu_tree: bool = False


def plugged_in(snapshot: Snapshot) -> tuple[Gpu | Hca | DataDirect, ...]:
    """Return all of *snapshot* that has a place in the PCI tree."""
    return (
        *snapshot.gpus,
        *(snapshot.hcas or ()),
        *(snapshot.management_hcas or ()),
        *(snapshot.data_directs or ()),
    )
