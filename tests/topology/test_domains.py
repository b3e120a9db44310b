from dataclasses import replace
from itertools import combinations

import pytest

from agent.machines.bundled import machine
from agent.model.gpu import Fabric, FabricState, Gpu
from agent.model.nvlink import ReportedPair
from agent.model.snapshot import Snapshot
from agent.topology.domains import Clique, Interconnect, clique, has_switch, interconnect, islands
from tests.strategies import node

MEMBER = Fabric(state=FabricState.COMPLETED, status=0, cluster_uuid="c1", clique_id=7)
ALONE = Fabric(state=FabricState.COMPLETED, status=0, cluster_uuid=None, clique_id=0)
WAITING = Fabric(state=FabricState.IN_PROGRESS, status=0, cluster_uuid="c1", clique_id=7)
FAILED = Fabric(state=FabricState.COMPLETED, status=999, cluster_uuid="c1", clique_id=7)
NONE = Fabric(state=FabricState.NOT_SUPPORTED)


def fabric(*memberships: Fabric | None) -> Snapshot:
    """A switched machine whose GPUs have *memberships* of the fabric."""
    plain = node(numa=[0] * len(memberships), switch_links=18)
    gpus = (
        replace(gpu, fabric=member) for gpu, member in zip(plain.gpus, memberships, strict=True)
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
