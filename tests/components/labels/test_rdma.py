"""The network cards of the GPUs."""

import pytest
from msgspec import structs

from nodetopo.model.gpu import NvidiaDriver
from nodetopo.model.hca import Hca, HcaKind, HcaPort, LinkLayer
from nodetopo.model.nvlink import Closeness
from nodetopo.model.snapshot import Kernel, Snapshot
from tests.components.labels.topology_machines import own, shape, with_port
from tests.strategies import node

DGX = shape("h100x8-nvswitch-2numa-8cx7")
KEYS = ("rdma", "rdma-nics", "rdma-rate", "gpu-nic")
PIX, NODE = Closeness.PIX, Closeness.NODE


def rdma(snapshot: Snapshot) -> tuple[str | None, ...]:
    return tuple(own(snapshot).get(key) for key in KEYS)


def port(layer: LinkLayer, rate: float, state: str = "ACTIVE") -> HcaPort:
    return HcaPort(number=1, state=state, layer=layer, rate_gbps=rate)


def with_cards(snapshot: Snapshot, *ports: HcaPort, kind: HcaKind | None = None) -> Snapshot:
    hcas = tuple(
        structs.replace(hca, ports=(one,), kind=kind)
        for hca, one in zip(snapshot.hcas or (), ports, strict=True)
    )
    return structs.replace(snapshot, hcas=hcas)


def ib(rate: float = 400.0) -> HcaPort:
    return port(LinkLayer.INFINIBAND, rate)


def ethernet(rate: float = 400.0) -> HcaPort:
    return port(LinkLayer.ETHERNET, rate)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("h100x8-nvswitch-2numa-8cx7", ("ib", "8", "400", "pxb")),
        ("a100x8-nvswitch-8numa-10cx6", ("ib", "8", "200", "pxb")),  # 4 more serve storage
        ("a100x8-nvswitch-2numa-sfvf", ("roce", "4", "200", "pix")),  # functions of cards aside
        ("h200x8-nvswitch-2numa-10roce", ("roce", "8", "400", "pix")),  # a slow bond and DPU aside
        ("gb200x4-nvl72-34numa-4cx7", ("ib", "4", "400", "node")),  # BlueFields aside
        ("a100x6-pcie-bridged-crosssocket", ("ib", "1", "200", "sys")),
        ("l40sx4-pcie-2numa", ("none", "0", None, None)),
    ],
)
def test_a_machine_has_these_cards(name: str, expected: tuple[str | None, ...]) -> None:
    assert rdma(shape(name)) == expected


def test_hcas_that_were_not_read_leave_all_open() -> None:
    assert rdma(structs.replace(DGX, hcas=None)) == (None, None, None, None)


@pytest.mark.parametrize("ports", [(ib(), ethernet()), (ethernet(), ib())])
def test_of_two_layers_equally_near_infiniband_counts(ports: tuple[HcaPort, ...]) -> None:
    machine = node(numa=(0, 0), hcas=({0: PIX}, {1: PIX}))
    assert rdma(with_cards(machine, *ports))[:3] == ("ib", "1", "400")


def test_the_layer_that_more_gpus_have_nearest_counts() -> None:
    machine = node(
        numa=(0, 0, 0),
        hcas=({0: PIX, 1: NODE, 2: NODE}, {1: PIX, 2: NODE}, {2: PIX}),
    )
    found = rdma(with_cards(machine, ib(), ethernet(), ethernet()))
    assert found == ("roce", "2", "400", None)  # how far GPU0 is from either, nobody says


def test_the_distance_is_that_of_the_gpu_that_is_worst_off() -> None:
    machine = node(numa=(0, 0), hcas=({0: PIX, 1: NODE},))
    assert rdma(with_cards(machine, ib()))[3] == "node"


def test_of_cards_equally_near_a_slower_one_does_not_count() -> None:
    machine = node(numa=(0,), hcas=({0: PIX}, {0: PIX}))
    assert rdma(with_cards(machine, ib(100), ib(400)))[1:3] == ("1", "400")


def test_a_port_that_is_down_changes_nothing_while_another_tells_the_rate() -> None:
    down = with_port(DGX, "mlx5_0", state="DOWN", rate_gbps=10.0)
    assert rdma(down) == rdma(DGX)


def test_with_every_port_down_only_the_rate_is_open() -> None:
    names = [hca.name for hca in DGX.hcas or ()]
    down = with_port(DGX, *names, state="DOWN", rate_gbps=10.0)
    assert rdma(down) == ("ib", "8", None, "pxb")


def test_the_rate_is_that_of_most_cards() -> None:
    assert rdma(with_port(DGX, "mlx5_0", rate_gbps=200.0))[2] == "400"


def test_software_devices_are_no_cards() -> None:
    machine = node(numa=(0,), hcas=({0: PIX},))
    soft = with_cards(machine, ethernet(), kind=HcaKind.SOFTWARE)
    assert rdma(soft)[:2] == ("none", "0")


def test_a_virtual_function_whose_card_the_machine_does_not_see_counts() -> None:
    machine = node(numa=(0,), hcas=({0: PIX},))
    guest = with_cards(machine, ib(), kind=HcaKind.VIRTUAL)
    assert rdma(guest)[:2] == ("ib", "1")


def test_without_port_facts_the_cards_still_count() -> None:
    machine = node(numa=(0,), hcas=({0: PIX},))
    assert rdma(machine) == (None, "1", None, "pix")


def test_where_no_distance_is_known_all_cards_count() -> None:
    machine = structs.replace(node(numa=(0,)), hcas=(Hca(name="a", ports=(ib(),)),))
    assert rdma(machine) == ("ib", "1", "400", None)


@pytest.mark.parametrize(
    ("driver", "release", "expected"),
    [
        (NvidiaDriver(is_open=True, peer_memory=True), "6.8.0-60-generic", "dmabuf"),
        (NvidiaDriver(is_open=True, peer_memory=False), None, "dmabuf"),
        (NvidiaDriver(is_open=True, peer_memory=True), "5.4.0-80-generic", "peermem"),
        (NvidiaDriver(is_open=True, peer_memory=False), "5.4.0-80-generic", "none"),
        (NvidiaDriver(is_open=True), "5.12.0", "dmabuf"),
        (NvidiaDriver(is_open=True), "5.11.9", None),
        (NvidiaDriver(is_open=False, peer_memory=True), "6.8", "peermem"),
        (NvidiaDriver(is_open=False, peer_memory=False), "6.8", "none"),
        (NvidiaDriver(is_open=False), "6.8", None),
        (NvidiaDriver(peer_memory=False), "6.8", None),
        (None, "6.8", None),
    ],
)
def test_gpudirect_is_what_driver_and_kernel_offer(
    driver: NvidiaDriver | None,
    release: str | None,
    expected: str | None,
) -> None:
    machine = structs.replace(DGX, nvidia=driver, kernel=Kernel(release=release))
    assert own(machine).get("gdr") == expected


def test_without_cards_nothing_is_said_of_gpudirect() -> None:
    assert "gdr" not in own(shape("l40sx4-pcie-2numa"))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("h100x8-nvswitch-2numa-8cx7", ("8", "4-4", "shared", "false")),
        ("h200x8-nvswitch-2numa-10roce", ("8", "4-4", "shared", "false")),  # slower ones aside
        ("v100x8-cubemesh-2numa-4cx4", ("0", "2-2", "shared", "false")),  # two GPUs share each
        ("a100x4-nv4-4numa-2cx", ("2", "1-0-1-0", "shared", "false")),  # two GPUs have none near
        ("gb300x2-station-1grace-datadirect", ("0", "2", "shared", "true")),
        ("h100x8-vm-2numa-8vf", (None, "4-4", "shared", "false")),  # its PCI tree is made up
        ("l40sx4-pcie-2numa", ("0", None, None, None)),
    ],
)
def test_rails_places_and_modes_of_the_cards(name: str, expected: tuple[str | None, ...]) -> None:
    labels = own(shape(name))
    keys = ("rdma-rails", "rdma-nics-per-numa", "rdma-netns", "data-direct")
    assert tuple(labels.get(key) for key in keys) == expected


def test_a_gpu_whose_card_another_has_nearest_too_is_on_no_rail() -> None:
    known = with_cards(
        node(numa=(0, 0, 0), hcas=({0: PIX, 1: PIX, 2: NODE}, {0: NODE, 1: NODE, 2: PIX})),
        ib(),
        ib(),
    )
    assert own(known)["rdma-rails"] == "1"


def test_a_card_without_a_numa_node_is_marked() -> None:
    first, *rest = DGX.hcas or ()
    homeless = structs.replace(first, numa_node=None)
    found = structs.replace(DGX, hcas=(homeless, *rest))
    assert own(found)["rdma-nics-per-numa"] == "3-4-u1"


def test_hcas_that_were_not_read_leave_rails_and_modes_open() -> None:
    labels = own(structs.replace(DGX, hcas=None))
    assert {"rdma-rails", "rdma-nics-per-numa", "rdma-netns", "data-direct"}.isdisjoint(labels)
