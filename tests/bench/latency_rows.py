"""The machines whose answers are timed, and who answers for each."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.allocation.allocator import Allocator, Chooser
from nodetopo.allocation.rules import DEFAULT, Rules
from nodetopo.allocation.shared.allocator import SharedAllocator
from nodetopo.machines.bundled import machine
from nodetopo.model.gpu import Mig
from nodetopo.model.nvlink import Closeness
from nodetopo.model.snapshot import Snapshot
from tests.bench.machines import bench_machine, half_down, odd_box, random_box
from tests.strategies import node


class Row(Struct, frozen=True):
    """One resource: what the kubelet calls its devices, and who chooses among them.

    Attributes:
        build: makes the chooser anew.
    """

    name: str
    ids: tuple[str, ...]
    build: Callable[[], Chooser]


def rows() -> Iterator[Row]:
    """Yield all, small machines first."""
    yield whole("NVLink mesh, DGX-1V", machine("dgx-1v"))
    yield whole("NVSwitch, DGX H100", machine("dgx-h100"))
    yield whole("PCIe, 4 NUMA nodes", bench_machine("pcie-4numa"))
    yield whole("PCIe switches of 3 and 2", bench_machine("pcie-10"))
    yield whole("NVSwitch, DGX-2", machine("dgx-2"))
    yield whole("NVSwitch, DGX-2, a link down", half_down(machine("dgx-2"), 5, 1))
    yield whole("NVSwitch, pool", switched(32, 4))
    yield shared("DGX A100, MIG 1g of 7", machine("dgx-a100"), 7, spread=False)
    yield whole("NVSwitch, NVL72", switched(72, 2))
    yield shared("DGX A100, 10 replicas", machine("dgx-a100"), 10, spread=True)
    yield from shared_on_irregular()


def shared_on_irregular() -> Iterator[Row]:
    """Yield MIG devices and replicas on machines of 16 GPUs whose groups do not nest."""
    down, odd = half_down(machine("dgx-2"), 5, 1), odd_box()
    yield shared("DGX-2, a link down, 4 replicas", down, 4, spread=True)
    yield shared("DGX-2, a link down, 10 replicas", down, 10, spread=True)
    yield shared("PCIe, odd lanes, 4 replicas", odd, 4, spread=True)
    yield shared("PCIe, odd lanes, 10 replicas", odd, 10, spread=True)
    yield shared("PCIe, odd lanes, MIG 1g of 7", in_mig_mode(odd), 7, spread=False)
    yield shared("PCIe, random distances, 10 replicas", random_box(), 10, spread=True)
    yield shared("PCIe, random distances, MIG 1g of 7", in_mig_mode(random_box()), 7, spread=False)


def whole(name: str, snapshot: Snapshot, rules: Rules = DEFAULT) -> Row:
    """Whole GPUs."""
    return Row(name, tuple(gpu.id for gpu in snapshot.gpus), partial(Allocator, snapshot, rules))


def shared(name: str, snapshot: Snapshot, parts: int, *, spread: bool) -> Row:
    """So many devices of each GPU."""
    owner = {f"{gpu.id}::{n}": gpu.id for gpu in snapshot.gpus for n in range(parts)}

    return Row(name, tuple(owner), partial(SharedAllocator, snapshot, owner, spread=spread))


def in_mig_mode(snapshot: Snapshot) -> Snapshot:
    """The machine with all GPUs in MIG mode."""
    gpus = tuple(replace(gpu, mig=Mig(is_enabled=True)) for gpu in snapshot.gpus)
    return replace(snapshot, gpus=gpus)


def switched(count: int, nodes: int) -> Snapshot:
    """NVSwitches, two GPUs and an HCA on each PCIe switch, two sockets."""
    per_node = count // nodes
    pairs = combinations(range(count), 2)

    def near(a: int, b: int) -> Closeness:
        if a // 2 == b // 2:
            return Closeness.PIX
        return Closeness.NODE if a // per_node == b // per_node else Closeness.SYS

    return node(
        numa=[gpu // per_node for gpu in range(count)],
        switch_links=18,
        distances={(a, b): near(a, b) for a, b in pairs},
        sockets={home: 2 * home // nodes for home in range(nodes)},
        hcas=[{gpu: near(gpu, 2 * hca) for gpu in range(count)} for hca in range(count // 2)],
        hca_numa=[2 * hca // per_node for hca in range(count // 2)],
    )


class Asked(Struct, frozen=True):
    """One request as the kubelet makes it, its lists in no order."""

    available: Sequence[str]
    required: Sequence[str]
    size: int


def requests(ids: Sequence[str], number: int, random: Random) -> list[Asked]:
    """Return random free sets of all sizes; a fifth has required devices."""
    found = []
    for _ in range(number):
        available = random.sample(ids, random.randint(1, len(ids)))
        size = random.randint(1, len(available))
        kept = random.randint(1, size) if random.random() < 0.2 else 0
        found.append(Asked(available, random.sample(available, kept), size))
    return found
