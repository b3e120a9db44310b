from dataclasses import replace
from itertools import combinations, pairwise, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.allocation import score as terms
from agent.allocation.facts import facts
from agent.allocation.policy import allocate
from agent.allocation.ring import closes, disjoint_rings, widest_ring
from agent.allocation.terms import Terms
from agent.machines.bundled import machine
from agent.model.gpu import Gpu
from agent.model.nvlink import Closeness, ReportedPair
from agent.model.snapshot import Snapshot
from tests.strategies import node


def bandwidth(snapshot: Snapshot, *members: int) -> float:
    """Ring bandwidth in GB/s."""
    return terms.ring_bandwidth(facts(snapshot), members) / 10


@pytest.mark.parametrize(
    ("members", "gb_s"),
    [
        ((0, 3), 50.0),
        ((0, 1), 25.0),
        ((0, 5), 7.0),
        ((0, 2, 3), 50.0),
        ((0, 1, 2, 3), 100.0),
        ((0, 3, 4, 7), 50.0),
        ((0, 1, 2, 4), 7.0),
        ((0, 1, 2, 3, 4, 5, 6), 100.0),
        ((0, 1, 2, 3, 4, 5, 6, 7), 150.0),
    ],
)
def test_rings_of_the_cube_mesh_have_the_published_bandwidth(
    members: tuple[int, ...],
    gb_s: float,
) -> None:
    assert bandwidth(machine("dgx-1v"), *members) == gb_s


def test_every_pair_behind_nvswitches_has_all_links() -> None:
    snapshot = machine("dgx-h100")
    assert {bandwidth(snapshot, *pair) for pair in combinations(range(8), 2)} == {450.0}


def test_every_larger_set_behind_nvswitches_has_all_links() -> None:
    snapshot = machine("dgx-h100")
    found = {bandwidth(snapshot, *s) for size in range(3, 9) for s in combinations(range(8), size)}
    assert found == {450.0}


def test_on_pcie_the_worst_pair_decides() -> None:
    snapshot = machine("l40s-pcie-4")
    assert [bandwidth(snapshot, *s) for s in ((0, 1), (0, 2), (0, 1, 2))] == [18.0, 14.0, 14.0]


def test_four_fully_meshed_gpus_use_every_link() -> None:
    links = dict.fromkeys(combinations(range(4), 2), 4)
    assert bandwidth(node(numa=[0, 0, 1, 1], links=links), 0, 1, 2, 3) == 300.0


def test_a_ring_over_two_bridges_is_as_wide_as_pcie_between_them() -> None:
    snapshot = node(numa=[0, 0, 1, 1], links={(0, 2): 4, (1, 3): 4})
    assert bandwidth(snapshot, 0, 1, 2, 3) == 18.0


def test_a_gpu_in_mig_mode_has_no_nvlink() -> None:
    snapshot = node(numa=[0, 0, 0], switch_links=18, mig=[2])
    assert [bandwidth(snapshot, 0, 1), bandwidth(snapshot, 0, 2)] == [450.0, 18.0]


def test_an_unknown_distance_counts_as_the_worst() -> None:
    snapshot = node(numa=[0, 0, 0], distances={(0, 1): Closeness.SYS, (0, 2): None})
    assert [bandwidth(snapshot, 0, 1), bandwidth(snapshot, 0, 2)] == [14.0, 14.0]


def test_unknown_nvlinks_count_as_the_distance_on_pcie() -> None:
    snapshot = replace(node(numa=[0, 0], links={(0, 1): 4}), nvlinks=None)
    assert bandwidth(snapshot, 0, 1) == 18.0


def test_links_of_unknown_speed_count_as_the_slowest() -> None:
    snapshot = node(numa=[0, 0], links={(0, 1): 4}, nvlink_version=None)
    assert bandwidth(snapshot, 0, 1) == 80.0


def test_the_architecture_tells_the_speed_of_links_that_a_text_only_counts() -> None:
    gpus = tuple(Gpu(index=index, architecture="hopper") for index in range(2))
    pairs = (ReportedPair(a="GPU0", b="GPU1", nvlinks=18),)
    assert bandwidth(Snapshot(gpus=gpus, pairs=pairs), 0, 1) == 450.0


@pytest.mark.parametrize(
    ("version", "reported_mb_s", "gb_s"),
    [(4, 26562, 25.0), (2, 25781, 25.0), (3, 14062, 14.1), (5, 53125, 50.0), (None, 26562, 25.0)],
)
def test_a_link_carries_its_payload_or_what_the_driver_reports_if_less(
    version: int | None,
    reported_mb_s: int,
    gb_s: float,
) -> None:
    plain = node(numa=[0, 0], links={(0, 1): 1}, nvlink_version=version)
    links = tuple(replace(link, speed_mbps=reported_mb_s) for link in plain.nvlinks or ())
    assert bandwidth(replace(plain, nvlinks=links), 0, 1) == gb_s


@pytest.mark.parametrize(("generation", "gb_s"), [(3, 9.0), (4, 18.0), (5, 36.0), (None, 9.0)])
def test_pcie_doubles_with_each_generation_and_the_unknown_is_old(
    generation: int | None,
    gb_s: float,
) -> None:
    assert bandwidth(node(numa=[0, 0], pcie_generation=generation), 0, 1) == gb_s


def test_an_absurd_generation_is_no_reason_to_compute_forever() -> None:
    assert bandwidth(node(numa=[0, 0], pcie_generation=10**12), 0, 1) == 144.0


def test_gpus_of_unknown_numa_node_count_one_each() -> None:
    known = facts(node(numa=[0, 0, None, None, 1]))
    assert [terms.numa_nodes(known, s) for s in ((0, 1), (2, 3), (0, 2), (0, 4))] == [1, 2, 2, 2]


def test_on_a_machine_of_one_numa_node_an_unknown_node_is_that_one() -> None:
    known = facts(node(numa=[0, None, None], sockets={0: 0}))
    assert (terms.numa_nodes(known, (0, 1, 2)), terms.sockets(known, (0, 1, 2))) == (1, 1)


def test_numa_nodes_of_one_socket_are_one_socket() -> None:
    known = facts(node(numa=[0, 1, 2], sockets={0: 0, 1: 0, 2: 1}))
    assert [terms.sockets(known, s) for s in ((0, 1), (0, 2))] == [1, 2]


def test_a_set_is_worth_less_to_a_later_job_if_it_spans_nodes_and_sockets() -> None:
    assert [terms.set_value(1000, *spans) for spans in ((1, 1), (2, 1), (2, 2))] == [
        10_000,
        9_000,
        8_000,
    ]


def test_an_hca_on_another_node_of_the_socket_is_not_far() -> None:
    one = {0: Closeness.SYS, 1: Closeness.SYS, 2: Closeness.SYS}
    snapshot = node(numa=[0, 1, 2], sockets={0: 0, 1: 0, 2: 1}, hcas=[one], hca_numa=[0])
    assert facts(snapshot).is_far == (False, False, True)


def test_gpus_that_share_their_nearest_hca_lose_a_rail() -> None:
    near, other = {0: Closeness.PIX, 1: Closeness.PIX}, {2: Closeness.PXB}
    known = facts(node(numa=[0, 0, 0], hcas=[near, other]))
    assert [terms.rail_loss(known, s) for s in ((0, 1), (0, 2), (0, 1, 2))] == [1, 0, 1]


def test_two_rails_serve_two_gpus_even_if_the_first_takes_the_only_one_of_the_second() -> None:
    both, one = {0: Closeness.PIX, 1: Closeness.PIX}, {0: Closeness.PIX}
    known = facts(node(numa=[0, 0], hcas=[both, one]))
    assert terms.rail_loss(known, (0, 1)) == 0


def test_a_node_without_hcas_has_no_hca_terms() -> None:
    known = facts(node(numa=[0, 0]))
    assert (known.is_far, known.hca_steps, terms.rail_loss(known, (0, 1))) == (
        (False, False),
        (0, 0),
        0,
    )


def test_only_partitions_that_were_whole_can_be_broken() -> None:
    known = facts(node(numa=[0, 0, 0, 0]))
    found = [terms.broken_partitions(terms.whole_partitions(known, f), 1) for f in (0b1111, 0b1101)]
    assert found == [1, 0]


def test_gpus_behind_one_switch_are_a_partition() -> None:
    distances = dict.fromkeys(combinations(range(4), 2), Closeness.NODE)
    snapshot = node(numa=[0] * 4, distances={**distances, (0, 2): Closeness.PIX})
    assert facts(snapshot).partitions == (0b0101,)


def test_the_better_of_two_scores_is_the_lesser() -> None:
    answer = allocate(
        machine("dgx-1v"),
        available=[gpu.id for gpu in machine("dgx-1v").gpus],
        size=4,
    )
    others = [other.score for other in answer.alternatives]
    assert sorted([*others[::-1], answer.score]) == [answer.score, *others]


def test_the_terms_of_a_score_are_flat_in_json_and_in_order() -> None:
    answer = allocate(
        machine("l40s-pcie-4"), available=["GPU-00000140-0000-4000-8000-000000000000"], size=1
    )
    assert answer.score.to_plain() == {
        "bandwidth_gb_s": None,
        "pair_bandwidth_gb_s": 0.0,
        "numa_nodes": 1,
        "sockets": 1,
        "remainder_value": 0.0,
        "hca_far": 0,
        "rail_loss": 0,
        "hca_distance": 0,
        "broken_partitions": 0,
        "order": [0],
    }


def test_a_link_that_only_one_end_calls_up_is_no_bridge() -> None:
    plain = node(numa=[0, 0], links={(0, 1): 1})
    links = tuple(replace(link, is_active=link.gpu == 0) for link in plain.nvlinks or ())
    assert bandwidth(replace(plain, nvlinks=links), 0, 1) == 18.0


def test_one_gpu_with_fewer_switch_links_slows_its_sets_down() -> None:
    plain = node(numa=[0, 0, 0], switch_links=18)
    links = tuple(link for link in plain.nvlinks or () if link.gpu != 2 or link.link % 18)
    assert bandwidth(replace(plain, nvlinks=links), 0, 1, 2) == 425.0


@given(
    width=st.integers(3, 12),
    groups=st.lists(st.integers(0, 2), min_size=12, max_size=12),
)
def test_on_a_tree_the_widest_ring_is_as_narrow_as_the_worst_pair(
    width: int,
    groups: list[int],
) -> None:
    hops = [
        [(groups[a] == groups[b]) + (groups[a] // 2 == groups[b] // 2) for b in range(width)]
        for a in range(width)
    ]
    assert widest_ring(hops) == min(hops[a][b] for a, b in combinations(range(width), 2))


@given(
    edges=st.lists(st.booleans(), min_size=15, max_size=15),
    count=st.integers(3, 6),
)
def test_a_ring_closes_where_some_order_of_the_vertices_does(edges: list[bool], count: int) -> None:
    joined = dict(zip(combinations(range(6), 2), edges, strict=True))
    hops = [
        [int(joined.get((min(a, b), max(a, b)), 0)) for b in range(count)] for a in range(count)
    ]
    rings = (pairwise((0, *order, 0)) for order in permutations(range(1, count)))
    assert closes(hops, 1) == any(all(hops[a][b] for a, b in ring) for ring in rings)


def test_two_gpus_that_alone_join_three_others_close_no_ring() -> None:
    hops = [[int((a < 2) != (b < 2)) for b in range(5)] for a in range(5)]
    assert not closes(hops, 1)


def test_what_remains_is_worth_its_packings_with_jobs_of_two_four_and_eight() -> None:
    terms_of_eight = Terms(facts(node(numa=[0] * 8, switch_links=18)))
    # 4 pairs, 2 fours of weight 2 and an eight of weight 3, each with 450 GB/s.
    assert terms_of_eight.remainder_value(0xFF) / 100 == (4 * 1 + 2 * 2 + 1 * 3) * 450


def test_a_complete_graph_of_odd_order_splits_into_rings() -> None:
    assert disjoint_rings([[1] * 7] * 7) == 3
