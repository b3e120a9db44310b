"""Data Direct functions and the HCAs that they serve."""

from pathlib import Path

import pytest

from nodetopo.model.hca import DataDirect
from nodetopo.model.pci import PciFunction
from tests.probes.sysfs.rdma_host import RdmaHost, placed, vpd

CLASS = {"class": "0x080100", "device": "0x2100"}
UUID = "0a5efb8958deed118000946dae7db798"


@pytest.fixture
def host(tmp_path: Path) -> RdmaHost:
    """A `/sys` with a two-port ConnectX-8."""
    host = RdmaHost(tmp_path)
    for slot, name in (("00.0", "mlx5_1"), ("00.1", "mlx5_0")):
        function = host.function("41", slot, device="0x1023", vpd=vpd(SN="MT1", V3=UUID))
        host.hca(name, function)
    return host


def test_a_function_serves_the_hcas_of_its_card(host: RdmaHost) -> None:
    host.hca("mlx5_2", host.function("61", device="0x1023", vpd=vpd(V3="another")))
    host.function("51", vpd=vpd(SN="MT1", V3=UUID), **CLASS)
    address, path = placed(0x51)
    assert host.read().data_directs == (
        DataDirect(
            pci=address,
            path=path,
            function=PciFunction(vendor="15b3", device="2100", pci_class="080100"),
            numa_node=1,
            hcas=("mlx5_0", "mlx5_1"),
        ),
    )


def test_virtual_functions_and_subfunctions_are_not_served(host: RdmaHost) -> None:
    physical = host.function("41", "00.3")
    function = host.function("41", "00.4", device="0x1023", vpd=vpd(V3=UUID))
    host.link(f"{function}/physfn", physical)
    host.hca("mlx5_3", function)
    host.function("51", vpd=vpd(V3=UUID), **CLASS)
    (found,) = host.read().data_directs or ()
    assert found.hcas == ("mlx5_0", "mlx5_1")


def test_two_functions_on_one_card_serve_no_known_hca(host: RdmaHost) -> None:
    for bus in ("51", "52"):
        host.function(bus, vpd=vpd(V3=UUID), **CLASS)
    found = host.read().data_directs or ()
    assert [(it.pci, it.hcas) for it in found] == [(placed(0x51)[0], ()), (placed(0x52)[0], ())]


@pytest.mark.parametrize("content", [None, b"", b"\xff" * 64, vpd(SN="MT1")])
def test_without_the_cards_identity_a_function_serves_none(
    host: RdmaHost,
    content: bytes | None,
) -> None:
    files = CLASS if content is None else {**CLASS, "vpd": content}
    host.function("51", **files)
    (found,) = host.read().data_directs or ()
    assert (found.pci, found.hcas) == (placed(0x51)[0], ())


def test_without_a_pci_bus_data_direct_is_unknown(host: RdmaHost) -> None:
    bus = host.sysfs / "bus"
    bus.rename(host.sysfs / "gone")
    assert host.read().data_directs is None
