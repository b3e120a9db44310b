from itertools import combinations

import pytest
from msgspec.structs import replace

from nodetopo.machines.bundled import machine
from nodetopo.model.gpu import C2c, Fabric, FabricState, Gpu
from nodetopo.model.nvlink import ReportedPair
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.domains import (
    Clique,
    Interconnect,
    clique,
    cluster_uuid,
    has_multi_node_nvlink,
    has_switch,
    interconnect,
    islands,
)
from tests.strategies import node

MEMBER = Fabric(state=FabricState.COMPLETED, status=0, cluster_uuid="c1", clique_id=7)
ALONE = Fabric(state=FabricState.COMPLETED, status=0, cluster_uuid=None, clique_id=0)
WAITING = Fabric(state=FabricState.IN_PROGRESS, status=0, cluster_uuid="c1", clique_id=7)
FAILED = Fabric(state=FabricState.COMPLETED, status=999, cluster_uuid="c1", clique_id=7)
NONE = Fabric(state=FabricState.NOT_SUPPORTED)
ZEROS = "00000000-0000-0000-0000-000000000000"
NEW = "NVIDIA VR200"
"""A product that this program has no name for."""


def fabric(*memberships: Fabric | None, product: str = "NVIDIA GB200") -> Snapshot:
    """A switched machine whose GPUs, of *product*, have *memberships* of the fabric."""
    plain = node(numa=[0] * len(memberships), switch_links=18)
    gpus = (
        replace(gpu, product=product, fabric=member)
        for gpu, member in zip(plain.gpus, memberships, strict=True)
    )
    return replace(plain, gpus=tuple(gpus))


@pytest.mark.parametrize(
    ("snapshot", "expected"),
    [
        (fabric(MEMBER, MEMBER), Clique(cluster_uuid="c1", clique_id=7)),
        (fabric(MEMBER, NONE, None), Clique(cluster_uuid="c1", clique_id=7)),
        (fabric(ALONE, ALONE), None),
        (fabric(MEMBER, WAITING), None),
        (fabric(MEMBER, FAILED), None),
        (fabric(MEMBER, replace(MEMBER, clique_id=8)), None),
        (fabric(MEMBER, replace(MEMBER, cluster_uuid="c2")), None),
        (fabric(MEMBER, replace(MEMBER, clique_id=None)), None),
        (fabric(None, NONE), None),
        (Snapshot(), None),
    ],
)
def test_a_node_has_a_clique_when_all_its_registered_gpus_share_one(
    snapshot: Snapshot,
    expected: Clique | None,
) -> None:
    assert clique(snapshot) == expected


@pytest.mark.parametrize(
    ("product", "has_c2c", "expected"),
    [
        ("NVIDIA GB200", False, True),  # a virtual machine may hide the link to the CPU
        ("NVIDIA GB300", None, True),
        ("NVIDIA GH200 480GB", None, True),
        ("NVIDIA-GB200-MIG-1g.23gb", None, True),  # as the label has it
        ("NVIDIA H100 80GB HBM3", None, False),
        ("NVIDIA-H100-80GB-HBM3", None, False),
        ("NVIDIA H200", None, False),
        ("NVIDIA H20-3e", None, False),
        ("NVIDIA B200", None, False),
        ("NVIDIA B300 SXM6 AC", None, False),
        (NEW, True, True),
        (NEW, False, False),
        (NEW, None, None),
        (None, None, None),
    ],
)
def test_a_product_has_multi_node_nvlink_by_its_name_or_its_link_to_the_cpu(
    product: str | None, has_c2c: bool | None, expected: bool | None
) -> None:
    assert has_multi_node_nvlink(product, has_c2c=has_c2c) is expected


@pytest.mark.parametrize("product", ["NVIDIA H100 80GB HBM3", "NVIDIA B200", NEW])
def test_a_board_that_names_a_cluster_stays_a_node_of_its_own(product: str) -> None:
    board = fabric(MEMBER, MEMBER, product=product)
    assert [cluster_uuid(gpu) for gpu in board.gpus] == [None, None]
    assert clique(board) is None
    assert interconnect(board) is Interconnect.NVSWITCH


def test_a_product_that_is_not_known_is_believed_where_it_has_a_link_to_the_cpu() -> None:
    plain = fabric(MEMBER, MEMBER, product=NEW)
    linked = (replace(gpu, c2c=C2c(is_enabled=True)) for gpu in plain.gpus)
    assert clique(replace(plain, gpus=tuple(linked))) == Clique(cluster_uuid="c1", clique_id=7)


def test_a_cluster_of_zeros_is_none() -> None:
    assert clique(fabric(replace(MEMBER, cluster_uuid=ZEROS))) is None


def test_a_clique_is_written_as_the_label_writes_it() -> None:
    assert str(clique(fabric(MEMBER))) == "c1.7"


def text(count: int, links: int) -> Snapshot:
    """What a matrix text tells of *count* fully joined GPUs."""
    pairs = tuple(
        ReportedPair(a=f"GPU{a}", b=f"GPU{b}", nvlinks=links)
        for a, b in combinations(range(count), 2)
    )
    return Snapshot(gpus=tuple(Gpu(index=index) for index in range(count)), pairs=pairs)


@pytest.mark.parametrize(
    ("snapshot", "expected"),
    [
        (machine("dgx-h100"), Interconnect.NVSWITCH),
        (machine("dgx-1v"), Interconnect.MESH),
        (machine("l40s-pcie-4"), Interconnect.PCIE),
        (fabric(MEMBER, MEMBER), Interconnect.MNNVL),
        (node(numa=[0, 0, 0], links={(0, 2): 4}), Interconnect.PAIRS),
        (node(numa=[0, 0, 0], links={(0, 2): 4, (1, 2): 1}), Interconnect.MESH),
        (node(numa=[0]), Interconnect.NONE),
        (Snapshot(), Interconnect.NONE),
        (replace(machine("dgx-h100"), nvlinks=None), None),
        (text(8, 12), Interconnect.NVSWITCH),
        (text(4, 4), Interconnect.MESH),
        (text(2, 12), Interconnect.PAIRS),
        (text(4, 0), Interconnect.PCIE),
    ],
)
def test_the_interconnect_is_the_best_that_a_group_shares(
    snapshot: Snapshot,
    expected: Interconnect | None,
) -> None:
    assert interconnect(snapshot) is expected


@pytest.mark.parametrize(
    ("snapshot", "expected"),
    [
        (machine("dgx-1v"), (tuple(range(8)),)),
        (machine("l40s-pcie-4"), ((0,), (1,), (2,), (3,))),
        (
            node(numa=[0] * 6, links={(4, 5): 1, (1, 3): 1, (3, 0): 1}),
            ((0, 1, 3), (4, 5), (2,)),
        ),
        (replace(machine("dgx-1v"), nvlinks=None), None),
    ],
)
def test_islands_are_the_groups_joined_by_nvlink_largest_first(
    snapshot: Snapshot,
    expected: tuple[tuple[int, ...], ...] | None,
) -> None:
    assert islands(snapshot) == expected


def test_switch_links_that_are_down_are_no_switch() -> None:
    plain = node(numa=[0, 0], switch_links=2)
    links = tuple(replace(link, is_active=False) for link in plain.nvlinks or ())
    assert not has_switch(replace(plain, nvlinks=links))
