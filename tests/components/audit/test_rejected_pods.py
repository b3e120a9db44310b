"""The watch of rejected pods, against a server that streams what a test says."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nodetopo.components.audit.rejected_pods import REASONS, RejectedPods
from tests.kubeapi.fake_pods import FakePods, Object, added, followed


def rejected(name: str, reason: str = "TopologyAffinityError", **status: Any) -> Object:
    return {
        "kind": "Pod",
        "metadata": {"namespace": "ml", "name": name, "uid": f"u-{name}", "resourceVersion": "9"},
        "spec": {"nodeName": "gpu-1", "containers": [{"name": "c"}]},
        "status": {"phase": "Failed", "reason": reason, **status},
    }


@contextmanager
def following(api: FakePods, directory: Path) -> Iterator[tuple[RejectedPods, list[str]]]:
    """Serve *api* and follow it until it has nothing more; yields the watch and what it gave."""
    seen: list[str] = []

    def watch(config: Path) -> RejectedPods:
        return RejectedPods(config, "gpu-1", lambda pod: seen.append(pod["metadata"]["name"]))

    with followed(api, directory, watch) as found:
        yield found, seen


def test_only_pods_that_the_managers_rejected_are_reported(tmp_path: Path) -> None:
    elsewhere = rejected("elsewhere")
    elsewhere["spec"]["nodeName"] = "gpu-2"
    events = [
        *(added(rejected(f"by-{reason.lower()}", reason)) for reason in sorted(REASONS)),
        added(rejected("evicted", "Evicted")),
        added(rejected("crashed", "")),
        added(rejected("running", phase="Running")),
        added(elsewhere),
        {"type": "DELETED", "object": rejected("deleted")},
        {"type": "MODIFIED", "object": rejected("modified")},
        {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "12"}}},
    ]
    with following(FakePods(events), tmp_path) as (_, seen):
        assert seen == [
            "by-smtalignmenterror",
            "by-topologyaffinityerror",
            "by-unexpectedadmissionerror",
            "modified",
        ]


def test_only_failed_pods_of_the_own_node_are_watched(tmp_path: Path) -> None:
    api = FakePods([added(rejected("a"))])
    with following(api, tmp_path):
        path, query, accept = api.asked[0]
    assert (path, accept) == ("/api/v1/pods", "application/json")
    assert query["fieldSelector"] == "spec.nodeName=gpu-1,status.phase=Failed"
    assert (query["watch"], query["resourceVersion"]) == ("true", "0")


def test_a_watch_that_ends_is_taken_up_where_it_was(tmp_path: Path) -> None:
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "12"}}}
    api = FakePods([added(rejected("a")), bookmark], [added(rejected("b"))])
    with following(api, tmp_path) as (_, seen):
        assert seen == ["a", "b"]
    assert [query["resourceVersion"] for _, query, _ in api.asked[:2]] == ["0", "12"]


@pytest.mark.parametrize(
    "broken",
    [
        {"type": "ADDED", "object": {"spec": [], "metadata": {}}},
        {"type": "ADDED", "object": {"status": "x", "metadata": {}}},
        {"type": "ADDED", "object": {"metadata": []}},
        {"type": "ADDED", "object": 3},
        {"type": "ERROR", "object": {"code": 500, "message": "overloaded"}},
    ],
    ids=["spec", "status", "metadata", "object", "error"],
)
def test_an_invalid_object_ends_the_watch_but_not_the_loop(tmp_path: Path, broken: Object) -> None:
    with following(FakePods([broken], [added(rejected("b"))]), tmp_path) as (_, seen):
        assert seen == ["b"]


def test_a_missing_right_is_named_as_the_problem(tmp_path: Path) -> None:
    with following(FakePods(), tmp_path) as (watch, _):
        assert watch.problem is not None
        assert watch.problem.endswith("HTTP 403 — grant `watch` on pods to the account")
