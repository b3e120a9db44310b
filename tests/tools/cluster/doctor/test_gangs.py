"""What the doctor says of gangs."""

import pytest
from msgspec.structs import replace

from nodetopo.checks.rule import Missing, Verdict
from nodetopo.tools.cluster.cluster import Cluster, Gang, group
from nodetopo.tools.cluster.doctor import gangs as doctor_gangs
from nodetopo.tools.cluster.doctor.gangs import Largest, is_closed, largest
from nodetopo.tools.cluster.node import ClusterNode
from tests.tools.cluster.examined import cluster, nodes, observed, result
from tests.tools.cluster.labelled import CLUSTER, PARTITION, ZONE, with_labels, without

COUNT, STRATEGY = "nvidia.com/gpu.count", "nvidia.com/mig.strategy"
MIXED = {STRATEGY: "mixed", "nvidia.com/mig-1g.23gb.count": "8"}


def verdict(*gangs: Gang) -> Verdict:
    return result("CLU-009", cluster(nodes(), gangs=gangs)).verdict


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"2@{PARTITION}", None),
        (f"3@{PARTITION}", f"up to 2: {CLUSTER}.0 has 2 nodes"),
        (f"8x1@{PARTITION}", None),
        (f"9x1@{PARTITION}", f"up to 8: {CLUSTER}.0 has 2 nodes"),
        (f"2x3@{PARTITION}", None),
        (f"3x3@{PARTITION}", f"up to 2: {CLUSTER}.0 has 2 nodes"),
        (f"1x8@{PARTITION}", None),
        (f"2x8@{PARTITION}", "up to 1: node-"),
        (f"1x9@{PARTITION}", "up to 0: "),
        (f"5@{ZONE}", None),
        ("1@a/none", "a level that nodes have: none carries it"),
    ],
)
def test_a_group_fits_or_is_told_what_would(text: str, expected: str | None) -> None:
    found = result("CLU-009", cluster(nodes(), gangs=(group(text),)))
    assert [finding.expected[: len(expected or "")] for finding in found.findings] == (
        [] if expected is None else [expected]
    )
    assert found.verdict is (Verdict.PASS if expected is None else Verdict.FAIL)


def test_a_thousand_gangs_that_ask_alike_are_placed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Gang] = []

    def counted(of: Cluster, gang: Gang) -> Largest:
        asked.append(gang)
        return largest(of, gang)

    monkeypatch.setattr(doctor_gangs, "largest", counted)
    gangs = [Gang(name=str(n), size=n, key=PARTITION, gpus=4) for n in range(1, 1001)]
    found = result("CLU-009", cluster(nodes(), gangs=(*gangs, group(f"2@{PARTITION}"))))
    assert [finding.subject for finding in found.findings] == [str(n) for n in range(3, 1001)]
    assert len(asked) == 2


def test_what_is_asked_for_is_told_in_nodes_or_in_pods() -> None:
    gangs = (group(f"3@{PARTITION}"), group(f"9x1@{PARTITION}"))
    assert observed("CLU-009", cluster(nodes(), gangs=gangs)) == [
        (f"--group 3@{PARTITION}", f"3 nodes within one {PARTITION}"),
        (f"--group 9x1@{PARTITION}", f"9 pods of 1 GPU within one {PARTITION}"),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"8x1@{PARTITION}", Verdict.PASS),  # as before, on the trays that have a count
        (f"2x4@{PARTITION}", Verdict.PASS),
        (f"1x9@{PARTITION}", Verdict.UNKNOWN),
        (f"9x1@{PARTITION}", Verdict.UNKNOWN),
        (f"3@{PARTITION}", Verdict.FAIL),
    ],
)
def test_a_count_that_is_missing_matters_where_the_others_do_not_suffice(
    text: str, expected: Verdict
) -> None:
    of = [without(node, COUNT) if node.name == "n4" else node for node in nodes()]
    assert result("CLU-009", cluster(of, gangs=(group(text),))).verdict is expected


def test_gpus_that_are_shared_in_time_take_as_many_pods() -> None:
    of = [with_labels(node, {"nvidia.com/gpu.replicas": "4"}) for node in nodes()]
    found = result("CLU-009", cluster(of, gangs=(group(f"32x1@{PARTITION}"),)))
    assert found.verdict is Verdict.PASS
    (finding,) = result("CLU-009", cluster(of, gangs=(group(f"33x1@{PARTITION}"),))).findings
    assert finding.expected.startswith("up to 32: ")


def test_a_count_of_five_thousand_digits_is_no_count() -> None:
    of = [with_labels(nodes()[0], {COUNT: "9" * 5000})]
    found = result("CLU-009", cluster(of, gangs=(group(f"2x1@{PARTITION}"),)))
    assert found.missing == (f"{COUNT} of every node",)


def test_a_level_that_may_be_a_schedulers_own_name_is_unknown() -> None:
    own = Gang(name="Volcano PodGroup it", size=2, key="rack", is_label=False)
    found = result("CLU-009", cluster(nodes(), gangs=(own,)))
    assert found.verdict is Verdict.UNKNOWN
    assert found.missing == ("the label key of rack of Volcano PodGroup it",)


def test_gangs_that_nobody_was_asked_about_are_unknown() -> None:
    found = result("CLU-009", cluster(nodes(), gangs=None))
    assert found.verdict is Verdict.UNKNOWN
    assert found.missing[0].startswith("gangs (")


def test_a_kind_that_could_not_be_listed_leaves_the_claim_unknown() -> None:
    found = replace(cluster(nodes()), unread=(Missing("KAI PodGroups", "forbidden"),))
    assert result("CLU-009", found).missing == ("KAI PodGroups (forbidden)",)
    assert result("CLU-009", found).verdict is Verdict.UNKNOWN


def test_pods_of_unknown_gpus_fit_one_to_a_node_and_are_unknown_beyond() -> None:
    assert verdict(Gang(name="it", size=2, key=PARTITION)) is Verdict.PASS
    found = result("CLU-009", cluster(nodes(), gangs=(Gang(name="it", size=3, key=PARTITION),)))
    assert (found.verdict, found.missing) == (Verdict.UNKNOWN, ("GPUs of a pod of it",))


def test_pods_without_gpus_are_not_counted() -> None:
    assert verdict(Gang(name="it", size=500, key=PARTITION, gpus=0)) is Verdict.PASS


def test_a_node_without_a_count_leaves_its_place_unknown() -> None:
    changed = [without(nodes()[0], COUNT), *nodes()[1:]]
    gang = Gang(name="it", size=9, key=PARTITION, gpus=1)
    found = result("CLU-009", cluster(changed, gangs=(gang,)))
    assert (found.verdict, found.missing) == (Verdict.UNKNOWN, (f"{COUNT} of every node",))


def test_a_mixed_node_is_no_room_for_a_whole_gpu_gang_of_kai_s() -> None:
    changed = [with_labels(nodes()[0], MIXED), with_labels(nodes()[2], MIXED), *nodes()[1:2]]
    kai = Gang(name="it", size=2, key=PARTITION, gpus=4, is_of_kai=True)
    assert result("CLU-009", cluster(changed, gangs=(kai,))).verdict is Verdict.FAIL
    other = replace(kai, is_of_kai=False)
    assert result("CLU-009", cluster(changed, gangs=(other,))).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("labels", "closed"),
    [
        (MIXED, True),
        ({STRATEGY: "mixed"}, False),
        ({**MIXED, STRATEGY: "single"}, False),
        ({**MIXED, "node-role.kubernetes.io/mig-enabled": "false"}, False),
        ({STRATEGY: "mixed", "node-role.kubernetes.io/mig-enabled": "true"}, True),
        ({STRATEGY: "mixed", "node-role.kubernetes.io/mig-enabled": "yes"}, False),
        ({}, False),
    ],
)
def test_a_node_is_closed_to_whole_gpus_as_kai_sees_it(
    labels: dict[str, str], closed: bool
) -> None:
    assert is_closed(ClusterNode(name="n", labels=labels)) is closed


def test_nodes_that_mig_closes_are_named() -> None:
    changed = [with_labels(node, MIXED) for node in nodes()[:2]]
    found = cluster((*changed, *nodes()[2:]))
    assert observed("CLU-010", found) == [(STRATEGY, "mixed, with MIG devices, on n[0-1]")]
    assert result("CLU-010", found).verdict is Verdict.WARN
