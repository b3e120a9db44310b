import pytest
from msgspec.structs import replace

from nodetopo.machines.bundled import machine
from nodetopo.model.gpu import Gpu
from nodetopo.model.hca import DataDirect, Hca
from nodetopo.model.numa import CpuSet, NumaNode
from nodetopo.model.nvlink import Closeness, P2pStatus, PeerAccess, ReportedPair
from nodetopo.model.pci import PciAddress, PciPath
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.affinity import nearest_hcas, socket_of_node
from nodetopo.topology.links import nvlinks_between
from nodetopo.topology.matrix import matrix, pci_closeness
from nodetopo.topology.path import closeness
from tests.strategies import node

H100 = """
GPU0 X NV18 NV18 NV18 NV18 NV18 NV18 NV18 PXB NODE NODE NODE SYS SYS SYS SYS
GPU1 NV18 X NV18 NV18 NV18 NV18 NV18 NV18 NODE PXB NODE NODE SYS SYS SYS SYS
GPU2 NV18 NV18 X NV18 NV18 NV18 NV18 NV18 NODE NODE PXB NODE SYS SYS SYS SYS
GPU3 NV18 NV18 NV18 X NV18 NV18 NV18 NV18 NODE NODE NODE PXB SYS SYS SYS SYS
GPU4 NV18 NV18 NV18 NV18 X NV18 NV18 NV18 SYS SYS SYS SYS PXB NODE NODE NODE
GPU5 NV18 NV18 NV18 NV18 NV18 X NV18 NV18 SYS SYS SYS SYS NODE PXB NODE NODE
GPU6 NV18 NV18 NV18 NV18 NV18 NV18 X NV18 SYS SYS SYS SYS NODE NODE PXB NODE
GPU7 NV18 NV18 NV18 NV18 NV18 NV18 NV18 X SYS SYS SYS SYS NODE NODE NODE PXB
NIC0 PXB NODE NODE NODE SYS SYS SYS SYS X NODE NODE NODE SYS SYS SYS SYS
NIC1 NODE PXB NODE NODE SYS SYS SYS SYS NODE X NODE NODE SYS SYS SYS SYS
NIC2 NODE NODE PXB NODE SYS SYS SYS SYS NODE NODE X NODE SYS SYS SYS SYS
NIC3 NODE NODE NODE PXB SYS SYS SYS SYS NODE NODE NODE X SYS SYS SYS SYS
NIC4 SYS SYS SYS SYS PXB NODE NODE NODE SYS SYS SYS SYS X NODE NODE NODE
NIC5 SYS SYS SYS SYS NODE PXB NODE NODE SYS SYS SYS SYS NODE X NODE NODE
NIC6 SYS SYS SYS SYS NODE NODE PXB NODE SYS SYS SYS SYS NODE NODE X NODE
NIC7 SYS SYS SYS SYS NODE NODE NODE PXB SYS SYS SYS SYS NODE NODE NODE X
"""
CUBE = """
GPU0 X NV1 NV1 NV2 NV2 SYS SYS SYS PIX PHB SYS SYS
GPU1 NV1 X NV2 NV1 SYS NV2 SYS SYS PIX PHB SYS SYS
GPU2 NV1 NV2 X NV2 SYS SYS NV1 SYS PHB PIX SYS SYS
GPU3 NV2 NV1 NV2 X SYS SYS SYS NV1 PHB PIX SYS SYS
GPU4 NV2 SYS SYS SYS X NV1 NV1 NV2 SYS SYS PIX PHB
GPU5 SYS NV2 SYS SYS NV1 X NV2 NV1 SYS SYS PIX PHB
GPU6 SYS SYS NV1 SYS NV1 NV2 X NV2 SYS SYS PHB PIX
GPU7 SYS SYS SYS NV1 NV2 NV1 NV2 X SYS SYS PHB PIX
NIC0 PIX PIX PHB PHB SYS SYS SYS SYS X PHB SYS SYS
NIC1 PHB PHB PIX PIX SYS SYS SYS SYS PHB X SYS SYS
NIC2 SYS SYS SYS SYS PIX PIX PHB PHB SYS SYS X PHB
NIC3 SYS SYS SYS SYS PHB PHB PIX PIX SYS SYS PHB X
"""
L40S = """
GPU0 X NODE SYS SYS
GPU1 NODE X SYS SYS
GPU2 SYS SYS X NODE
GPU3 SYS SYS NODE X
"""


@pytest.mark.parametrize(
    ("name", "expected"),
    [("dgx-h100", H100), ("dgx-1v", CUBE), ("l40s-pcie-4", L40S)],
)
def test_the_matrix_is_what_nvidia_smi_prints(name: str, expected: str) -> None:
    found = matrix(machine(name))
    rows = zip(found.devices, found.cells, strict=True)
    assert [[device.id, *cells] for device, cells in rows] == [
        line.split() for line in expected.strip().splitlines()
    ]


@pytest.mark.parametrize("name", ["dgx-h100", "dgx-1v", "l40s-pcie-4"])
def test_the_pci_tree_says_what_the_driver_reports(name: str) -> None:
    snapshot = machine(name)
    assert matrix(replace(snapshot, pairs=())).cells == matrix(snapshot).cells


def test_what_nobody_reports_is_an_empty_cell() -> None:
    assert matrix(Snapshot(gpus=(Gpu(index=0), Gpu(index=1)))).cells == (
        ("X", None),
        (None, "X"),
    )


def test_two_gpus_of_one_board_print_as_one_switch() -> None:
    assert matrix(node(numa=[0, 0], distances={(0, 1): Closeness.INTERNAL})).cells[0] == (
        "X",
        "PIX",
    )


def at(*hops: int, root: str = "pci0000:00", numa: int | None = 0, has_path: bool = True) -> Gpu:
    """A GPU below the bridges on buses *hops*, itself on the last."""
    path = PciPath(root=root, hops=tuple(PciAddress(0, bus, 0, 0) for bus in hops))
    return Gpu(index=0, path=path if has_path else None, numa_node=numa)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (at(1, 2, 3, 4), at(1, 2, 5, 6), Closeness.PIX),
        (at(1, 2, 3, 4, 5), at(1, 2, 6, 7), Closeness.PXB),
        (at(1, 2, 3, 4), at(1, 2, 5, 6, 7, 8), Closeness.PXB),
        (at(1, 2), at(3, 4), Closeness.PHB),
        (at(1, 2), at(3, 4, root="pci0000:80"), Closeness.NODE),
        (at(1, 2), at(3, 4, root="pci0000:80", numa=1), Closeness.SYS),
        (at(1, 2), at(3, 4, root="pci0000:80", numa=None), None),
        (at(1, 2, numa=None), at(3, 4, numa=1), Closeness.PHB),
        (at(1, 2), at(has_path=False), None),
    ],
)
def test_closeness_follows_the_bridges_between(a: Gpu, b: Gpu, expected: Closeness | None) -> None:
    assert (closeness(a, b), closeness(b, a)) == (expected, expected)


def test_what_the_driver_reports_wins_over_the_tree() -> None:
    pair = ReportedPair(a="GPU1", b="GPU0", closeness=Closeness.PIX)
    snapshot = replace(machine("l40s-pcie-4"), pairs=(pair,))
    assert matrix(snapshot).cells[0] == ("X", "PIX", "SYS", "SYS")


def test_links_count_as_the_weaker_end_reports_them() -> None:
    plain = node(numa=[0, 0], links={(0, 1): 2})
    links = tuple(link for link in plain.nvlinks or () if (link.gpu, link.link) != (1, 2))
    assert nvlinks_between(replace(plain, nvlinks=links)) == {(0, 1): 1}


def test_links_that_are_down_do_not_count() -> None:
    plain = node(numa=[0, 0], links={(0, 1): 2})
    links = tuple(replace(link, is_active=link.gpu == 0) for link in plain.nvlinks or ())
    assert nvlinks_between(replace(plain, nvlinks=links)) == {(0, 1): 0}


def test_a_pair_behind_switches_has_the_lesser_number_of_links() -> None:
    plain = node(numa=[0, 0, 0], switch_links=3)
    links = tuple(link for link in plain.nvlinks or () if link.gpu != 2 or link.link % 3)
    assert nvlinks_between(replace(plain, nvlinks=links)) == {(0, 1): 3, (0, 2): 2, (1, 2): 2}


def test_a_pair_without_peer_access_has_no_links_through_switches() -> None:
    refused = PeerAccess(nvlink=P2pStatus.NOT_SUPPORTED)
    denied = ReportedPair(a="GPU0", b="GPU1", backward=refused)
    snapshot = replace(node(numa=[0, 0], switch_links=3), pairs=(denied,))
    assert nvlinks_between(snapshot) == {(0, 1): 0}


def test_unread_links_are_unknown_and_not_absent() -> None:
    assert nvlinks_between(replace(node(numa=[0, 0]), nvlinks=None)) == {(0, 1): None}


def test_a_text_that_counts_links_is_believed() -> None:
    pair = ReportedPair(a="GPU1", b="GPU0", nvlinks=12)
    gpus = (Gpu(index=0), Gpu(index=1))
    assert nvlinks_between(Snapshot(gpus=gpus, pairs=(pair,))) == {(0, 1): 12}


def test_pairs_of_names_that_are_no_rows_are_ignored() -> None:
    pair = ReportedPair(a="GPU-zero", b="GPUs", nvlinks=12)
    assert nvlinks_between(replace(node(numa=[0, 0]), pairs=(pair,))) == {(0, 1): 0}


def test_the_nearest_hcas_of_a_gpu_are_all_that_tie() -> None:
    near = {0: Closeness.PIX, 1: Closeness.SYS}
    also = {0: Closeness.PIX, 1: Closeness.NODE}
    found = nearest_hcas(node(numa=[0, 1, 1], hcas=[near, also]))
    assert {
        index: (nearest.closeness, [hca.name for hca in nearest.hcas])
        for index, nearest in found.items()
    } == {
        0: (Closeness.PIX, ["mlx5_0", "mlx5_1"]),
        1: (Closeness.NODE, ["mlx5_1"]),
    }


def test_each_gpu_of_the_h100_machine_has_its_own_hca() -> None:
    found = nearest_hcas(machine("dgx-h100"))
    assert [[hca.name for hca in found[index].hcas] for index in range(8)] == [
        [f"mlx5_{index}"] for index in range(8)
    ]


def test_a_node_without_cpus_has_no_socket() -> None:
    plain = node(numa=[0, 1], sockets={0: 0, 1: 1})
    first, second = plain.numa_nodes or ()
    empty = replace(second, cpus=type(second.cpus)())
    assert socket_of_node(replace(plain, numa_nodes=(first, empty))) == {0: 0}


def test_hcas_are_rows_by_position_under_the_name_people_know() -> None:
    snapshot = Snapshot(hcas=(Hca(name="roce0"), Hca(name="bnxt_re1")))
    assert [(row.id, row.label) for row in matrix(snapshot).devices] == [
        ("NIC0", "roce0"),
        ("NIC1", "bnxt_re1"),
    ]


def test_data_direct_functions_are_rows_behind_the_hcas() -> None:
    shared = PciAddress(0, 1, 0, 0)
    place = PciPath(root="pci0000:00", hops=(shared, PciAddress(0, 2, 0, 0)))
    gpu = Gpu(index=0, path=PciPath(root="pci0000:00", hops=(shared, PciAddress(0, 3, 0, 0))))
    found = matrix(
        Snapshot(
            gpus=(gpu,),
            hcas=(Hca(name="mlx5_0"), Hca(name="mlx5_1")),
            data_directs=(DataDirect(path=place, hcas=("mlx5_0", "mlx5_1")), DataDirect()),
        )
    )
    assert [(row.id, row.kind.value, row.label) for row in found.devices[3:]] == [
        ("DD0", "nic", "mlx5_0, mlx5_1"),
        ("DD1", "nic", "DD1"),
    ]
    assert found.cells[0] == ("X", None, None, "PIX", None)


def test_a_reported_data_direct_pair_wins_over_the_tree() -> None:
    pair = ReportedPair(a="DD0", b="GPU0", closeness=Closeness.PXB)
    found = matrix(Snapshot(gpus=(Gpu(index=0),), data_directs=(DataDirect(),), pairs=(pair,)))
    assert found.cells == (("X", "PXB"), ("PXB", "X"))


def test_a_gpu_row_has_the_nodes_that_nvidia_smi_lists() -> None:
    gpu = Gpu(index=0, numa_node=0, numa_affinity=(0, 3, 4), memory_numa_node=2)
    (row,) = matrix(Snapshot(gpus=(gpu,))).devices
    assert (row.numa, row.numa_affinity, row.memory_numa) == (0, (0, 3, 4), 2)


def test_devices_without_a_node_are_on_the_only_one_that_has_cpus() -> None:
    """Firmware of machines with one node often names none; GPU memory (Grace) is no place."""
    gpus = (at(1, 2, numa=None), replace(at(3, 4, root="pci0000:80", numa=None), index=1))
    nodes = (
        NumaNode(id=0, cpus=CpuSet.parse("0-3")),
        NumaNode(id=1, cpus=CpuSet()),
    )
    pair = frozenset(("GPU0", "GPU1"))
    assert pci_closeness(Snapshot(gpus=gpus, numa_nodes=nodes)) == {pair: Closeness.NODE}
    with_cpus = (nodes[0], replace(nodes[1], cpus=CpuSet.parse("4-7")))
    assert pci_closeness(Snapshot(gpus=gpus, numa_nodes=with_cpus)) == {}
