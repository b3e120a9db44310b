from itertools import combinations

from nodetopo.allocation import score as terms
from nodetopo.allocation.allocator import Allocator
from nodetopo.allocation.facts import facts
from nodetopo.allocation.terms import Terms
from nodetopo.machines.bundled import machine
from nodetopo.model.nvlink import Closeness
from tests.strategies import node


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
    known = facts(node(numa=[0, 0, 0, 0], switch_links=18))
    found = [terms.broken_partitions(terms.whole_partitions(known, f), 1) for f in (0b1111, 0b1101)]
    assert found == [1, 0]


def test_gpus_behind_one_switch_are_a_partition() -> None:
    distances = dict.fromkeys(combinations(range(4), 2), Closeness.NODE)
    snapshot = node(numa=[0] * 4, distances={**distances, (0, 2): Closeness.PIX})
    assert facts(snapshot).partitions == (0b0101,)


def test_the_terms_of_a_score_are_flat_in_json_and_in_order() -> None:
    answer = Allocator(machine("l40s-pcie-4")).allocate(
        available=["GPU-00000140-0000-4000-8000-000000000000"], size=1
    )
    assert answer.score.to_plain() == {
        "degraded": 0,
        "bandwidth_gb_s": None,
        "counts_as_gb_s": None,
        "models": 1,
        "pair_bandwidth_gb_s": 0.0,
        "numa_nodes": 1,
        "sockets": 1,
        "remainder_value": 0.0,
        "hca_far": 0,
        "rail_loss": 0,
        "hca_distance": 0,
        "hca_nearness": 0,
        "rails_beside": 0,
        "broken_partitions": 0,
        "crowding": 8,
        "shortfall_gb_s": None,
        "reach_gb_s": 46.0,
        "order": [0],
    }


def test_what_remains_is_worth_its_packings_with_jobs_of_two_four_and_eight() -> None:
    terms_of_eight = Terms(facts(node(numa=[0] * 8, switch_links=18)))
    # 4 pairs, 2 fours of weight 2 and an eight of weight 3, each with 450 GB/s.
    assert terms_of_eight.value_left(0xFF) / 100 == (4 * 1 + 2 * 2 + 1 * 3) * 450


def test_one_more_gpu_on_the_busier_node_crowds_more() -> None:
    known = facts(node(numa=[0, 0, 0, 0, 1, 1, 1, 1]))
    assert [terms.crowding(known, s) for s in ((0, 1, 2, 4), (0, 1, 2, 3), (0, 1, 4, 5))] == [
        10,
        16,
        8,
    ]


def test_numbers_make_no_partition_without_nvswitches() -> None:
    assert facts(node(numa=[0, 0, 0, 0])).partitions == ()
