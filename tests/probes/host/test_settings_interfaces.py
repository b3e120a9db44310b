"""The host's network interfaces, and what is none of them."""

import pytest

from nodetopo.probes.host.settings import interfaces
from tests.probes.host.host_parts import HostTree, files_of

PHYSICAL = "sys/class/net/ens1f0/device/\nsys/class/net/bond0/\nsys/class/net/lo/\n"
CONTROL = "sys/class/net/\n  bonding_masters = bond0\n"


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        ("sys/\n", None),
        ("sys/class/net/\n", None),
        ("sys/class/net/eth0/\nsys/class/net/lo/\n", None),  # a container's
        (PHYSICAL, ("bond0", "ens1f0", "lo")),
        (PHYSICAL + CONTROL, ("bond0", "ens1f0", "lo")),
    ],
)
def test_interfaces_are_the_hosts_where_one_belongs_to_a_device(
    tree: str, expected: tuple[str, ...] | None, host_tree: HostTree
) -> None:
    assert interfaces(files_of(host_tree(tree) / "sys")) == expected
