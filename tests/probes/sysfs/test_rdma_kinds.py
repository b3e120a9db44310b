"""What stands behind RDMA devices."""

from pathlib import Path

import pytest

from nodetopo.model.hca import HcaKind
from tests.probes.sysfs.rdma_host import ROCE, RdmaHost, placed

PF, VF = placed(0x41)[0], placed(0x41, 2)[0]


@pytest.fixture
def host(tmp_path: Path) -> RdmaHost:
    """A `/sys` with an empty PCI bus."""
    return RdmaHost(tmp_path)


def virtual(host: RdmaHost) -> str:
    """Add a physical function and a virtual one of it; return the place of the latter."""
    physical = host.function("41")
    function = host.function("41", "00.2")
    host.link(f"{function}/physfn", physical)
    return function


def test_a_virtual_function_names_its_physical_one(host: RdmaHost) -> None:
    host.hca("rocep65s0f0v0", virtual(host))
    hca = host.only()
    assert (hca.kind, hca.pci, hca.parent) == (HcaKind.VIRTUAL, VF, PF)


def test_a_virtual_function_passed_through_to_this_machine_has_no_parent_here(
    host: RdmaHost,
) -> None:
    host.hca("mlx5_0", host.function("41", "00.2"))
    hca = host.only()
    assert (hca.kind, hca.pci, hca.parent) == (HcaKind.PHYSICAL, VF, None)


def test_a_subfunction_belongs_to_the_pci_function_above_it(host: RdmaHost) -> None:
    auxiliary = f"{host.function('41')}/mlx5_core.sf.4"
    host.write(auxiliary, {"sfnum": "88"})
    host.hca("rocep65s0f0S88", auxiliary)
    hca = host.only()
    address, path = placed(0x41)
    assert (hca.kind, hca.subfunction, hca.parent) == (HcaKind.SUBFUNCTION, 88, PF)
    assert (hca.pci, hca.path, hca.numa_node) == (address, path, 1)


def test_a_subfunction_of_a_virtual_function_is_part_of_the_physical_one(host: RdmaHost) -> None:
    auxiliary = f"{virtual(host)}/mlx5_core.sf.5"
    host.write(auxiliary, {"sfnum": "99"})
    host.hca("rocep65s0f0v0S99", auxiliary)
    hca = host.only()
    assert (hca.kind, hca.subfunction, hca.pci, hca.parent) == (HcaKind.SUBFUNCTION, 99, VF, PF)


@pytest.mark.parametrize("parent", [None, "devices/virtual/net/lo"])
def test_a_device_without_hardware_is_software(host: RdmaHost, parent: str | None) -> None:
    if parent is not None:
        host.write(parent, {})
    host.hca("mlx5_0", parent)
    assert host.only().kind is HcaKind.SOFTWARE


@pytest.mark.parametrize("files", [{"parent": "eth0"}, {"node_desc": "Software iWARP stack"}])
def test_a_software_device_has_no_place_even_with_its_interfaces_parent(
    host: RdmaHost,
    files: dict[str, str],
) -> None:
    function = host.function("41", vendor="0x8086")
    hca = host.hca("dev0", function, **files)
    host.port(hca, 1, ROCE)
    host.netdev("eth0", function)
    found = host.only()
    assert (found.kind, found.pci, found.path) == (HcaKind.SOFTWARE, None, None)
    assert [netdev.name for netdev in found.netdevs] == ["eth0"]


def test_hardware_may_be_described_by_any_words(host: RdmaHost) -> None:
    files = {"hca_type": "MT4129", "node_desc": "Software iWARP stack", "parent": "eth0"}
    host.hca("mlx5_0", host.function("41"), **files)
    assert host.only().kind is HcaKind.PHYSICAL


def bonded(host: RdmaHost) -> str:
    """Add two functions in one bond, the first with an HCA; return the place of the second."""
    first, second = host.function("41"), host.function("41", "00.1")
    host.port(host.hca("mlx5_bond_0", first), 1, ROCE)
    bond = host.netdev("bond0", None)
    host.enslave(host.netdev("eth0", first), bond)
    host.enslave(host.netdev("eth1", second), bond)
    return second


def test_one_rdma_device_for_all_interfaces_of_a_bond_is_a_bond(host: RdmaHost) -> None:
    bonded(host)
    assert (host.only().kind, host.only().pci) == (HcaKind.BOND, PF)


def test_a_bond_in_software_leaves_each_function_its_rdma_device(host: RdmaHost) -> None:
    host.hca("mlx5_1", bonded(host))
    kinds = [hca.kind for hca in host.read().hcas or ()]
    assert kinds == [HcaKind.PHYSICAL, HcaKind.PHYSICAL]


def test_a_bond_with_another_vendors_interface_is_in_software(host: RdmaHost) -> None:
    second = bonded(host)
    host.write(second, {"vendor": "0x8086"})
    assert host.only().kind is HcaKind.PHYSICAL


def test_a_bridge_over_two_interfaces_is_no_bond(host: RdmaHost) -> None:
    bonded(host)
    (host.sysfs / "devices/virtual/net/bond0/bonding").rmdir()
    assert host.only().kind is HcaKind.PHYSICAL
