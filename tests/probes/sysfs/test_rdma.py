"""HCAs of any vendor and any name, from a `/sys` written by hand."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nodetopo.model.codec import decode, encode
from nodetopo.model.hca import Gid, Hca, HcaKind, HcaPort, LinkLayer, NetDevice
from nodetopo.model.pci import PciFunction
from nodetopo.model.snapshot import Snapshot
from nodetopo.probes.sysfs.rdma import RdmaReading
from tests.budget import cases
from tests.probes.sysfs.rdma_host import IB, ROCE, RdmaHost, placed


@pytest.fixture
def host(tmp_path: Path) -> RdmaHost:
    """A `/sys` with an empty PCI bus."""
    return RdmaHost(tmp_path)


def test_an_hca_is_read_whole(host: RdmaHost) -> None:
    function = host.function("41")
    hca = host.hca(
        "rocep65s0",
        function,
        hca_type="MT4129",
        board_id="MT_0000000838",
        fw_ver="28.39.1002",
        node_guid="a088:c203:0000:0001",
        sys_image_guid="a088:c203:0000:0000",
    )
    host.port(hca, 1, {**IB, "lid": "0x80", "sm_lid": "0x1"})
    host.gid(hca, 1, 0, "fe80:0000:0000:0000:a088:c203:0000:0001", types="IB/RoCE v1")
    host.netdev("ib0", function, mtu="4092", operstate="up", dev_port="0", type="32")
    for kind in ("infiniband_verbs/uverbs3", "infiniband_mad/umad4", "infiniband_mad/issm4"):
        host.write(f"class/{kind}", {"ibdev": "rocep65s0"})
    address, path = placed(0x41)
    reading = host.read()
    assert reading == RdmaReading(
        hcas=(
            Hca(
                name="rocep65s0",
                kind=HcaKind.PHYSICAL,
                pci=address,
                path=path,
                function=PciFunction(vendor="15b3", device="1021", pci_class="020700"),
                numa_node=1,
                hca_type="MT4129",
                board_id="MT_0000000838",
                firmware="28.39.1002",
                node_guid="a088:c203:0000:0001",
                sys_image_guid="a088:c203:0000:0000",
                netdevs=(NetDevice(name="ib0", port=1, mtu=4092, state="up"),),
                ports=(
                    HcaPort(
                        number=1,
                        state="ACTIVE",
                        physical_state="LinkUp",
                        layer=LinkLayer.INFINIBAND,
                        rate_gbps=400.0,
                        lid=0x80,
                        sm_lid=1,
                        gids=(
                            Gid(
                                index=0,
                                gid="fe80:0000:0000:0000:a088:c203:0000:0001",
                                type="IB/RoCE v1",
                            ),
                        ),
                    ),
                ),
                char_devices=("issm4", "umad4", "uverbs3"),
            ),
        ),
        data_directs=(),
        management_hcas=(),
    )


def test_hcas_are_ordered_as_the_kernel_registered_them_and_software_devices_last(
    host: RdmaHost,
) -> None:
    near, far = host.function("41"), host.function("c1")
    for name, parent, uverbs in (
        ("renamed", near, 10),
        ("mlx5_0", far, 9),
        ("mlx5_10", near, None),
        ("mlx5_2", far, None),
        ("a_software", None, 0),
    ):
        host.hca(name, parent)
        if uverbs is not None:
            host.write(f"class/infiniband_verbs/uverbs{uverbs}", {"ibdev": name})
    reading = host.read()
    names = [hca.name for hca in reading.hcas or ()]
    expected = ["mlx5_0", "renamed", "mlx5_2", "mlx5_10", "a_software"]
    assert (names, reading.issues) == (expected, ())


@pytest.mark.parametrize(
    "name",
    [
        "mlx5_0",
        "mlx4_0",
        "ibp12s0f4",
        "rocep193s0f0",
        "rocep193s0f0v0",
        "rocex525400123456",
        "bnxt_re0",
        "efa_0",
        "rdmap16s27",
        "erdma_0",
        "irdma0",
        "hfi1_0",
        "qib0",
        "mana_0",
        "mlx5_bond_0",
        "mlx5_core.sf.4",
        "siw",
        "gpu0_rail3",
    ],
)
def test_no_name_means_anything(host: RdmaHost, name: str) -> None:
    host.hca(name, host.function("41"))
    hca = host.only()
    assert (hca.name, hca.kind, hca.pci) == (name, HcaKind.PHYSICAL, placed(0x41)[0])


def test_a_device_on_no_bus_that_we_know_is_hardware_without_a_place(
    host: RdmaHost,
) -> None:
    host.write("devices/platform/soc/hns", {})
    host.hca("hns_0", "devices/platform/soc/hns")
    hca = host.only()
    assert (hca.kind, hca.pci, hca.path, hca.numa_node) == (HcaKind.PHYSICAL, None, None, None)


def test_no_rdma_modules_means_no_hcas(host: RdmaHost) -> None:
    assert host.read() == RdmaReading(hcas=(), data_directs=(), management_hcas=())


def test_a_class_directory_that_cannot_be_listed_is_unknown_not_empty(
    host: RdmaHost,
) -> None:
    host.link("class/infiniband", "class/infiniband")
    reading = host.read()
    assert (reading.hcas, reading.management_hcas) == (None, None)
    assert [issue.subject for issue in reading.issues] == ["class/infiniband"]


def test_attributes_that_a_driver_does_not_have_are_unknown_and_no_issue(
    host: RdmaHost,
) -> None:
    host.hca("efa_0", host.function("41", vendor="0x1d0f"), hca_type="", fw_ver="")
    hca = host.only()
    assert (hca.hca_type, hca.firmware, hca.board_id, hca.node_guid) == (None, None, None, None)


def test_every_port_has_its_own_char_devices(host: RdmaHost) -> None:
    hca = host.hca("mlx4_0", host.function("41"))
    other = host.hca("mlx4_1", host.function("42"))
    for place in (hca, other):
        host.port(place, 1, IB)
    for number, name in enumerate(("mlx4_0", "mlx4_0", "mlx4_1")):
        for kind in ("umad", "issm"):
            host.write(f"class/infiniband_mad/{kind}{number + 9}", {"ibdev": name})
    host.write("class/infiniband_mad", {"abi_version": "5"})
    host.write("class/infiniband_verbs/uverbs0", {"ibdev": "mlx4_0"})
    host.write("class/infiniband_verbs/uverbs1", {"ibdev": "mlx4_1"})
    host.write("class/infiniband_verbs", {"abi_version": "6"})
    reading = host.read()
    assert [hca.char_devices for hca in reading.hcas or ()] == [
        ("issm9", "issm10", "umad9", "umad10", "uverbs0"),
        ("issm11", "umad11", "uverbs1"),
    ]
    assert reading.issues == ()


def test_a_reading_survives_being_a_snapshot_in_a_file(host: RdmaHost) -> None:
    hca = host.hca("mlx5_0", host.function("41"))
    host.port(hca, 1, ROCE)
    host.write(f"{hca}/ports/1/counters", {"symbol_error": "7"})
    snapshot = Snapshot(hcas=host.read(counters=True).hcas, data_directs=())
    assert host.only(counters=True).ports[0].counters == {"symbol_error": 7}
    assert decode(encode(snapshot)).snapshot == snapshot


FILES = (
    "hca_type",
    "node_guid",
    "node_desc",
    "parent",
    "device/sfnum",
    "device/vendor",
    "device/vpd",
    "device/net/eth0/mtu",
    "device/net/eth0/operstate",
    "device/net/eth0/dev_port",
    "device/net/eth0/dev_id",
    "device/net/eth0/type",
    "device/net/eth0/phys_port_name",
    "ports/1/state",
    "ports/1/phys_state",
    "ports/1/rate",
    "ports/1/link_layer",
    "ports/1/lid",
    "ports/1/gids/0",
    "ports/1/gids/1",
    "ports/1/gid_attrs/types/1",
    "ports/1/gid_attrs/ndevs/1",
    "ports/1/counters/symbol_error",
    "ports/1/hw_counters/out_of_sequence",
)


@given(
    file=st.sampled_from(FILES),
    content=st.one_of(
        st.binary(max_size=80),
        st.from_regex(rb"(0x)?[0-9a-f]{1,60}(: .*)?( Gb/sec .*)?\n?", fullmatch=True),
        st.sampled_from([b"0x" + b"f" * 5000, b"9" * 5000, b"../../../../etc\n", b"..\n", b"a\0b"]),
    ),
)
@settings(
    max_examples=cases(30, 300),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
def test_no_bytes_in_any_file_stop_the_reader(
    tmp_path_factory: pytest.TempPathFactory,
    file: str,
    content: bytes,
) -> None:
    host = RdmaHost(tmp_path_factory.mktemp("sys"))
    function = host.function("41")
    host.function("e1", vendor="0x10de", **{"class": "0x030200"})
    hca = host.hca("mlx5_0", function)
    for number in (1, 2):
        host.port(hca, number, ROCE)
    host.gid(hca, 1, 1, "fe80:0000:0000:0000:a088:c203:0000:0001", ndevs="bond0")
    host.netdev("eth0", function, type="32")
    host.write(f"class/infiniband/mlx5_0/{file.rpartition('/')[0]}", {Path(file).name: content})
    reading = host.read(counters=True)
    assert len((*(reading.hcas or ()), *(reading.management_hcas or ()))) == 1
    snapshot = Snapshot(hcas=reading.hcas, issues=reading.issues)
    assert decode(encode(snapshot)).snapshot == snapshot
