"""Lists of the whole cluster, page by page."""

from typing import Any

import pytest

from nodetopo.errors import ApiUnavailable
from nodetopo.tools.cluster import kinds
from nodetopo.tools.cluster.cleanup import NODES, cluster_nodes, cluster_objects
from tests.kubeapi.fake_api_server import DirectApi
from tests.kubeapi.fake_lists import FakeLists


def node(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"a": "b"}}}


def test_a_large_cluster_is_read_500_nodes_at_a_time() -> None:
    fake = FakeLists(lists={NODES: [node(f"n{number}") for number in range(1001)]})
    found = list(cluster_nodes(lambda: DirectApi(fake)))
    assert [one.name for one in found] == [f"n{number}" for number in range(1001)]
    assert fake.asked == [
        (NODES, {"limit": "500"}),
        (NODES, {"limit": "500", "continue": "500"}),
        (NODES, {"limit": "500", "continue": "1000"}),
    ]


def test_a_selector_is_the_api_server_s_to_apply_on_every_page() -> None:
    fake = FakeLists(lists={NODES: [node(f"n{number}") for number in range(501)]})
    list(cluster_nodes(lambda: DirectApi(fake), "a=b,!c"))
    assert [query["labelSelector"] for _, query in fake.asked] == ["a=b,!c"] * 2


def test_what_is_no_node_is_an_error_that_names_it() -> None:
    fake = FakeLists(lists={NODES: [{"metadata": {"name": "n1", "labels": {"a": 1}}}]})
    with pytest.raises(ApiUnavailable, match=r"n1: labels\.a: expected text, found 1"):
        list(cluster_nodes(lambda: DirectApi(fake)))


@pytest.mark.parametrize(
    ("fake", "said"),
    [
        (FakeLists(), "check the API server's address"),
        (FakeLists(forbidden={NODES}), "grant `list` on nodes to the account"),
        (
            FakeLists(lists={NODES: [node(str(n)) for n in range(501)]}, expires_after=1),
            "too old — the list changed too much between two pages: run it again",
        ),
    ],
)
def test_a_refusal_names_the_cure(fake: FakeLists, said: str) -> None:
    with pytest.raises(ApiUnavailable, match=said):
        list(cluster_nodes(lambda: DirectApi(fake)))


WORKLOADS = "/apis/kueue.x-k8s.io/{}/workloads"


def test_a_kind_is_read_in_the_newest_version_that_is_served() -> None:
    old, older = WORKLOADS.format("v1beta1"), WORKLOADS.format("v1alpha1")
    fake = FakeLists(lists={old: [node("w")], older: [node("x")]})
    found = cluster_objects(lambda: DirectApi(fake), [kinds.WORKLOAD])
    assert found.found == ((kinds.WORKLOAD, node("w")),)
    assert [path for path, _ in fake.asked] == [WORKLOADS.format("v1beta2"), old]


def test_a_kind_that_is_served_empty_is_asked_once() -> None:
    fake = FakeLists(lists={WORKLOADS.format("v1beta2"): []})
    assert cluster_objects(lambda: DirectApi(fake), [kinds.WORKLOAD]).found == ()
    assert len(fake.asked) == 1


def test_a_kind_that_is_not_installed_is_no_problem_and_a_forbidden_one_is() -> None:
    (path,) = kinds.KAI_POD_GROUP.paths()
    there = {"/apis/scheduling.run.ai": [node("v2alpha2")]}
    fake = FakeLists(forbidden={path}, lists={WORKLOADS.format("v1beta2"): [node("w")], **there})
    found = cluster_objects(lambda: DirectApi(fake), kinds.KINDS)
    assert list(found.problems) == [kinds.KAI_POD_GROUP]
    assert "may not list" in found.problems[kinds.KAI_POD_GROUP]
    assert found.found == ((kinds.WORKLOAD, node("w")),)


def test_an_account_without_rights_gets_problems_of_installed_kinds() -> None:
    paths = {path for kind in kinds.KINDS for path in kind.paths()}
    fake = FakeLists(forbidden=paths, lists={"/apis/kueue.x-k8s.io": [node("v1beta2")]})
    found = cluster_objects(lambda: DirectApi(fake), kinds.KINDS)
    assert list(found.problems) == [kinds.KUEUE_TOPOLOGY, kinds.WORKLOAD]
