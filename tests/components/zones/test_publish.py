"""The NodeResourceTopology object, against a server that applies it."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from nodetopo.components.zones.node_resource_topology import attributes, content
from nodetopo.components.zones.publish import NodeZonesPublisher
from nodetopo.components.zones.zones import zones
from nodetopo.errors import ApiUnavailable
from tests.components.zones.machines import NODES, OFFER, gpu, pod
from tests.kubeapi.fake_objects import FakeObjects, Object

PATH = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies/gpu-1"
NODE = "/api/v1/nodes/gpu-1"
HELD = (pod("a", devices=(gpu(0, 0),)),)
IDLE = content(zones(NODES, OFFER, ()), attributes(None, ()))
BUSY = content(zones(NODES, OFFER, HELD), attributes(None, HELD))
NFD = "node-feature-discovery-topology-updater"
THEIRS: Object = {
    "zones": [{"name": "node-0", "type": "Node"}],
    "attributes": [{"name": "topologyManagerPolicy", "value": "none"}],
    "topologyPolicies": ["None"],
}


@pytest.fixture
def api() -> FakeObjects:
    found = FakeObjects()
    found.put(NODE, {"metadata": {"name": "gpu-1", "uid": "uid-node"}})
    return found


def publisher(api: FakeObjects) -> NodeZonesPublisher:
    return NodeZonesPublisher(lambda: api, "gpu-1")


def owners(api: FakeObjects) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.objects[PATH]["metadata"].get("ownerReferences", [])
    return found


def test_the_object_is_named_and_owned_by_its_node(api: FakeObjects) -> None:
    assert publisher(api).publish(IDLE)
    made = api.objects[PATH]
    assert (made["apiVersion"], made["kind"]) == (
        "topology.node.k8s.io/v1alpha2",
        "NodeResourceTopology",
    )
    assert made["metadata"]["name"] == "gpu-1"
    assert {field: made[field] for field in IDLE} == IDLE
    assert owners(api) == [{"apiVersion": "v1", "kind": "Node", "name": "gpu-1", "uid": "uid-node"}]


def test_the_same_is_not_written_again_after_a_restart(api: FakeObjects) -> None:
    first = publisher(api)
    first.publish(IDLE)
    first.publish(IDLE)
    again = publisher(api)
    assert again.publish(IDLE)
    assert (api.writes, first.writes, again.writes) == ([PATH], 1, 0)


def test_what_changed_is_written_whole(api: FakeObjects) -> None:
    ours = publisher(api)
    ours.publish(IDLE)
    ours.publish(BUSY)
    assert {field: api.objects[PATH][field] for field in BUSY} == BUSY
    assert ours.writes == 2


@pytest.mark.parametrize("field", ["zones", "attributes", "topologyPolicies"])
def test_another_producers_object_is_left_alone_and_logged_once(
    api: FakeObjects, field: str
) -> None:
    api.put(PATH, {field: THEIRS[field]}, NFD)
    before = api.read(PATH)
    ours = publisher(api)
    with capture_logs() as lines:
        assert not ours.publish(IDLE)
        assert not ours.publish(BUSY)
    assert (api.read(PATH), api.writes, ours.left_to) == (before, [], (NFD,))
    assert [(line["event"], line["producers"]) for line in lines] == [
        ("NodeResourceTopology left to its producer", [NFD])
    ]


def test_another_producer_without_a_name_is_noticed(api: FakeObjects) -> None:
    api.put(PATH, THEIRS)
    api.owners[PATH] = {}
    ours = publisher(api)
    assert not ours.publish(IDLE)
    assert (api.writes, ours.left_to) == ([], ())


def test_an_object_that_another_producer_took_over_is_theirs_from_then_on(
    api: FakeObjects,
) -> None:
    ours = publisher(api)
    ours.publish(IDLE)
    api.put(PATH, THEIRS, NFD)
    assert not ours.publish(BUSY)
    assert api.objects[PATH]["zones"] == THEIRS["zones"]


def test_an_object_is_ours_again_when_the_other_producer_deleted_it(api: FakeObjects) -> None:
    api.put(PATH, THEIRS, NFD)
    ours = publisher(api)
    ours.publish(IDLE)
    del api.objects[PATH]
    assert ours.publish(IDLE)
    assert ours.left_to is None
    assert api.objects[PATH]["zones"] == IDLE["zones"]


def test_an_object_that_nobody_filled_is_taken(api: FakeObjects) -> None:
    api.put(PATH, {"metadata": {"name": "gpu-1", "labels": {"a": "b"}}, "zones": []})
    assert publisher(api).publish(IDLE)
    assert api.objects[PATH]["metadata"]["labels"] == {"a": "b"}
    assert api.objects[PATH]["zones"] == IDLE["zones"]


def test_an_edit_of_our_object_by_hand_is_put_right(api: FakeObjects) -> None:
    ours = publisher(api)
    ours.publish(IDLE)
    api.objects[PATH]["zones"] = []
    api.owners[PATH][("zones",)] = {"kubectl-edit"}
    assert ours.publish(IDLE)
    assert api.objects[PATH]["zones"] == IDLE["zones"]


def test_a_recreated_node_owns_the_new_object(api: FakeObjects) -> None:
    ours = publisher(api)
    ours.publish(IDLE)
    api.put(NODE, {"metadata": {"name": "gpu-1", "uid": "uid-new"}})
    del api.objects[PATH]  # by the garbage collector: its owner is gone
    ours.publish(IDLE)
    assert owners(api)[0]["uid"] == "uid-new"


def test_zones_are_published_without_the_right_to_read_the_node(api: FakeObjects) -> None:
    api.refuse[NODE] = 403
    assert publisher(api).publish(IDLE)
    assert owners(api) == []


def test_an_object_that_lacks_its_owner_gets_it_by_one_write(api: FakeObjects) -> None:
    api.refuse[NODE] = 403
    publisher(api).publish(IDLE)
    api.refuse.clear()
    ours = publisher(api)
    ours.publish(IDLE)
    ours.publish(IDLE)
    assert (owners(api)[0]["uid"], ours.writes) == ("uid-node", 1)


def test_a_node_that_cannot_be_read_now_is_waited_for(api: FakeObjects) -> None:
    api.refuse[NODE] = 503
    with pytest.raises(ApiUnavailable) as caught:
        publisher(api).publish(IDLE)
    assert caught.value.retry_after_s == 7.0
    assert PATH not in api.objects


@pytest.mark.parametrize(
    ("status", "cure"),
    [(403, "grant `get`, `create` and `patch` on noderesourcetopologies"), (503, "tried again")],
)
def test_a_refusal_names_its_cure(api: FakeObjects, status: int, cure: str) -> None:
    api.refuse[PATH] = status
    with pytest.raises(ApiUnavailable, match=cure):
        publisher(api).publish(IDLE)


def test_without_its_node_no_object_is_created_that_nothing_would_take_away(
    api: FakeObjects,
) -> None:
    del api.objects[NODE]
    with pytest.raises(ApiUnavailable, match="GET http://fake/api/v1/nodes/gpu-1: not found"):
        publisher(api).publish(IDLE)
    assert api.writes == []


def test_a_node_that_is_known_to_be_new_owns_the_object_that_is_still_there(
    api: FakeObjects,
) -> None:
    ours = publisher(api)
    ours.publish(IDLE)
    api.put(NODE, {"metadata": {"name": "gpu-1", "uid": "uid-new"}})
    ours.forget_owner()
    ours.publish(IDLE)
    assert [owner["uid"] for owner in owners(api)] == ["uid-new"]


@pytest.mark.parametrize(
    "broken",
    [
        {"metadata": "x", "zones": [1]},
        {"metadata": {"managedFields": "x"}, "zones": [1]},
        {"metadata": {"managedFields": [1]}, "zones": [1]},
        {"metadata": {"managedFields": [{"fieldsV1": 1}]}, "zones": [1]},
        {"metadata": {"ownerReferences": "x"}, **IDLE},
        {"metadata": {"ownerReferences": [1]}, **IDLE},
    ],
)
def test_an_answer_that_is_no_object_is_an_error_like_others(
    api: FakeObjects, broken: Object
) -> None:
    class Broken(FakeObjects):
        def read(self, path: str) -> Object:
            return broken if path == PATH else super().read(path)

    with pytest.raises(ApiUnavailable):
        publisher(Broken(objects={**api.objects, PATH: {}}, owners=api.owners)).publish(IDLE)
