"""What NCCL makes of HCAs: ports, functions of one card, virtual functions, Data Direct."""

from msgspec.structs import replace

from nodetopo.model.hca import DataDirect, Hca, HcaKind, LinkLayer
from nodetopo.model.pci import PciAddress
from nodetopo.model.snapshot import Snapshot
from nodetopo.nccl.bandwidth import UNKNOWN
from nodetopo.nccl.net import MAX_FUSED, nets
from tests.topology.trees import bus, hca, path


def found(*hcas: Hca, directs: tuple[DataDirect, ...] = ()) -> list[tuple[tuple[int, ...], float]]:
    """HCAs and bandwidth of each network device."""
    snapshot = Snapshot(hcas=hcas, data_directs=directs)
    return [(net.hcas, net.bandwidth_gbs) for net in nets(snapshot)]


def test_the_active_ports_of_a_card_are_one_device() -> None:
    assert found(hca("mlx5_0", 1, 9, rates=(100.0, 200.0))) == [((0,), 37.5)]


def test_the_functions_of_a_card_are_one_device_too() -> None:
    assert found(hca("mlx5_0", 1, 9), hca("mlx5_1", 1, 9, function=1), hca("mlx5_2", 2, 10)) == [
        ((0, 1), 100.0),
        ((2,), 50.0),
    ]


def test_virtual_functions_are_one_device_with_their_physical_one() -> None:
    virtual = hca("mlx5_2", 1, 9)
    assert virtual.path is not None
    place = replace(virtual.path, hops=(bus(1), PciAddress(0, 9, 3, 2)))
    assert found(hca("mlx5_0", 1, 9), replace(virtual, path=place)) == [((0, 1), 100.0)]


def test_more_ports_than_a_device_can_have_make_several() -> None:
    many = [hca(f"mlx5_{at}", 1, 9, function=at % 8) for at in range(MAX_FUSED + 1)]
    assert [len(hcas) for hcas, _ in found(*many)] == [MAX_FUSED, 1]


def test_link_layers_do_not_mix() -> None:
    ethernet = hca("mlx5_1", 1, 9, function=1)
    ports = tuple(replace(port, layer=LinkLayer.ETHERNET) for port in ethernet.ports)
    assert len(found(hca("mlx5_0", 1, 9), replace(ethernet, ports=ports))) == 2


def test_only_active_ports_count_and_those_of_unknown_state() -> None:
    plain = hca("mlx5_0", 1, 9, rates=(100.0, 100.0, 100.0))
    first, second, third = plain.ports
    ports = (replace(first, state="DOWN"), replace(second, state=None), third)
    assert found(replace(plain, ports=ports)) == [((0,), 25.0)]
    assert found(replace(plain, ports=(ports[0],))) == []


def test_an_hca_without_ports_in_its_source_has_an_unknown_speed() -> None:
    assert found(replace(hca("mlx5_0", 1, 9), ports=())) == [((0,), UNKNOWN)]


def test_software_and_misplaced_devices_are_none() -> None:
    soft = replace(hca("rxe0", 1, 9), kind=HcaKind.SOFTWARE)
    assert found(soft, Hca(name="text", kind=HcaKind.PHYSICAL)) == []


def test_a_subfunction_has_no_place() -> None:
    (net,) = nets(Snapshot(hcas=(hca("mlx5_0", 1, 9, kind=HcaKind.SUBFUNCTION),)))
    assert (net.nic, net.path) == (None, None)


def test_hcas_with_a_data_direct_function_take_its_place() -> None:
    direct = DataDirect(path=path(1, 30), numa_node=1, hcas=("mlx5_0", "mlx5_1"))
    both = (hca("mlx5_0", 1, 9), hca("mlx5_1", 2, 10))
    (net,) = nets(Snapshot(hcas=both, data_directs=(direct, DataDirect(hcas=("other",)))))
    assert (net.nic, net.path, net.numa_node, net.hcas) == (bus(30), direct.path, 1, (0, 1))


def test_a_data_direct_function_of_unknown_place_changes_nothing() -> None:
    (net,) = nets(
        Snapshot(hcas=(hca("mlx5_0", 1, 9),), data_directs=(DataDirect(hcas=("mlx5_0",)),))
    )
    assert net.nic == bus(9)


def test_a_card_is_its_guid_and_the_port_among_those_of_the_device() -> None:
    one = hca("mlx5_0", 1, 9, guid="946d:ae03:0050:709a")
    two = hca("mlx5_1", 1, 9, function=1, guid="946d:ae03:0050:709a")
    (net,) = nets(Snapshot(hcas=(one, two)))
    cards = [("946d:ae03:0050:709a", 1), ("946d:ae03:0050:709a", 2)]
    assert [port.card for port in net.ports] == cards
    second = tuple(replace(port, number=2) for port in two.ports)  # as NCCL dumps it
    (dumped,) = nets(Snapshot(hcas=(one, replace(two, ports=second))))
    assert [port.card for port in dumped.ports] == cards


def test_the_order_is_that_of_pci_addresses_and_not_of_the_rows() -> None:
    assert [hcas for hcas, _ in found(hca("a", 2, 20), hca("b", 1, 9))] == [(1,), (0,)]
