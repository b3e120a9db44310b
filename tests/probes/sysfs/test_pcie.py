"""The PCI tree, read from small made-up trees."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodetopo.model.numa import CpuSet
from nodetopo.model.nvlink import NvSwitch
from nodetopo.model.pci import IommuType, PciAddress, PcieLink, PciFunction, PciPath
from nodetopo.probes.sysfs.pcie import PciTree, PlacedFunction, path_of
from tests.probes.sysfs.pci_bytes import ADAPTER, MANAGEMENT, config, vpd
from tests.probes.sysfs.pci_tree import (
    GPU,
    GPU_PLACE,
    PATH,
    PORT,
    PORT_PLACE,
    TREE,
    functions,
    placed,
)


@pytest.fixture
def tree(host_tree: Callable[[str], Path]) -> Callable[[str], PciTree]:
    """Return a function from an archive to the tree in it."""
    return lambda archive: PciTree(host_tree(archive) / "sys")


def test_a_function_is_read_whole(host_tree: Callable[[str], Path]) -> None:
    root = host_tree(
        TREE.replace("numa_node = -1", "numa_node = 0")
        + "  subsystem_vendor = 0x10de\n  subsystem_device = 0x16C1\n"
        "  driver -> ../../../../bus/pci/drivers/nvidia\n"
        "  iommu_group -> ../../../../kernel/iommu_groups/42\n"
        "sys/kernel/iommu_groups/42/\n  type = DMA-FQ\n",
    )
    (root / "sys" / GPU_PLACE / "config").write_bytes(config(control=0x5930))
    found = PciTree(root / "sys")
    assert (found.function(GPU), found.issues) == (
        PlacedFunction(
            address=GPU,
            path=PATH,
            numa_node=0,
            facts=PciFunction(
                vendor="10de",
                device="2330",
                subsystem_vendor="10de",
                subsystem_device="16c1",
                pci_class="030200",
                driver="nvidia",
                local_cpus=CpuSet.parse("0-3"),
                link=PcieLink(generation=1, width=16, max_generation=5, max_width=16),
                iommu_group=42,
                iommu_type=IommuType.DMA_FQ,
                max_payload=256,
                max_read_request=4096,
                relaxed_ordering=True,
                has_ats=False,
            ),
        ),
        (),
    )


def test_what_a_function_has_no_file_for_is_unknown(tmp_path: Path) -> None:
    found = functions(tmp_path / "sys", {"0000:15:01.0": {}})
    assert (placed(found, PORT).facts, found.issues) == (PciFunction(), ())


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("vendor", b"0x10de10de\n"),
        ("device", b"N/A\n"),
        ("class", b"0x0302\n"),
        ("numa_node", b"near\n"),
        ("local_cpulist", b"some\n"),
        ("current_link_width", b"wide\n"),
    ],
)
def test_a_file_that_is_no_such_fact_is_an_issue_and_costs_that_fact(
    file: str, content: bytes, tmp_path: Path
) -> None:
    found = functions(tmp_path / "sys", {"0000:15:01.0": {file: content}})
    assert placed(found, PORT).facts == PciFunction()
    assert [issue.subject for issue in found.issues] == [f"bus/pci/devices/0000:15:01.0/{file}"]


@pytest.mark.parametrize(
    ("text", "kind", "issues"),
    [
        ("identity", IommuType.IDENTITY, 0),
        ("DMA", IommuType.DMA, 0),
        ("unknown", None, 0),
        ("unmanaged", IommuType.UNMANAGED, 0),
    ],
)
def test_the_iommu_type_is_that_of_the_group(
    text: str, kind: IommuType | None, issues: int, tree: Callable[[str], PciTree]
) -> None:
    found = tree(
        TREE + "  iommu_group -> ../../../../kernel/iommu_groups/7\n"
        f"sys/kernel/iommu_groups/7/\n  type = {text}\n",
    )
    facts = placed(found).facts
    assert (facts.iommu_group, facts.iommu_type, len(found.issues)) == (7, kind, issues)


def test_a_function_that_is_not_there_is_none(tree: Callable[[str], PciTree]) -> None:
    assert tree(TREE).function(PciAddress(0, 0x99, 0, 0)) is None


def test_links_that_run_in_a_circle_are_an_issue(tmp_path: Path) -> None:
    bus = tmp_path / "bus/pci/devices"
    bus.mkdir(parents=True)
    (bus / str(GPU)).symlink_to(str(PORT))
    (bus / str(PORT)).symlink_to(str(GPU))
    found = PciTree(tmp_path)
    assert found.function(GPU) is None
    assert found.issues != ()


def test_a_function_without_a_host_bridge_is_read_and_has_no_path(tmp_path: Path) -> None:
    place = tmp_path / "bus/pci/devices" / str(GPU)
    place.mkdir(parents=True)
    (place / "numa_node").write_text("3\n")
    found = placed(PciTree(tmp_path))
    assert (found.path, found.numa_node) == (None, 3)


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
    found = tree(TREE + "  physfn -> ..\n")
    assert (found.nvidia_gpus(), placed(found).facts.is_virtual) == ((), True)


def test_an_nvswitch_is_an_nvidia_bridge_of_class_0680(tree: Callable[[str], PciTree]) -> None:
    assert tree(TREE.replace("0x030200", "0x068000")).nvswitches() == (NvSwitch(pci=GPU),)


@pytest.mark.parametrize(
    ("pci_class", "vendor", "is_one"),
    [
        ("0x080100", "0x15b3", True),
        ("0x080100", "0x10de", False),
        ("0x020700", "0x15b3", False),
    ],
)
def test_a_data_direct_function_is_a_dma_controller_of_mellanox(
    pci_class: str, vendor: str, is_one: bool, tree: Callable[[str], PciTree]
) -> None:
    found = tree(TREE.replace("0x030200", pci_class).replace("0x10de", vendor))
    assert found.data_direct() == ((placed(found),) if is_one else ())


def test_a_link_that_a_virtual_machine_hides_is_unknown(tree: Callable[[str], PciTree]) -> None:
    hidden = (
        TREE.replace("2.5 GT/s PCIe", "Unknown").replace("32 GT/s", "Unknown").replace("= 16", "=")
    )
    hidden = hidden.replace("link_width =", "link_width = 255")
    assert placed(tree(hidden)).facts.link is None


def test_a_tree_without_pci_is_an_issue(tree: Callable[[str], PciTree]) -> None:
    found = tree("sys/class/\n")
    assert not found.is_readable
    assert [issue.subject for issue in found.issues] == ["bus/pci/devices"]


def test_a_name_that_is_no_address_is_an_issue(tree: Callable[[str], PciTree]) -> None:
    found = tree("sys/bus/pci/devices/\n  slot3 -> ..\n")
    assert [issue.subject for issue in found.issues] == ["bus/pci/devices/slot3"]


def mellanox(keywords: Mapping[str, str]) -> dict[str, bytes]:
    """Return the files of a ConnectX-7."""
    return {"vendor": b"0x15b3\n", "class": b"0x020700\n", "vpd": vpd(keywords)}


def test_all_functions_of_a_management_card_belong_to_the_fabric(tmp_path: Path) -> None:
    found = functions(
        tmp_path / "sys",
        {
            "0000:05:00.0": mellanox(MANAGEMENT),
            "0000:05:00.1": mellanox(ADAPTER),
            "0000:06:00.0": mellanox(ADAPTER),
            "0000:07:00.0": {"vendor": b"0x15b3\n"},
            "0000:08:00.0": {"vendor": b"0x10de\n", "vpd": vpd(MANAGEMENT)},
        },
    )
    told = [found.is_nvlink_management(PciAddress(0, bus, 0, 0)) for bus in range(5, 9)]
    assert (told, found.is_nvlink_management(PciAddress(0, 5, 0, 1))) == (
        [True, False, None, False],
        True,
    )
    assert found.vpd(PciAddress(0, 6, 0, 0)) == ADAPTER


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


FILES = (
    *("class", "vendor", "device", "subsystem_vendor", "numa_node", "local_cpulist", "local_cpus"),
    *("current_link_speed", "current_link_width", "max_link_speed", "config", "vpd"),
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.sampled_from(FILES), st.binary(max_size=80)))
def test_no_bytes_in_any_file_break_it(tmp_path: Path, contents: dict[str, bytes]) -> None:
    place = tmp_path / GPU_PLACE
    place.mkdir(parents=True, exist_ok=True)
    bus = tmp_path / "bus/pci/devices"
    if not bus.exists():
        bus.mkdir(parents=True)
        (bus / str(GPU)).symlink_to(tmp_path / GPU_PLACE)
        (bus / str(PORT)).symlink_to(tmp_path / PORT_PLACE)
    for name in FILES:
        (place / name).write_bytes(contents.get(name, b"0x15b3\n"))
        (tmp_path / PORT_PLACE / name).write_bytes(contents.get(name, b""))
    found = PciTree(tmp_path)
    assert placed(found).path == PATH
    assert len(found.bridges([PATH])) == 1
    found.nvidia_gpus()
    found.data_direct()
    found.is_nvlink_management(GPU)
