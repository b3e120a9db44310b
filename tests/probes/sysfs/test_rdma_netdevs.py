"""The network interfaces of RDMA devices."""

from pathlib import Path

import pytest

from nodetopo.model.hca import NetDevice
from tests.probes.sysfs.rdma_host import IB, ROCE, RdmaHost, Refusals

GID = "0000:0000:0000:0000:0000:ffff:0a00:0001"


@pytest.fixture
def host(tmp_path: Path) -> RdmaHost:
    """A `/sys` with an empty PCI bus."""
    return RdmaHost(tmp_path)


def ports(host: RdmaHost) -> dict[str, int | None]:
    """Return the port of each interface of the one HCA."""
    return {netdev.name: netdev.port for netdev in host.only().netdevs}


def test_an_interface_belongs_to_the_port_that_dev_port_counts_from_zero(host: RdmaHost) -> None:
    function = host.function("41")
    hca = host.hca("mlx4_0", function)
    for number in (1, 2):
        host.port(hca, number, ROCE)
    host.netdev("eth0", function, dev_port="0", dev_id="0x0", type="1")
    host.netdev("eth1", function, dev_port="1", dev_id="0x0", type="1")
    host.netdev("eth2", function, dev_port="5", type="1")
    host.netdev("eth3", function)
    assert ports(host) == {"eth0": 1, "eth1": 2, "eth2": None, "eth3": None}


def test_old_kernels_give_the_port_of_ip_over_infiniband_in_dev_id(host: RdmaHost) -> None:
    function = host.function("41")
    hca = host.hca("mlx4_0", function)
    for number in (1, 2):
        host.port(hca, number, IB)
    host.netdev("ib0", function, dev_port="0", dev_id="0x0", type="32")
    host.netdev("ib1", function, dev_port="0", dev_id="0x1", type="32")
    host.netdev("ib2", function, dev_id="0x1", type="32")
    assert ports(host) == {"ib0": 1, "ib1": 2, "ib2": 2}


def test_the_only_port_owns_an_interface_whatever_its_driver_counts(host: RdmaHost) -> None:
    function = host.function("41", "00.1")
    host.port(host.hca("bnxt_re1", function), 1, ROCE)
    host.netdev("eth1", function, dev_port="1", type="1")
    assert ports(host) == {"eth1": 1}


def test_a_gid_decides_the_port_of_an_interface_before_its_driver(host: RdmaHost) -> None:
    function = host.function("41")
    hca = host.hca("mlx4_0", function)
    for number in (1, 2):
        host.port(hca, number, ROCE)
    host.gid(hca, 2, 0, GID, ndevs="eth0")
    host.netdev("eth0", function, dev_port="0", type="1")
    assert ports(host) == {"eth0": 2}


def test_an_interface_is_found_by_its_device_not_by_its_hardware_address(host: RdmaHost) -> None:
    mine, other = host.function("41"), host.function("42")
    host.port(host.hca("mlx5_0", mine, node_guid="a088:c203:00ab:0000"), 1, IB)
    host.netdev("ib0", mine, address="80:00:0a:28:fe:80:00:00:00:00:00:00:11:11:11:11:11:11:11:12")
    host.netdev("ib1", other, address="80:00:0a:28:fe:80:00:00:00:00:00:00:a0:88:c2:03:00:ab:00:00")
    assert [netdev.name for netdev in host.only().netdevs] == ["ib0"]


def test_interfaces_that_gids_name_belong_to_the_device_too(host: RdmaHost) -> None:
    function = host.function("41")
    hca = host.hca("mlx5_bond_0", function)
    host.port(hca, 1, ROCE)
    bond = host.netdev("bond0", None, mtu="9000", operstate="up")
    host.enslave(host.netdev("eth0", function, mtu="9000", operstate="up"), bond)
    host.netdev("bond0.7", None, mtu="1500", operstate="up")
    host.gid(hca, 1, 0, GID, types="RoCE v2", ndevs="bond0")
    host.gid(hca, 1, 1, GID, types="RoCE v2", ndevs="bond0.7")
    assert host.only().netdevs == (
        NetDevice(name="bond0", port=1, mtu=9000, state="up"),
        NetDevice(name="bond0.7", port=1, mtu=1500, state="up"),
        NetDevice(name="eth0", port=1, mtu=9000, state="up", master="bond0"),
    )


@pytest.mark.parametrize(
    ("port_name", "is_own"),
    [("p0", True), ("pf0vf3", False), ("pf0sf88", False), ("c1pf0vf0", False), ("pf0hpf", False)],
)
def test_representors_of_other_functions_are_left_out(
    host: RdmaHost,
    port_name: str,
    is_own: bool,
) -> None:
    function = host.function("41")
    host.port(host.hca("mlx5_0", function), 1, ROCE)
    host.netdev("eth0", function, phys_port_name=port_name)
    assert [netdev.name for netdev in host.only().netdevs] == (["eth0"] if is_own else [])


def test_a_driver_without_switch_ports_may_refuse_their_name(
    host: RdmaHost,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    function = host.function("41")
    host.port(host.hca("mlx5_0", function), 1, ROCE)
    host.netdev("eth0", function, phys_port_name="")
    Refusals(monkeypatch).ends = ("/phys_port_name",)
    assert [netdev.name for netdev in host.only().netdevs] == ["eth0"]


def test_a_subfunction_has_the_interfaces_of_its_own_auxiliary_device(host: RdmaHost) -> None:
    function = host.function("41")
    host.netdev("eth0", function)
    auxiliary = f"{function}/mlx5_core.sf.4"
    host.write(auxiliary, {"sfnum": "88"})
    host.port(host.hca("rocep65s0f0S88", auxiliary), 1, ROCE)
    host.netdev("enp65s0f0S88", auxiliary)
    assert [netdev.name for netdev in host.only().netdevs] == ["enp65s0f0S88"]
