"""Which NUMA node a PCI function is on, where its own file does not say."""

from collections.abc import Callable
from pathlib import Path

import pytest

from nodetopo.model.numa import CpuSet
from nodetopo.probes.sysfs.pcie import PciTree
from tests.probes.sysfs.pci_tree import TREE, placed

NODES = """\
sys/devices/system/node/node0/
  cpulist = 0-3
sys/devices/system/node/node1/
  cpulist = 4-7
sys/devices/system/node/node2/
  cpulist =
"""
NOWHERE = TREE.replace("numa_node = 1", "numa_node = -1")


@pytest.fixture
def tree(host_tree: Callable[[str], Path]) -> Callable[[str], PciTree]:
    """Return a function from an archive to the tree in it."""
    return lambda archive: PciTree(host_tree(archive) / "sys")


def test_a_function_without_a_numa_node_has_that_of_its_bridge(
    tree: Callable[[str], PciTree],
) -> None:
    assert placed(tree(TREE + NODES)).numa_node == 1


@pytest.mark.parametrize(
    ("cpus", "node"),
    [
        ("4-7", 1),
        ("5-6", 1),
        ("0-7", None),  # all: what the kernel prints where it knows no node
        ("0,4", None),
        ("8", None),
        ("", None),
    ],
)
def test_without_any_node_the_cpus_nearby_decide(
    cpus: str, node: int | None, tree: Callable[[str], PciTree]
) -> None:
    found = tree(NOWHERE.replace("= 0-3", f"= {cpus}") + NODES)
    assert (placed(found).numa_node, found.issues) == (node, ())


def test_the_only_node_with_cpus_holds_every_function(tree: Callable[[str], PciTree]) -> None:
    one = NODES.replace("cpulist = 4-7", "cpulist =")
    assert placed(tree(NOWHERE + one)).numa_node == 0


def test_a_kernel_that_prints_cpus_as_a_mask_only_is_understood(
    tree: Callable[[str], PciTree],
) -> None:
    masks = NODES.replace("cpulist = 4-7", "cpumap = 0000,000000f0")
    found = placed(tree(NOWHERE.replace("local_cpulist = 0-3", "local_cpus = 0,00000030") + masks))
    assert (found.numa_node, found.facts.local_cpus) == (1, CpuSet.parse("4-5"))


def test_a_numa_node_without_any_source_is_unknown(tree: Callable[[str], PciTree]) -> None:
    assert placed(tree(NOWHERE)).numa_node is None
