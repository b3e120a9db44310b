"""What happens to a Node's labels between several writers, and when answers are lost."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from nodetopo.components.labels.outputs.node import NodeLabelPublisher
from nodetopo.components.labels.outputs.output import LabelChanges
from nodetopo.errors import ApiUnavailable
from nodetopo.kubeapi.apply import labelled
from tests.components.labels.outputs.desired_labels import desired
from tests.kubeapi.fake_api_server import DirectApi, FakeApi, Reply, serving

CLIQUE = "nvidia.com/gpu.clique"
LABELS = {"nvidia.com/gpu.count": "8", CLIQUE: "uuid.1"}


def publisher(api: FakeApi, yields: frozenset[str] = frozenset()) -> NodeLabelPublisher:
    return NodeLabelPublisher(None, "gpu-1", connect=lambda: DirectApi(api), yields=yields)


@pytest.mark.parametrize("status", [0, 500, 504])
def test_after_a_write_of_unknown_outcome_the_newest_state_is_read(
    tmp_path: Path, status: int
) -> None:
    api = FakeApi(version=41)
    with serving(api, tmp_path) as config:
        ours = NodeLabelPublisher(config, "gpu-1")
        api.lose_with = status
        with pytest.raises(ApiUnavailable):
            ours.publish(desired(LABELS))
        assert (api.labels, ours.publish(desired(LABELS))) == (LABELS, LabelChanges(is_there=True))
    assert [query["resourceVersion"] for query in api.reads] == ["0", ""]
    assert api.writes == 1


def test_the_newest_state_is_asked_for_until_it_comes() -> None:
    api = FakeApi(version=41, lose_with=504)
    ours = publisher(api)
    with pytest.raises(ApiUnavailable):
        ours.publish(desired(LABELS))
    api.fail_with = (503, {})
    with pytest.raises(ApiUnavailable):
        ours.publish(desired(LABELS))
    api.fail_with = None
    ours.publish(desired(LABELS))
    ours.publish(desired(LABELS))
    assert [query["resourceVersion"] for query in api.reads] == ["0", "", "", "42"]


class _Throttled(FakeApi):
    def apply(self, query: Mapping[str, str], body: Mapping[str, Any]) -> Reply:
        del query, body
        return 429, {"message": "later"}


def test_a_refused_write_needs_no_newer_state() -> None:
    api = _Throttled()
    ours = publisher(api)
    with pytest.raises(ApiUnavailable):
        ours.publish(desired(LABELS))
    with pytest.raises(ApiUnavailable):
        ours.publish(desired(LABELS))
    assert [query["resourceVersion"] for query in api.reads] == ["0", "0"]


def test_what_would_change_is_told_without_a_write() -> None:
    api = FakeApi()
    api.set_by("nodetopo", {"nvidia.com/gpu.count": "7", "nvidia.com/gone": "x"})
    api.set_by("kubelet", {"kubernetes.io/os": "linux"})
    found = publisher(api).changes(desired(LABELS))
    assert found == LabelChanges(
        added={CLIQUE: "uuid.1"},
        changed={"nvidia.com/gpu.count": ("7", "8")},
        kept={"nvidia.com/gone": "x"},
        is_there=True,
    )
    assert api.patches == []


def test_a_label_that_we_yield_is_written_where_nobody_else_does() -> None:
    api = FakeApi()
    publisher(api, frozenset({CLIQUE})).publish(desired(LABELS))
    assert api.labels == LABELS


def test_a_yielded_label_is_left_to_another_program() -> None:
    api = FakeApi()
    api.set_by("dra-driver", {CLIQUE: "theirs"})
    publisher(api, frozenset({CLIQUE})).publish(desired(LABELS))
    assert api.labels == LABELS | {CLIQUE: "theirs"}
    assert api.owners[CLIQUE] == {"dra-driver"}


def test_a_label_that_we_yield_is_ours_again_when_the_other_writer_leaves() -> None:
    api = FakeApi()
    api.set_by("dra-driver", {CLIQUE: "theirs"})
    ours = publisher(api, frozenset({CLIQUE}))
    ours.publish(desired(LABELS))
    del api.labels[CLIQUE], api.owners[CLIQUE]
    assert ours.publish(desired(LABELS)).added == {CLIQUE: "uuid.1"}


@pytest.mark.parametrize(
    ("manager", "operation", "subresource", "is_ours"),
    [
        ("nodetopo", "Apply", "", True),
        ("nodetopo", "Update", "", False),
        ("nodetopo", "Apply", "status", False),
        ("kubectl-label", "Update", "", False),
    ],
)
def test_only_what_we_applied_is_ours(
    manager: str, operation: str, subresource: str, *, is_ours: bool
) -> None:
    entry = {
        "manager": manager,
        "operation": operation,
        "subresource": subresource,
        "fieldsV1": {"f:metadata": {"f:labels": {".": {}, f"f:{CLIQUE}": {}, "f:gone": {}}}},
    }
    found = labelled({"uid": "u", "labels": LABELS, "managedFields": [entry]}, "nodetopo")
    ours, others = sorted(found.owned), sorted(found.others)
    assert (ours, others) == (([CLIQUE], []) if is_ours else ([], [CLIQUE]))


def test_what_others_wrote_alike_is_not_ours_to_remove() -> None:
    api = FakeApi()
    api.set_by("kubectl-label", LABELS)
    assert not publisher(api).publish(desired(LABELS), complete=True)
    assert not publisher(api).remove()
    assert api.labels == LABELS


def test_removal_takes_exactly_our_labels() -> None:
    api = FakeApi()
    api.set_by("kubelet", {"kubernetes.io/os": "linux"})
    ours = publisher(api)
    ours.publish(desired(LABELS))
    assert ours.remove().removed == LABELS
    assert api.labels == {"kubernetes.io/os": "linux"}


def test_a_takeover_names_the_other_writer() -> None:
    api = FakeApi()
    api.set_by("nfd-master", {"nvidia.com/gpu.count": "4"})
    with capture_logs() as lines:
        publisher(api).publish(desired(LABELS))
    (line,) = (line for line in lines if line["event"] == "labels taken over")
    assert "nvidia.com/gpu.count" in line["conflicts"][0]


def test_before_the_first_look_nothing_is_a_disturbance() -> None:
    assert not publisher(FakeApi()).is_disturbed({"uid": "uid-9"})


def test_what_we_left_is_no_disturbance() -> None:
    api = FakeApi()
    ours = publisher(api)
    ours.publish(desired(LABELS))
    api.set_by("kubelet", {"kubernetes.io/os": "linux"})
    assert not ours.is_disturbed(api.read()["metadata"])


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_changed_label_is_a_disturbance(is_restarted: bool) -> None:
    api = FakeApi()
    ours = publisher(api)
    ours.publish(desired(LABELS))
    if is_restarted:
        ours = publisher(api)
        ours.changes(desired(LABELS))
    api.labels[CLIQUE] = "other"
    assert ours.is_disturbed(api.read()["metadata"])


def test_a_recreated_node_is_a_disturbance() -> None:
    api = FakeApi()
    ours = publisher(api)
    ours.publish(desired(LABELS))
    api.uid = "uid-2"
    assert ours.is_disturbed(api.read()["metadata"])


def test_a_label_that_was_refused_is_not_missed() -> None:
    api = FakeApi()
    ours = publisher(api)
    ours.publish(desired(LABELS | {"nvidia.com/gpu.product": "not valid"}))
    assert not ours.is_disturbed(api.read()["metadata"])


def test_the_end_of_another_writer_is_a_disturbance() -> None:
    api = FakeApi()
    api.set_by("dra-driver", {CLIQUE: "theirs"})
    ours = publisher(api, frozenset({CLIQUE}))
    ours.publish(desired(LABELS))
    assert not ours.is_disturbed(api.read()["metadata"])
    del api.labels[CLIQUE], api.owners[CLIQUE]
    assert ours.is_disturbed(api.read()["metadata"])
