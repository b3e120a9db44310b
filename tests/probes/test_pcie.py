"""The PCI tree, read from small made-up trees."""

from collections.abc import Callable

import pytest

from agent.model.numa import CpuSet
from agent.model.nvlink import NvSwitch
from agent.model.pci import PciAddress, PciBridge, PcieLink, PciPath
from agent.probes.pcie import PciFunction, PciTree, acs_redirects, path_of
from tests.compose.sysfs import config

GPU = PciAddress.parse("0000:1b:00.0")
PORT = PciAddress.parse("0000:15:01.0")
PATH = PciPath(root="pci0000:15", hops=(PORT, GPU))
TREE = """\
sys/bus/pci/devices/
  0000:15:01.0 -> ../../../devices/pci0000:15/0000:15:01.0
  0000:1b:00.0 -> ../../../devices/pci0000:15/0000:15:01.0/0000:1b:00.0
sys/devices/pci0000:15/0000:15:01.0/
  class = 0x060400
  vendor = 0x8086
  device = 0x352A
  numa_node = 1
sys/devices/pci0000:15/0000:15:01.0/0000:1b:00.0/
  class = 0x030200
  vendor = 0x10de
  device = 0x2330
  numa_node = -1
  local_cpulist = 0-3
  current_link_speed = 2.5 GT/s PCIe
  current_link_width = 16
  max_link_speed = 32 GT/s
  max_link_width = 16
"""


@pytest.fixture
def tree(host_tree: Callable[[str], object]) -> Callable[[str], PciTree]:
    """Return a function from an archive to the tree in it."""
    return lambda archive: PciTree(host_tree(archive) / "sys")  # type: ignore[operator]


def test_a_function_is_read_whole(tree: Callable[[str], PciTree]) -> None:
    found = tree(TREE.replace("numa_node = -1", "numa_node = 0"))
    assert (found.function(GPU), found.issues) == (
        PciFunction(
            address=GPU,
            path=PATH,
            vendor="10de",
            device="2330",
            pci_class="030200",
            numa_node=0,
            local_cpus=CpuSet.parse("0-3"),
            link=PcieLink(generation=1, width=16, max_generation=5, max_width=16),
        ),
        (),
    )


def test_a_function_without_a_numa_node_has_that_of_its_bridge(
    tree: Callable[[str], PciTree],
) -> None:
    found = tree(TREE).function(GPU)
    assert found is not None
    assert found.numa_node == 1


def test_a_numa_node_that_no_bridge_knows_is_unknown(tree: Callable[[str], PciTree]) -> None:
    found = tree(TREE.replace("numa_node = 1", "numa_node = -1")).function(GPU)
    assert found is not None
    assert found.numa_node is None


def test_the_bridges_above_are_listed_once_with_what_they_are(
    tree: Callable[[str], PciTree],
) -> None:
    bridge = PciBridge(address=PORT, vendor="8086", device="352a", numa_node=1)
    assert tree(TREE).bridges([PATH, PATH]) == (bridge,)


def test_a_function_that_is_not_there_is_none(tree: Callable[[str], PciTree]) -> None:
    assert tree(TREE).function(PciAddress(0, 0x99, 0, 0)) is None


@pytest.mark.parametrize(
    ("pci_class", "vendor", "is_gpu"),
    [
        ("0x030000", "0x10de", True),
        ("0x030200", "0x10de", True),
        ("0x040300", "0x10de", False),  # the sound device of the same card
        ("0x068000", "0x10de", False),
        ("0x030000", "0x1a03", False),  # the BMC's display
    ],
)
def test_nvidia_display_controllers_are_gpus(
    pci_class: str, vendor: str, is_gpu: bool, tree: Callable[[str], PciTree]
) -> None:
    found = tree(TREE.replace("0x030200", pci_class).replace("0x10de", vendor))
    assert found.nvidia_gpus() == ((GPU,) if is_gpu else ())


def test_a_virtual_function_is_no_gpu_of_its_own(tree: Callable[[str], PciTree]) -> None:
    assert tree(TREE + "  physfn -> ..\n").nvidia_gpus() == ()


def test_an_nvswitch_is_an_nvidia_bridge_of_class_0680(tree: Callable[[str], PciTree]) -> None:
    assert tree(TREE.replace("0x030200", "0x068000")).nvswitches() == (NvSwitch(pci=GPU),)


def test_a_link_that_a_virtual_machine_hides_is_unknown(tree: Callable[[str], PciTree]) -> None:
    hidden = (
        TREE.replace("2.5 GT/s PCIe", "Unknown").replace("32 GT/s", "Unknown").replace("= 16", "=")
    )
    hidden = hidden.replace("link_width =", "link_width = 255")
    found = tree(hidden).function(GPU)
    assert found is not None
    assert found.link is None


def test_a_tree_without_pci_is_an_issue(tree: Callable[[str], PciTree]) -> None:
    found = tree("sys/class/\n")
    assert (found.is_readable, [issue.subject for issue in found.issues]) == (
        False,
        ["bus/pci/devices"],
    )


@pytest.mark.parametrize(
    ("place", "path"),
    [
        ("devices/pci0000:15/0000:15:01.0/0000:1b:00.0", PATH),
        ("devices/pci0000:15/0000:15:01.0/0000:1b:00.0/mlx5_core.sf.4/net/x", PATH),
        (
            "devices/pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:06.0",
            PciPath(root="pci10000:e0", hops=(PciAddress(0x10000, 0xE0, 6, 0),)),
        ),
        ("devices/virtual/infiniband/rxe0", None),
        ("devices/pci0000:15", None),
    ],
)
def test_a_path_starts_at_the_innermost_host_bridge_and_ends_at_the_last_function(
    place: str,
    path: PciPath | None,
) -> None:
    assert path_of(place) == path


@pytest.mark.parametrize(
    ("space", "redirects"),
    [
        (config(None), None),
        (bytes(256), None),
        (config(acs=True), True),
        (config(acs=False), False),
        (bytes(4096), False),
        (bytes(256) + b"\x01\x00\x01\x10" + bytes(8), False),  # one that points to itself
        (bytes(256) + b"\x01\x00\x81\x10" + bytes(4) + b"\x0d\x00\x01\x00\x1f\x00\x01\x00", False),
        (bytes(256) + b"\x01\x00\x81\x10" + bytes(4) + b"\x0d\x00\x01\x00\x1f\x00\x04\x00", True),
        (bytes(256) + b"\xff" * 8, False),
    ],
)
def test_acs_is_read_from_the_extended_config_space_alone(
    space: bytes,
    redirects: bool | None,
) -> None:
    assert acs_redirects(space) is redirects
