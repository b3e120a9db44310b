"""The bridges above PCI functions: root ports, switches, bridges of conventional PCI."""

from collections.abc import Callable
from pathlib import Path

import pytest

from nodetopo.model.pci import BridgeKind, PciAddress, PciBridge, PcieLink, PciPath
from nodetopo.probes.sysfs.pcie import PciTree
from tests.probes.sysfs.pci_bytes import config
from tests.probes.sysfs.pci_tree import GPU, PATH, PORT, PORT_PLACE, TREE, placed


@pytest.fixture
def tree(host_tree: Callable[[str], Path]) -> Callable[[str], PciTree]:
    """Return a function from an archive to the tree in it."""
    return lambda archive: PciTree(host_tree(archive) / "sys")


def test_the_bridges_above_are_listed_once_with_what_they_are(
    host_tree: Callable[[str], Path],
) -> None:
    sys = host_tree(TREE) / "sys"
    space = config(bridge=True, port_type=4, control=0x20, acs=0x1D)
    (sys / PORT_PLACE / "config").write_bytes(space)
    assert PciTree(sys).bridges([PATH, PATH]) == (
        PciBridge(
            address=PORT,
            kind=BridgeKind.ROOT_PORT,
            vendor="8086",
            device="352a",
            subsystem_vendor="15d9",
            subsystem_device="1d31",
            numa_node=1,
            link=PcieLink(generation=5, width=16),
            max_payload=256,
            acs_capability=0,
            acs_control=0x1D,
        ),
    )


@pytest.mark.parametrize(
    ("pci_class", "space", "kind"),
    [
        ("060400", config(bridge=True, port_type=6, size=64), BridgeKind.ROOT_PORT),
        ("060401", config(bridge=True, port_type=None, size=64), BridgeKind.PCI_BRIDGE),
        ("060400", config(bridge=True, port_type=None, size=256), BridgeKind.PCI_BRIDGE),
        ("060400", b"", BridgeKind.ROOT_PORT),
        ("060400", config(bridge=True, port_type=5), BridgeKind.UPSTREAM),
    ],
)
def test_a_bridge_below_the_host_bridge_whose_config_is_hidden_is_a_root_port(
    pci_class: str, space: bytes, kind: BridgeKind, host_tree: Callable[[str], Path]
) -> None:
    sys = host_tree(TREE.replace("060400", pci_class)) / "sys"
    (sys / PORT_PLACE / "config").write_bytes(space)
    assert PciTree(sys).bridges([PATH])[0].kind is kind


def test_switches_in_switches_are_followed(tmp_path: Path) -> None:
    names = [f"0008:0{bus}:00.0" for bus in range(6)]
    kinds = [4, 5, 6, 5, 6, 0]
    bus, place = tmp_path / "sys/bus/pci/devices", tmp_path / "sys/devices/pci0008:00"
    bus.mkdir(parents=True)
    for name, kind in zip(names, kinds, strict=True):
        place /= name
        place.mkdir(parents=True)
        (place / "config").write_bytes(config(bridge=kind > 0, port_type=kind))
        (bus / name).symlink_to(place)
    found = PciTree(tmp_path / "sys")
    path = placed(found, PciAddress.parse(names[-1])).path
    assert path == PciPath(root="pci0008:00", hops=tuple(map(PciAddress.parse, names)))
    assert [bridge.kind for bridge in found.bridges([path])] == [
        BridgeKind.ROOT_PORT,
        BridgeKind.UPSTREAM,
        BridgeKind.DOWNSTREAM,
        BridgeKind.UPSTREAM,
        BridgeKind.DOWNSTREAM,
    ]


def test_below_the_first_bridge_a_hidden_config_leaves_the_kind_unknown(
    tree: Callable[[str], PciTree],
) -> None:
    deeper = PciPath(root="pci0000:15", hops=(PORT, GPU, PciAddress(0, 0x1C, 0, 0)))
    assert [bridge.kind for bridge in tree(TREE).bridges([deeper])] == [BridgeKind.ROOT_PORT, None]


@pytest.mark.parametrize(("vendor", "is_listed"), [("10de", True), ("15b3", True), ("8086", False)])
def test_ports_of_nvidia_and_mellanox_are_listed_whatever_is_below(
    vendor: str, is_listed: bool, host_tree: Callable[[str], Path]
) -> None:
    sys = host_tree(TREE) / "sys"
    (sys / PORT_PLACE / "vendor").write_text(f"0x{vendor}\n", "ascii")
    assert bool(PciTree(sys).bridges([])) is is_listed
