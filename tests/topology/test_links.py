"""NVLinks between pairs on machines where something is missing, hidden or broken."""

from itertools import combinations

from msgspec.structs import replace

from nodetopo.model.gpu import Gpu, Mig
from nodetopo.model.nvlink import NvLink, P2pStatus, PeerAccess, PeerKind, ReportedPair
from nodetopo.model.pci import PciAddress
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.domains import Interconnect, has_switch, interconnect, islands
from nodetopo.topology.links import nvlinks_between, usable_nvlinks_between
from tests.strategies import node


def without(snapshot: Snapshot, index: int, **changes: object) -> Snapshot:
    """The machine with *changes* to one GPU."""
    gpus = tuple(replace(gpu, **changes) if gpu.index == index else gpu for gpu in snapshot.gpus)
    return replace(snapshot, gpus=gpus)


def switched(count: int, links: int, *, kind: PeerKind | None = PeerKind.SWITCH) -> Snapshot:
    """*count* GPUs with *links* each to switches, their far ends called *kind*."""
    plain = node(numa=[0] * count, switch_links=links)
    told = tuple(replace(link, peer_kind=kind) for link in plain.nvlinks or ())
    return replace(plain, nvlinks=told)


def test_sixteen_gpus_with_six_links_each_reach_all_others_with_six() -> None:
    dgx2 = switched(16, 6)
    assert set(nvlinks_between(dgx2).values()) == {6}
    assert len(nvlinks_between(dgx2)) == 120
    assert (islands(dgx2), interconnect(dgx2)) == ((tuple(range(16)),), Interconnect.NVSWITCH)


def test_a_far_end_that_the_driver_hides_altogether_is_a_switch() -> None:
    hidden = switched(4, 18, kind=None)
    assert set(nvlinks_between(hidden).values()) == {18}
    assert has_switch(hidden)


def test_a_hidden_address_of_a_gpu_is_no_switch() -> None:
    """A GPU of another container or virtual machine, at the end of a direct link."""
    assert set(nvlinks_between(switched(2, 6, kind=PeerKind.GPU)).values()) == {0}


def test_links_to_a_cpu_join_no_gpus() -> None:
    npu = PciAddress(4, 0, 0, 0)
    links = tuple(
        NvLink(gpu=gpu, link=0, is_active=True, peer=npu, peer_kind=PeerKind.CPU) for gpu in (0, 1)
    )
    ac922 = replace(node(numa=[0, 0]), nvlinks=links)
    assert nvlinks_between(ac922) == {(0, 1): 0}
    assert interconnect(ac922) is Interconnect.PCIE


def test_half_of_the_links_down_leaves_the_other_half() -> None:
    a100 = switched(3, 12)
    links = tuple(
        replace(link, is_active=link.gpu != 1 or link.link % 2 == 0) for link in a100.nvlinks or ()
    )
    assert nvlinks_between(replace(a100, nvlinks=links)) == {(0, 1): 6, (0, 2): 12, (1, 2): 6}


def test_links_of_unknown_state_are_unknown_when_no_state_of_that_gpu_is_known() -> None:
    links = tuple(
        replace(link, is_active=None if link.gpu == 1 else True)
        for link in switched(3, 4).nvlinks or ()
    )
    found = replace(switched(3, 4), nvlinks=links)
    assert nvlinks_between(found) == {(0, 1): None, (0, 2): 4, (1, 2): None}
    assert islands(found) is None


def test_one_link_of_unknown_state_counts_as_down() -> None:
    plain = switched(2, 4)
    links = tuple(
        replace(link, is_active=None) if (link.gpu, link.link) == (1, 5) else link
        for link in plain.nvlinks or ()
    )
    assert nvlinks_between(replace(plain, nvlinks=links)) == {(0, 1): 3}


def test_the_links_of_a_lost_gpu_are_unknown_and_of_no_use() -> None:
    found = without(switched(3, 18), 1, is_lost=True)
    assert nvlinks_between(found) == {(0, 1): None, (0, 2): 18, (1, 2): None}
    assert usable_nvlinks_between(found) == {(0, 1): 0, (0, 2): 18, (1, 2): 0}
    assert islands(found) == ((0, 2), (1,))


def test_a_lost_gpu_leaves_open_how_gpus_are_joined_unless_others_decide_it() -> None:
    assert interconnect(without(switched(3, 18), 1, is_lost=True)) is Interconnect.NVSWITCH
    mesh = node(numa=[0] * 4, links={(0, 1): 1, (1, 2): 1, (2, 3): 1})
    assert interconnect(without(mesh, 3, is_lost=True)) is Interconnect.MESH
    pairs = node(numa=[0] * 4, links={(0, 1): 1, (2, 3): 1})
    assert interconnect(without(pairs, 3, is_lost=True)) is None
    assert interconnect(without(node(numa=[0, 0]), 1, is_lost=True)) is None
    assert interconnect(without(node(numa=[0]), 0, is_lost=True)) is Interconnect.NONE
    divided = without(pairs, 3, is_lost=True, mig=Mig(is_enabled=True))
    assert interconnect(divided) is Interconnect.PAIRS


def test_a_lost_gpu_that_tells_nothing_leaves_the_others_known() -> None:
    plain = node(numa=[0, 0, 0], links={(0, 2): 4})
    assert islands(without(plain, 1, is_lost=True)) == ((0, 2), (1,))


def test_mig_keeps_the_links_and_loses_their_use() -> None:
    found = without(switched(3, 18), 2, mig=Mig(is_enabled=True))
    assert set(nvlinks_between(found).values()) == {18}
    assert usable_nvlinks_between(found) == {(0, 1): 18, (0, 2): 0, (1, 2): 0}
    assert islands(found) == ((0, 1), (2,))


def test_a_machine_all_in_mig_mode_is_joined_by_pcie() -> None:
    plain = switched(2, 18)
    gpus = tuple(replace(gpu, mig=Mig(is_enabled=True)) for gpu in plain.gpus)
    assert interconnect(replace(plain, gpus=gpus)) is Interconnect.PCIE


def test_a_single_gpu_behind_switches_is_joined_to_none() -> None:
    assert interconnect(switched(1, 18)) is Interconnect.NONE


def test_a_pair_that_the_driver_denies_is_not_usable_even_by_a_bridge() -> None:
    refused = PeerAccess(nvlink=P2pStatus.DISABLED_BY_REGKEY)
    plain = ReportedPair(a="GPU1", b="GPU0")
    for pair in (replace(plain, forward=refused), replace(plain, backward=refused)):
        found = replace(node(numa=[0, 0], links={(0, 1): 4}), pairs=(pair,))
        assert nvlinks_between(found) == {(0, 1): 4}
        assert usable_nvlinks_between(found) == {(0, 1): 0}


def test_a_bridged_pair_is_an_island_across_sockets() -> None:
    bridged = node(numa=[0, 0, 0, 1, 1, 1], links={(0, 3): 12, (1, 2): 12, (4, 5): 12})
    assert islands(bridged) == ((0, 3), (1, 2), (4, 5))
    assert interconnect(bridged) is Interconnect.PAIRS


def test_sixteen_gpus_of_a_text_have_switches() -> None:
    pairs = tuple(
        ReportedPair(a=f"GPU{a}", b=f"GPU{b}", nvlinks=6) for a, b in combinations(range(16), 2)
    )
    text = Snapshot(gpus=tuple(Gpu(index=index) for index in range(16)), pairs=pairs)
    assert has_switch(text)
