from itertools import combinations

import pytest
from msgspec.structs import replace

from nodetopo.allocation.bandwidth import alike, has_near, near_share, with_measured_pairs
from nodetopo.allocation.bandwidth import bandwidth as model
from nodetopo.allocation.facts import facts
from nodetopo.allocation.measured import Measured
from nodetopo.allocation.rules import Model, Rules
from nodetopo.machines.bundled import machine
from nodetopo.model.gpu import Gpu
from nodetopo.model.nvlink import Closeness, ReportedPair
from nodetopo.model.snapshot import Snapshot
from tests.strategies import node


def bandwidth(snapshot: Snapshot, *members: int, rules: Rules | None = None) -> float:
    """The modelled bandwidth in GB/s, by rings unless *rules* say otherwise."""
    rules = rules or Rules()
    known = with_measured_pairs(facts(snapshot), rules.measured)
    return model(known, rules)(members) / 10


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
    [
        (4, 26562, 25.0),
        (2, 25781, 25.0),
        (3, 14062, 14.1),
        (5, 53125, 50.0),
        (None, 26562, 25.0),
        (6, 100000, 100.0),
    ],
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


def test_a_link_that_only_one_end_calls_up_is_no_bridge() -> None:
    plain = node(numa=[0, 0], links={(0, 1): 1})
    links = tuple(replace(link, is_active=link.gpu == 0) for link in plain.nvlinks or ())
    assert bandwidth(replace(plain, nvlinks=links), 0, 1) == 18.0


def test_one_gpu_with_fewer_switch_links_slows_its_sets_down() -> None:
    plain = node(numa=[0, 0, 0], switch_links=18)
    links = tuple(link for link in plain.nvlinks or () if link.gpu != 2 or link.link % 18)
    assert bandwidth(replace(plain, nvlinks=links), 0, 1, 2) == 425.0


RELAY = Rules(model=Model.RELAY)


@pytest.mark.parametrize(
    ("members", "gb_s"),
    [
        ((0, 3), 50.0),
        ((0, 5), 7.0),
        ((0, 1, 2, 4), 50.0),  # two trees, though GPU4 hangs on GPU0 alone
        ((0, 1, 4), 25.0),
        ((0, 1, 2, 3), 100.0),  # two rings, used both ways, carry more than two trees
        ((0, 1, 6), 7.0),  # no NVLink reaches GPU6
        ((0, 1, 2, 3, 4, 5, 6, 7), 150.0),
    ],
)
def test_by_relays_a_set_needs_only_hang_together(members: tuple[int, ...], gb_s: float) -> None:
    assert bandwidth(machine("dgx-1v"), *members, rules=RELAY) == gb_s


def test_relays_never_carry_less_than_rings() -> None:
    snapshot = machine("dgx-1v")
    sets = [s for size in range(1, 9) for s in combinations(range(8), size)]
    assert all(bandwidth(snapshot, *s, rules=RELAY) >= bandwidth(snapshot, *s) for s in sets)


def test_a_measured_set_wins_over_every_model() -> None:
    found = Measured(sets={frozenset((0, 3)): 123})
    rules = Rules(model=Model.TABLE, measured=found)
    snapshot = machine("dgx-1v")
    assert [bandwidth(snapshot, *s, rules=rules) for s in ((0, 3), (1, 2))] == [12.3, 50.0]


def test_a_measured_pair_changes_every_ring_through_it() -> None:
    found = Measured(pairs={frozenset((0, 1)): 90})
    snapshot = machine("l40s-pcie-4")
    rules = Rules(measured=found)
    assert [bandwidth(snapshot, *s, rules=rules) for s in ((0, 1), (0, 1, 2), (2, 3))] == [
        9.0,
        9.0,  # on PCIe alone the worst pair decides
        18.0,
    ]


def test_a_slower_link_slows_the_rings_of_a_mesh() -> None:
    links = dict.fromkeys(combinations(range(4), 2), 4)
    found = Measured(pairs={frozenset((0, 1)): 400})
    snapshot = node(numa=[0, 0, 1, 1], links=links)
    assert bandwidth(snapshot, 0, 1, 2, 3, rules=Rules(measured=found)) == 120.0


def test_what_was_measured_on_gpus_that_are_gone_is_left_out() -> None:
    found = Measured(pairs={frozenset((0, 9)): 400}, sets={frozenset((0, 1, 9)): 400})
    assert bandwidth(node(numa=[0, 0]), 0, 1, rules=Rules(measured=found)) == 18.0


def test_a_bandwidth_counts_as_the_highest_that_steps_of_six_percent_reach() -> None:
    counted = alike((1000, 950, 940, 900, 830, 180, 140, 139))
    assert counted == {
        **dict.fromkeys((1000, 950, 940, 900), 1000),
        830: 830,
        180: 180,
        **dict.fromkeys((140, 139), 140),
    }
    assert has_near(counted)
    assert not has_near(alike((1000, 939, 882)))


def test_a_share_of_a_bandwidth_is_rounded_up() -> None:
    assert [near_share(width) for width in (4500, 4250, 10, 0)] == [4230, 3995, 10, 0]
