"""What the doctor says of levels."""

import pytest
from msgspec.structs import replace

from nodetopo.checks.rule import Verdict
from nodetopo.tools.cluster.cluster import Cluster, Topology
from nodetopo.tools.cluster.doctor.catalogue import RULES, examine
from nodetopo.tools.cluster.levels import FROM_LABELS, levels_in_use
from tests.tools.cluster.examined import LEVELS, cluster, nodes, observed, result
from tests.tools.cluster.labelled import (
    CLIQUE,
    CLUSTER,
    DOMAIN,
    HOSTNAME,
    PARTITION,
    TIER_0,
    TIER_1,
    ZONE,
    bare,
    labelled,
    tray,
    with_labels,
    without,
)

PREFIX = "gpu.topology/"


@pytest.mark.parametrize("code", [rule.code for rule in RULES])
def test_a_mixed_cluster_with_our_labels_passes_every_rule(code: str) -> None:
    assert result(code, cluster(nodes())).verdict is Verdict.PASS


def test_nodes_that_lack_a_level_are_named_for_each_level() -> None:
    first, second, *rest = nodes()
    found = cluster((without(first, ZONE, PARTITION), without(second, ZONE), *rest))
    assert observed("CLU-001", found) == [
        (ZONE, "missing on 2 of 5: n[0-1]"),
        (PARTITION, "missing on 1 of 5: n0"),
    ]
    assert result("CLU-001", found).verdict is Verdict.FAIL


def test_a_clique_level_drops_the_nodes_that_have_no_fabric() -> None:
    found = cluster(nodes(), levels=(CLIQUE, HOSTNAME))
    assert observed("CLU-001", found) == [(CLIQUE, "missing on 1 of 5: n4")]


def test_a_node_with_all_levels_of_one_topology_is_not_dropped() -> None:
    fabric = Topology(name="KAI Topology nvl72", levels=(CLIQUE, HOSTNAME))
    plain = Topology(name="KAI Topology dgx", levels=(ZONE, HOSTNAME))
    found = replace(cluster(nodes()), topologies=(fabric, plain))
    assert observed("CLU-001", found) == []
    lost = replace(found, nodes=(without(nodes()[4], ZONE), *nodes()[:4]))
    assert observed("CLU-001", lost) == [
        (f"{CLIQUE} of KAI Topology nvl72", "missing on 1 of 5: n4"),
        (f"{ZONE} of KAI Topology dgx", "missing on 1 of 5: n4"),
    ]


def test_an_empty_level_is_not_a_missing_one() -> None:
    first, *rest = nodes()
    found = cluster((with_labels(first, {ZONE: ""}), *rest))
    assert observed("CLU-001", found) == []
    assert observed("CLU-002", found) == [(ZONE, "empty on 1 of 5: n0")]


def racks(*values: tuple[str, str]) -> Cluster:
    """Return nodes in blocks and racks."""
    found = [bare(f"n{n}", a__block=block, a__rack=rack) for n, (block, rack) in enumerate(values)]
    return cluster(found, levels=("a/block", "a/rack", HOSTNAME))


def test_a_rack_name_that_two_blocks_use_is_found() -> None:
    found = racks(("b1", "r1"), ("b2", "r1"), ("b2", "r2"))
    assert observed("CLU-003", found) == [("a/rack=r1", "below 2 values of a/block: b1, b2")]
    assert observed("CLU-004", found) == []


def test_values_that_kai_takes_for_one_place_are_found() -> None:
    found = racks(("r.1", "a"), ("r", "1.a"))
    assert observed("CLU-004", found) == [("a/rack r.1.a", "stands for r > 1.a and r.1 > a")]
    assert observed("CLU-003", found) == []


def test_a_fault_of_two_topologies_is_told_once() -> None:
    found = racks(("b1", "r1"), ("b2", "r1"))
    doubled = replace(found, topologies=(found.topologies[0], found.topologies[0]))
    assert len(observed("CLU-003", doubled)) == 1


def test_a_node_without_all_levels_spoils_no_other_rule() -> None:
    found = racks(("b1", "r1"), ("b1", ""), ("b2", ""))
    report = examine(found, [rule for rule in RULES if rule.code in ("CLU-003", "CLU-004")])
    assert [one.verdict for one in report.results] == [Verdict.PASS] * 2


def test_keys_of_over_63_characters_are_found_among_levels_and_our_own_labels() -> None:
    level, own = f"{'a' * 40}.example/{'b' * 20}", f"{PREFIX}{'c' * 51}"
    found = cluster(
        [with_labels(node, {level: "1", own: "1"}) for node in nodes()], levels=(level, HOSTNAME)
    )
    assert observed("CLU-005", found) == [
        (level, "69 characters"),
        (own, "64 characters"),
    ]
    assert result("CLU-005", found).verdict is Verdict.WARN


def test_a_key_of_63_characters_does() -> None:
    assert observed("CLU-005", cluster(nodes(), levels=(f"a/{'b' * 61}", HOSTNAME))) == []


@pytest.mark.parametrize("value", ["a,b", "-a", "a-", "a b", "x" * 64, "a/b", "ü"])
def test_values_that_kubernetes_refuses_are_found(value: str) -> None:
    first, *rest = nodes()
    found = cluster((with_labels(first, {ZONE: value}), *rest))
    assert observed("CLU-005", found) == [(ZONE, repr(value))]


def test_levels_that_a_topology_cannot_have_are_found() -> None:
    keys = (HOSTNAME, *(f"a/{number}" for number in range(16)))
    assert observed("CLU-005", cluster(nodes(), levels=keys)) == [
        ("KAI Topology it", "17 levels"),
        (HOSTNAME, "level 1 of 17"),
    ]


def test_the_levels_judged_are_those_named_else_those_found_else_those_of_labels() -> None:
    found = Topology(name="KAI Topology it", levels=(CLIQUE,))
    assert levels_in_use(nodes(), PREFIX, ("a/b",), (found,))[0].levels == ("a/b",)
    assert levels_in_use(nodes(), PREFIX, (), (found,)) == (found,)
    assert levels_in_use(nodes(), PREFIX) == (Topology(name=FROM_LABELS, levels=LEVELS),)


def test_a_level_that_a_single_node_has_is_judged_too() -> None:
    first, *rest = nodes()
    (found,) = levels_in_use((with_labels(first, {TIER_0: "leaf1"}), *rest), PREFIX)
    assert found.levels == (ZONE, TIER_0, DOMAIN, PARTITION, HOSTNAME)


def test_a_tier_that_cuts_a_rack_in_two_is_no_level_of_the_labels() -> None:
    trays = [
        tray(f"n{number}", 0, more={TIER_1: "spine", TIER_0: f"leaf{number}"})
        for number in range(2)
    ]
    (found,) = levels_in_use(trays, PREFIX)
    assert found.levels == (TIER_1, DOMAIN, PARTITION, HOSTNAME)


def test_our_partition_repeats_its_domain_so_that_its_dot_joins_nothing() -> None:
    pair = [tray("n0", 1), tray("n1", 11), labelled("n2", "dgx-h100")]
    assert pair[0].labels[PARTITION] == f"{CLUSTER}.1"
    assert observed("CLU-004", cluster(pair, levels=(DOMAIN, PARTITION, HOSTNAME))) == []


def test_a_false_clique_is_among_no_levels_in_use() -> None:
    named = with_labels(labelled("n5", "dgx-h100"), {CLIQUE: f"{CLUSTER}.0"})
    (found,) = levels_in_use([without(named, DOMAIN, PARTITION)], PREFIX)
    assert found.levels == (HOSTNAME,)
