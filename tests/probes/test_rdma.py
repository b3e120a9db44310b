"""HCAs of any name from sysfs."""

from collections.abc import Callable
from pathlib import Path

import pytest

from agent.model.hca import Hca, HcaPort, LinkLayer
from agent.model.pci import PciAddress, PciPath
from agent.model.snapshot import ProbeIssue
from agent.probes.pcie import PciTree
from agent.probes.rdma import read_rdma

PCI = "devices/pci0000:40/0000:40:01.0"


def hca(name: str, device: str, *files: str) -> str:
    """Return the archive of one RDMA device whose parent is *device*, relative to /sys."""
    place = f"sys/{device}/infiniband/{name}/"
    lines = "".join(f"  {file}\n" for file in files)
    return (
        f"sys/class/infiniband/\n  {name} -> ../../{device}/infiniband/{name}\n"
        f"{place}\n  device -> ../../../{device.rpartition('/')[2]}\n{lines}"
    )


def function(bus: str) -> str:
    """Return the archive of one ConnectX function on *bus*."""
    place = f"{PCI}/0000:{bus}:00.0"
    return (
        f"sys/bus/pci/devices/\n  0000:{bus}:00.0 -> ../../../{place}\n"
        f"sys/{place}/\n  vendor = 0x15b3\n  device = 0x1021\n  numa_node = 1\n"
    )


def pci(bus: int) -> tuple[PciAddress, PciPath]:
    """Return the address and path of the function on *bus*."""
    address = PciAddress(0, bus, 0, 0)
    port = PciAddress(0, 0x40, 1, 0)
    return address, PciPath(root="pci0000:40", hops=(port, address))


@pytest.fixture
def read(
    host_tree: Callable[[str], Path],
) -> Callable[[str], tuple[tuple[Hca, ...] | None, tuple[ProbeIssue, ...]]]:
    """Return a function from an archive to what the probe reads of it."""

    def reading(archive: str) -> tuple[tuple[Hca, ...] | None, tuple[ProbeIssue, ...]]:
        sysfs = host_tree(archive) / "sys"
        return read_rdma(sysfs, PciTree(sysfs))

    return reading


Read = Callable[[str], tuple[tuple[Hca, ...] | None, tuple[ProbeIssue, ...]]]


def test_an_hca_is_read_whole(read: Read) -> None:
    place = f"{PCI}/0000:41:00.0"
    ports = (
        f"sys/{place}/infiniband/rocep65s0/ports/2/\n  state = 1: DOWN\n"
        "  phys_state = 3: Disabled\n  rate = 2.5 Gb/sec (1X SDR)\n  link_layer = Ethernet\n"
        f"sys/{place}/infiniband/rocep65s0/ports/1/\n  state = 4: ACTIVE\n"
        "  phys_state = 5: LinkUp\n  rate = 400 Gb/sec (4X NDR)\n  link_layer = InfiniBand\n"
    )
    archive = (
        function("41")
        + hca(
            "rocep65s0",
            place,
            "hca_type = MT4129",
            "fw_ver = 28.39.1002",
            "node_guid = a088:c203:0000:0001",
            "sys_image_guid = a088:c203:0000:0000",
        )
        + ports
        + f"sys/{place}/net/eth7/\nsys/{place}/net/eth6/\n"
    )
    address, path = pci(0x41)
    assert read(archive) == (
        (
            Hca(
                name="rocep65s0",
                pci=address,
                path=path,
                numa_node=1,
                vendor="15b3",
                device="1021",
                hca_type="MT4129",
                firmware="28.39.1002",
                node_guid="a088:c203:0000:0001",
                sys_image_guid="a088:c203:0000:0000",
                netdevs=("eth6", "eth7"),
                ports=(
                    HcaPort(
                        number=1,
                        state="ACTIVE",
                        physical_state="LinkUp",
                        layer=LinkLayer.INFINIBAND,
                        rate_gbps=400.0,
                    ),
                    HcaPort(
                        number=2,
                        state="DOWN",
                        physical_state="Disabled",
                        layer=LinkLayer.ETHERNET,
                        rate_gbps=2.5,
                    ),
                ),
            ),
        ),
        (),
    )


def test_hcas_are_ordered_by_pci_address_then_name_and_software_devices_last(read: Read) -> None:
    archive = (
        function("41")
        + function("c1")
        + hca("mlx5_0", f"{PCI}/0000:c1:00.0")
        + hca("mlx5_10", f"{PCI}/0000:41:00.0")
        + hca("efa_0", f"{PCI}/0000:41:00.0")
        + hca("rxe0", "devices/virtual/net/lo")
    )
    hcas, issues = read(archive)
    assert ([it.name for it in hcas or ()], issues) == (
        ["efa_0", "mlx5_10", "mlx5_0", "rxe0"],
        (),
    )


def test_a_subfunction_belongs_to_the_pci_function_above_it(read: Read) -> None:
    place = f"{PCI}/0000:41:00.0/mlx5_core.sf.4"
    hcas, _ = read(function("41") + hca("rocep65s0S88", place))
    assert hcas is not None
    assert (hcas[0].pci, hcas[0].path, hcas[0].numa_node) == (*pci(0x41), 1)


def test_no_rdma_modules_means_no_hcas(read: Read) -> None:
    assert read("sys/class/\n") == ((), ())


def test_what_is_not_understood_is_an_issue_and_costs_one_field(read: Read) -> None:
    place = f"{PCI}/0000:41:00.0"
    port = (
        f"sys/{place}/infiniband/mlx5_0/ports/1/\n  state = on\n  rate = fast\n  link_layer = ?\n"
    )
    hcas, issues = read(function("41") + hca("mlx5_0", place) + port)
    assert hcas is not None
    assert (hcas[0].ports, [issue.reason for issue in issues]) == (
        (HcaPort(number=1),),
        [
            "not understood: 'on'",
            "not a link layer that we know: '?'",
            "not understood: 'fast'",
        ],
    )


def test_a_class_directory_that_cannot_be_listed_is_unknown_not_empty(read: Read) -> None:
    hcas, issues = read("sys/class/\n  infiniband -> infiniband\n")
    assert (hcas, [issue.subject for issue in issues]) == (None, ["class/infiniband"])
