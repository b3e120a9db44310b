"""The annotation beside a Node's labels, and the labels that a scan leaves undecided."""

import pytest

from nodetopo.components.labels.outputs.node import NodeLabelPublisher
from nodetopo.components.labels.outputs.output import DesiredLabels
from tests.components.labels.outputs.desired_labels import desired
from tests.kubeapi.fake_api_server import DirectApi, FakeApi

REASON = "gpu.topology/topology-ok-reason"
OK = "gpu.topology/topology-ok"
BAD = DesiredLabels(labels={OK: "false"}, annotations={REASON: "GPU3 is lost"})
WELL = DesiredLabels(labels={OK: "true"}, annotations={})


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def ours(api: FakeApi) -> NodeLabelPublisher:
    return NodeLabelPublisher(None, "gpu-1", connect=lambda: DirectApi(api))


def test_an_annotation_comes_and_goes_with_its_label(
    api: FakeApi, ours: NodeLabelPublisher
) -> None:
    ours.publish(BAD)
    assert (api.labels, api.annotations) == ({OK: "false"}, {REASON: "GPU3 is lost"})
    ours.publish(WELL)
    assert (api.labels, api.annotations) == ({OK: "true"}, {})


def test_an_annotation_that_is_there_takes_no_write(api: FakeApi, ours: NodeLabelPublisher) -> None:
    ours.publish(BAD)
    assert not ours.publish(BAD)
    assert api.writes == 1


def test_another_reason_alone_is_written(api: FakeApi, ours: NodeLabelPublisher) -> None:
    ours.publish(BAD)
    found = ours.publish(DesiredLabels(labels=BAD.labels, annotations={REASON: "GPU4 is lost"}))
    assert (found.is_stale, found.changed) == (True, {})
    assert api.annotations == {REASON: "GPU4 is lost"}


def test_where_nobody_knows_the_annotation_stays_through_a_write(
    api: FakeApi, ours: NodeLabelPublisher
) -> None:
    ours.publish(BAD)
    ours.publish(DesiredLabels(labels={OK: "false", "a.io/b": "c"}))
    assert api.annotations == {REASON: "GPU3 is lost"}
    assert api.writes == 2


def test_cleanup_takes_the_annotation_too(api: FakeApi, ours: NodeLabelPublisher) -> None:
    ours.publish(BAD)
    ours.remove()
    assert (api.labels, api.annotations) == ({}, {})


def test_a_label_that_was_not_read_stays_though_the_scan_is_complete(
    api: FakeApi, ours: NodeLabelPublisher
) -> None:
    ours.publish(desired({"a.io/read": "x", "a.io/unread": "y"}))
    found = ours.publish(DesiredLabels(unread=frozenset({"a.io/unread"})), complete=True)
    assert (api.labels, found.removed) == ({"a.io/unread": "y"}, {"a.io/read": "x"})
    assert found.kept == {"a.io/unread": "y"}
