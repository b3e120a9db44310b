"""Zones while the kubelet restarts, its pods change names, or its Node is created anew."""

import json

import pytest
from structlog.testing import capture_logs

from nodetopo.backoff import note_answer
from nodetopo.components.zones.loop import GAP_S, LOOK_S, NEW_NODE_S, OFFER_LOOKS, START_S
from nodetopo.components.zones.node_resource_topology import fingerprint
from nodetopo.components.zones.zones import ABSENCE_S
from nodetopo.kernel.pacing import RECHECK_S
from tests.components.labels.label_simulation import most
from tests.components.zones.machines import GPU, gpu, pod
from tests.components.zones.zone_simulation import (
    KEY,
    NODE,
    POD,
    POD_A,
    ZONES,
    FakeKubelet,
    SimulatedAgent,
    free_gpus,
)
from tests.kubeapi.fake_objects import FakeObjects

TRAINER = pod("a", devices=(gpu(0, 0), gpu(1, 0)), cpus="2-3")


@pytest.fixture
def api() -> FakeObjects:
    found = FakeObjects()
    found.put(NODE, {"metadata": {"name": "gpu-1", "uid": "uid-node"}})
    found.put(POD, POD_A)
    return found


@pytest.fixture
def kubelet() -> FakeKubelet:
    return FakeKubelet(pods=(TRAINER,))


@pytest.fixture
def agent(api: FakeObjects, kubelet: FakeKubelet) -> SimulatedAgent:
    """Return an agent that has published a node with a pod."""
    found = SimulatedAgent(api, kubelet)
    found.run(GAP_S)
    assert free_gpus(api) == [0, 2]
    api.asked.clear()
    return found


def test_a_restarting_kubelet_that_lists_no_pods_yet_frees_no_gpu(
    api: FakeObjects, kubelet: FakeKubelet, agent: SimulatedAgent
) -> None:
    kubelet.start, kubelet.pods = 1, ()
    agent.run(30)
    kubelet.pods = (TRAINER,)
    agent.run(30)
    assert (free_gpus(api), api.asked) == ([0, 2], [])
    kubelet.pods = ()
    agent.run(GAP_S)
    assert free_gpus(api) == [2, 2]


def test_a_pod_that_ended_while_the_kubelet_was_away_is_gone_in_the_end(
    api: FakeObjects, kubelet: FakeKubelet, agent: SimulatedAgent
) -> None:
    kubelet.start, kubelet.pods = 1, ()
    agent.run(ABSENCE_S + GAP_S + LOOK_S)
    assert free_gpus(api) == [2, 2]


def test_a_new_pod_after_a_restart_of_the_kubelet_is_told_of_beside_those_awaited(
    api: FakeObjects, kubelet: FakeKubelet, agent: SimulatedAgent
) -> None:
    new = pod("b", devices=(gpu(2, 1),))
    kubelet.start, kubelet.pods = 1, (new,)
    agent.run(GAP_S)
    assert free_gpus(api) == [0, 1]
    told = {one["name"]: one["value"] for one in api.objects[ZONES]["attributes"]}
    assert told["nodeTopologyPodsFingerprint"] == fingerprint([TRAINER, new])


def test_a_pod_of_the_same_name_and_place_gets_its_annotation_if_one_look_lacked_it(
    api: FakeObjects, kubelet: FakeKubelet, agent: SimulatedAgent
) -> None:
    other = pod("b", devices=(gpu(2, 1),))
    kubelet.pods = (TRAINER, other)
    agent.run(0)  # published; what the next looks see waits
    kubelet.pods = (other,)
    agent.run(LOOK_S)
    api.put(POD, POD_A)
    kubelet.pods = (TRAINER, other)
    agent.run(GAP_S)
    assert GPU in api.objects[POD]["metadata"]["annotations"][KEY]


def test_placements_alone_do_not_ask_what_the_kubelet_could_give(
    api: FakeObjects, kubelet: FakeKubelet
) -> None:
    SimulatedAgent(api, kubelet, has_zones=False).run(GAP_S)
    assert json.loads(api.objects[POD]["metadata"]["annotations"][KEY])
    assert (kubelet.questions, ZONES in api.objects) == (0, False)


def test_a_kubelet_that_is_silent_for_hours_is_one_line_in_the_log(
    kubelet: FakeKubelet, agent: SimulatedAgent
) -> None:
    kubelet.is_silent = True
    with capture_logs() as lines:
        agent.run(3600)
        kubelet.is_silent = False
        agent.run(60)
    assert [line["event"] for line in lines] == [
        "pod resources not read",
        "pod resources read again",
    ]


def new_node(api: FakeObjects) -> None:
    """Create the Node anew; the garbage collector takes the old one's object."""
    api.put(NODE, {"metadata": {"name": "gpu-1", "uid": "uid-new"}})
    del api.objects[ZONES]


def test_zones_of_a_node_that_was_created_anew_are_back_within_half_a_minute(
    api: FakeObjects, kubelet: FakeKubelet
) -> None:
    agent = SimulatedAgent(api, kubelet, spread=most)
    agent.zones.note_node({"uid": "uid-node"})
    agent.run(START_S + GAP_S)
    new_node(api)
    agent.zones.note_node(None)
    agent.zones.note_node({"uid": "uid-new"})
    agent.run(NEW_NODE_S[1] + LOOK_S)
    (owner,) = api.objects[ZONES]["metadata"]["ownerReferences"]
    assert (owner["uid"], free_gpus(api)) == ("uid-new", [0, 2])
    api.asked.clear()
    agent.run(RECHECK_S[0])
    assert ("GET", ZONES) not in api.asked


def test_they_are_so_after_pauses_that_had_grown_long_while_there_was_no_node(
    api: FakeObjects, kubelet: FakeKubelet
) -> None:
    agent = SimulatedAgent(api, kubelet, spread=most)
    agent.zones.note_node({"uid": "uid-node"})
    agent.run(START_S + GAP_S)
    node = api.objects.pop(NODE)
    del api.objects[ZONES]
    agent.run(3600)
    assert ZONES not in api.objects
    api.put(NODE, {**node, "metadata": {**node["metadata"], "uid": "uid-new"}})
    agent.zones.note_node({"uid": "uid-new"})
    agent.run(NEW_NODE_S[1] + LOOK_S)
    assert ZONES in api.objects


def test_zones_that_still_exist_belong_to_the_new_node(
    api: FakeObjects, agent: SimulatedAgent
) -> None:
    agent.zones.note_node({"uid": "uid-node"})
    agent.run(LOOK_S)
    api.put(NODE, {"metadata": {"name": "gpu-1", "uid": "uid-new"}})
    agent.zones.note_node({"uid": "uid-new"})
    agent.run(NEW_NODE_S[1])
    assert [one["uid"] for one in api.objects[ZONES]["metadata"]["ownerReferences"]] == ["uid-new"]


def test_a_new_node_does_not_shorten_a_pause_that_the_api_server_asked_for(
    api: FakeObjects, agent: SimulatedAgent, kubelet: FakeKubelet
) -> None:
    agent.zones.note_node({"uid": "uid-node"})
    agent.run(LOOK_S)
    api.fail_with = 429  # with seven seconds
    kubelet.pods = ()
    agent.run(0)
    agent.zones.note_node({"uid": "uid-new"})
    agent.run(6)
    assert [path for _method, path in api.asked].count(ZONES) == 1
    note_answer()  # of another request: the server is well again
    agent.run(0)
    assert [path for _method, path in api.asked].count(ZONES) == 2


def test_what_the_kubelet_could_give_is_asked_for_when_pods_change_and_seldom_else(
    kubelet: FakeKubelet, agent: SimulatedAgent
) -> None:
    kubelet.questions = 0
    agent.run(10 * OFFER_LOOKS * LOOK_S)
    assert kubelet.questions in (10, 11)
    for changed in ((), (TRAINER,)):
        kubelet.questions, kubelet.pods = 0, changed
        agent.run(LOOK_S)
        assert kubelet.questions >= 1
    kubelet.questions, kubelet.start = 0, 7
    agent.run(LOOK_S)
    assert kubelet.questions >= 1
