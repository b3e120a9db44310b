"""Real sysfs trees that hwloc keeps, against the facts that hwloc itself finds in them.

The captures are in the corpus.
"""

import re
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec import Struct

from nodetopo.model.hca import Hca
from nodetopo.model.numa import CpuSet, CpuTopology, NumaNode
from nodetopo.model.pci import PciAddress
from nodetopo.probes.sysfs.cpu import read_cpu
from nodetopo.probes.sysfs.kernel import gpu_memory_nodes
from nodetopo.probes.sysfs.numa import read_numa
from nodetopo.probes.sysfs.pcie import PciTree
from nodetopo.probes.sysfs.rdma import read_rdma
from tests.probes.sysfs.hwloc_facts import (
    CACHES,
    CAPTURES,
    CORES,
    DISTANCES,
    HCAS,
    IDS,
    MAKES,
    NUMA,
    PACKAGES,
    PCI,
)

MAX_MEMBERS = 20_000
MAX_BYTES = 1 << 20
"""Of one member; the largest here is a cpuinfo of 60 KiB."""

UNREAD = re.compile(
    r".*/(?:memory[0-9]+|dev/cpuset|LNXSYSTM:00|power|wakeup|uevent|subsystem|modalias|cpuidle"
    r"|thermal_throttle|microcode|irq|enable|remove|rescan|resource|msi_bus|broken_parity_status"
    r"|coherency_line_size|number_of_sets|ways_of_associativity|physical_line_partition)(?:/.*)?"
)
"""Most of the members, which no reader of ours opens."""


class Reading(Struct, frozen=True, kw_only=True):
    """All that our readers find in one capture."""

    root: Path
    numa: tuple[NumaNode, ...]
    cpu: CpuTopology
    tree: PciTree
    hcas: tuple[Hca, ...]


@pytest.fixture(scope="module")
def reading(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Reading]:
    """Return a function from the name of a capture to what is in it."""
    known: dict[str, Reading] = {}

    def read(name: str) -> Reading:
        if name not in known:
            directory = tmp_path_factory.mktemp(name)
            unpack(corpus / f"hwloc/hwloc-{name}.tar.bz2", directory)
            (root,) = directory.iterdir()
            known[name] = read_all(root)
        return known[name]

    return read


def unpack(archive: Path, directory: Path) -> None:
    """Unpack what our readers open."""
    with tarfile.open(archive) as members:
        for position, member in enumerate(members):
            assert position < MAX_MEMBERS
            assert member.size < MAX_BYTES
            if not UNREAD.fullmatch(member.name):
                members.extract(member, directory, filter="data")


def read_all(root: Path) -> Reading:
    """Run every reader of sysfs and procfs over one machine."""
    sys, proc = root / "sys", root / "proc"
    numa, _ = read_numa(sys)
    cpu, _ = read_cpu(sys, proc)
    tree = PciTree(sys)
    assert numa is not None
    assert cpu is not None
    return Reading(root=root, numa=numa, cpu=cpu, tree=tree, hcas=read_rdma(sys, tree).hcas or ())


def listed(name: str) -> Iterator[tuple[PciAddress, int | None]]:
    """Yield hwloc's PCI functions with their NUMA node."""
    for bus, (node, devices) in PCI[name].items():
        for device in devices.split():
            yield PciAddress.parse(f"{bus}:{device}"), node


@pytest.mark.parametrize("name", CAPTURES)
def test_nodes_have_the_cpus_and_the_memory_that_hwloc_finds(
    name: str, reading: Callable[[str], Reading]
) -> None:
    found = reading(name)
    assert {
        node.id: (str(node.cpus & found.cpu.online), node.memory_mib) for node in found.numa
    } == {node: (cpus, size >> 20) for node, (cpus, size) in NUMA[name].items()}


@pytest.mark.parametrize("name", DISTANCES)
def test_distances_are_those_that_hwloc_finds(name: str, reading: Callable[[str], Reading]) -> None:
    assert tuple(node.distances for node in reading(name).numa) == DISTANCES[name]


def test_distances_to_the_memory_of_gpus_are_in_the_order_of_ids(
    reading: Callable[[str], Reading],
) -> None:
    rows = [node.distances for node in reading("nvidiagpunumanodes").numa]
    assert rows[0] == (10, 40, *[80] * 6)
    assert [row[place] for place, row in enumerate(rows) if row is not None] == [10] * 8


@pytest.mark.parametrize("name", CAPTURES)
def test_pci_functions_are_those_that_hwloc_finds_and_on_its_numa_nodes(
    name: str, reading: Callable[[str], Reading]
) -> None:
    tree = reading(name).tree
    expected = dict(listed(name))
    assert set(tree.addresses) == set(expected)
    functions = {address: tree.function(address) for address in expected}
    assert {
        address: None if function is None else function.numa_node
        for address, function in functions.items()
    } == expected


@pytest.mark.parametrize("name", IDS)
def test_ids_and_classes_are_those_that_hwloc_finds(
    name: str, reading: Callable[[str], Reading]
) -> None:
    for address, text in IDS[name].items():
        function = reading(name).tree.function(PciAddress.parse(address))
        assert function is not None
        facts = function.facts
        ids = f"{facts.vendor}:{facts.device} {facts.subsystem_vendor}:{facts.subsystem_device}"
        assert f"{facts.pci_class} {ids}".startswith(text)


def test_bridges_stand_where_hwloc_finds_them(reading: Callable[[str], Reading]) -> None:
    tree = reading("32em64t-2ib").tree
    display = tree.function(PciAddress.parse("0000:05:00.0"))
    assert display is not None
    assert display.path is not None
    bridges = tree.bridges([display.path])
    assert [(str(bridge.address), bridge.numa_node, bridge.vendor) for bridge in bridges] == [
        ("0000:00:1c.0", 0, "8086"),
        ("0000:04:00.0", 0, "1a03"),
    ]


@pytest.mark.parametrize("name", CAPTURES)
def test_hcas_are_those_that_hwloc_finds(name: str, reading: Callable[[str], Reading]) -> None:
    assert {
        hca.name: (None if hca.pci is None else str(hca.pci), hca.numa_node)
        for hca in reading(name).hcas
    } == HCAS.get(name, {})


@pytest.mark.parametrize("name", CAPTURES)
def test_packages_and_cores_are_those_that_hwloc_finds(
    name: str, reading: Callable[[str], Reading]
) -> None:
    cpu = reading(name).cpu
    assert {socket.id: str(socket.cpus) for socket in cpu.sockets} == PACKAGES[name]
    assert len(cpu.cores) == CORES[name]


@pytest.mark.parametrize("name", CACHES)
def test_last_level_caches_are_those_that_hwloc_finds(
    name: str, reading: Callable[[str], Reading]
) -> None:
    assert tuple(map(str, reading(name).cpu.l3_groups)) == CACHES[name]


@pytest.mark.parametrize("name", MAKES)
def test_the_cpu_has_the_name_that_hwloc_gives_it(
    name: str, reading: Callable[[str], Reading]
) -> None:
    assert reading(name).cpu.model == MAKES[name]


def test_the_memory_of_gpus_is_the_nodes_that_hwloc_finds(
    reading: Callable[[str], Reading],
) -> None:
    nodes = gpu_memory_nodes(reading("nvidiagpunumanodes").root / "proc")
    assert {str(address): node for address, node in nodes.items()} == {
        "0004:05:00.0": 255,
        "0004:06:00.0": 254,
        "0006:00:00.0": 253,
        "0007:00:00.0": 252,
        "0035:04:00.0": 251,
        "0035:05:00.0": 250,
    }


def test_four_hardware_threads_on_a_core_are_smt(reading: Callable[[str], Reading]) -> None:
    cpu = reading("nvidiagpunumanodes").cpu
    assert (cpu.cores[0], cpu.smt, cpu.is_virtual) == (CpuSet.parse("0-3"), True, None)
