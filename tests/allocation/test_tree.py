from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nodetopo.allocation.engines import LARGEST_KEPT, TableEngine, TreeEngine
from nodetopo.allocation.facts import facts
from nodetopo.allocation.rules import Policy, Rules
from nodetopo.allocation.terms import Terms
from nodetopo.allocation.tree import bundled as in_bundles
from nodetopo.allocation.tree import nearest_tree, tree
from nodetopo.machines import bundled
from nodetopo.machines.bundled import machine
from nodetopo.model.nvlink import Closeness
from nodetopo.model.snapshot import Snapshot
from tests.budget import cases
from tests.strategies import machines, node

MESHES = {"dgx-1v", "hgx-a100-4", "h200-nvl-4"}
IRREGULAR = {*MESHES, "hgx-h100-mig"}
"""On the last, the GPUs that NVSwitches join are some of one NUMA node and all of the other."""

TREES = sorted(name for name in bundled.names() if name not in IRREGULAR)


@pytest.mark.parametrize("name", bundled.names())
def test_all_bundled_machines_but_the_irregular_ones_are_trees(name: str) -> None:
    assert (tree(facts(machine(name))) is None) == (name in IRREGULAR)


def test_the_groups_of_a_pcie_machine_are_switches_nodes_and_the_whole() -> None:
    root = tree(facts(machine("rtxpro6000-pcie-8")))
    assert root is not None
    found = {(group.members, group.hop, group.is_numa) for group in root.walk()}
    assert found == {
        (0xFF, 280, False),
        (0x0F, 360, True),
        (0xF0, 360, True),
        *((3 << switch, 480, False) for switch in (0, 2, 4, 6)),
    }


def test_a_bridge_across_numa_nodes_makes_no_tree() -> None:
    assert tree(facts(node(numa=[0, 0, 1, 1], links={(0, 2): 4}))) is None


def test_hcas_that_are_near_to_overlapping_gpus_make_no_tree() -> None:
    hcas = [dict.fromkeys(near, Closeness.PIX) for near in ((0, 1), (1, 2))]
    assert tree(facts(node(numa=[0, 0, 0], hcas=hcas))) is None


def test_a_gpu_with_fewer_links_on_one_of_two_nodes_makes_no_tree() -> None:
    plain = node(numa=[0, 0, 1, 1], switch_links=18)
    links = tuple(link for link in plain.nvlinks or () if link.gpu != 2 or link.link % 18)
    assert tree(facts(replace(plain, nvlinks=links))) is None


@given(snapshot=machines(max_gpus=8), data=st.data())
@settings(max_examples=cases(60, 300), deadline=None)
def test_what_is_left_of_a_tree_is_worth_its_best_packing(
    snapshot: Snapshot, data: st.DataObject
) -> None:
    known = facts(snapshot)
    root = tree(known)
    if root is None:
        return
    terms = Terms(known)

    left = data.draw(st.integers(0, (1 << len(snapshot.gpus)) - 1))
    assert terms.value_left(left) == terms.tables.value_left(left)


@pytest.mark.parametrize("policy", Policy)
@given(snapshot=machines(max_gpus=8), data=st.data())
@settings(max_examples=cases(30, 150), deadline=None)
def test_both_engines_rank_the_sets_of_a_tree_alike(
    policy: Policy, snapshot: Snapshot, data: st.DataObject
) -> None:
    terms = Terms(facts(snapshot), Rules(policy=policy))
    if terms.tree is None:
        return
    free = data.draw(st.integers(1, (1 << len(snapshot.gpus)) - 1))
    members = [1 << gpu for gpu in range(8) if free >> gpu & 1]
    required = sum(data.draw(st.lists(st.sampled_from(members), unique=True)))
    size = data.draw(st.integers(max(1, required.bit_count()), len(members)))
    engines = TreeEngine(terms, terms.tree), TableEngine(terms)
    one, other = (e.ranked(free=free, required=required, size=size, count=6) for e in engines)
    best = engines[0].best(free=free, required=required, size=size)
    assert [best, *one] == [other[0], *other]


def test_the_tree_engine_ranks_every_set_once() -> None:
    terms = Terms(facts(machine("rtxpro6000-pcie-8")))
    assert terms.tree is not None
    ranked = TreeEngine(terms, terms.tree).ranked(free=0xFF, required=1, size=4, count=99)
    assert sorted(ranked) == sorted(
        1 + sum(1 << gpu for gpu in others) for others in combinations(range(1, 8), 3)
    )


def test_the_tree_most_like_a_tree_is_itself() -> None:
    for name in TREES:
        known = facts(machine(name))
        exact = tree(known)
        assert exact is not None
        near = nearest_tree(known)
        assert [g.members for g in near.walk()] == [g.members for g in exact.walk()]


def test_the_tree_most_like_an_irregular_machine_keeps_nodes_rather_than_pairs() -> None:
    distances = dict.fromkeys(combinations(range(6), 2), Closeness.SYS)
    snapshot = node(numa=[0, 0, 0, 1, 1, 1], distances=distances, switch_links=18)
    root = nearest_tree(facts(snapshot))  # the pair of GPU2 and GPU3 has one on each node
    assert {group.members for group in root.walk()} == {0b111111, 0b111, 0b111000, 0b11, 0b110000}


def test_bundling_changes_no_group_and_no_answer() -> None:
    snapshot = node(numa=[gpu // 12 for gpu in range(24)], switch_links=18)
    terms = Terms(facts(snapshot))
    assert terms.tree is not None
    found = in_bundles(terms.tree, LARGEST_KEPT)
    bundles = {group.members for group in found.walk()} - {g.members for g in terms.tree.walk()}
    assert {mask.bit_count() for mask in bundles} == {4, 8}
    free = 0b1111_0111_1011_1101_1110_1111
    assert TreeEngine(terms, found).ranked(free=free, required=0, size=7, count=4) == TreeEngine(
        terms, terms.tree
    ).ranked(free=free, required=0, size=7, count=4)
