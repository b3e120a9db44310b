"""When zones and placements are published: hours of it, without waiting."""

import json
import threading
from typing import Any

import pytest
from msgspec.structs import replace

from nodetopo.backoff import API_RETRY_S
from nodetopo.components.zones.loop import GAP_S, KUBELET_RETRY_S, LOOK_S, START_S
from nodetopo.components.zones.node_resource_topology import fingerprint
from nodetopo.components.zones.zones import ABSENCE_S
from nodetopo.kernel.pacing import RECHECK_S
from nodetopo.model.dra import ClaimedDevice, PublishedDevice
from nodetopo.model.gpu import Gpu
from tests.components.labels.label_simulation import most
from tests.components.zones.machines import GPU, OFFER, gpu, pod
from tests.components.zones.zone_simulation import (
    KEY,
    MACHINE,
    NODE,
    POD,
    POD_A,
    POLICIES,
    ZONES,
    FakeKubelet,
    SimulatedAgent,
    free_gpus,
)
from tests.deviceplugin.eventually import eventually
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
    return FakeKubelet()


@pytest.fixture
def agent(api: FakeObjects, kubelet: FakeKubelet) -> SimulatedAgent:
    """Return an agent that has published an idle node."""
    found = SimulatedAgent(api, kubelet)
    found.run(GAP_S)
    assert ZONES in api.objects
    return found


def producers(agent: SimulatedAgent) -> tuple[str, ...] | None:
    return agent.zones.left_to


def attribute(api: FakeObjects, name: str) -> Any:
    told = {one["name"]: one["value"] for one in api.objects[ZONES]["attributes"]}
    return told.get(name)


def test_zones_are_updated_within_seconds_of_pod_changes(
    api: FakeObjects, kubelet: FakeKubelet, agent: SimulatedAgent
) -> None:
    assert (free_gpus(api), attribute(api, "topologyManagerPolicy")) == ([2, 2], "single-numa-node")
    kubelet.pods = (TRAINER,)
    agent.run(LOOK_S)
    assert (free_gpus(api), attribute(api, "nodeTopologyPodsFingerprint")) == (
        [0, 2],
        fingerprint([TRAINER]),
    )
    expected = [{"zone": "node-0", "amount": {"cpu": "2", GPU: "2"}}]
    assert json.loads(api.objects[POD]["metadata"]["annotations"][KEY]) == expected
    kubelet.pods = ()
    agent.run(GAP_S)
    assert free_gpus(api) == [2, 2]
    assert agent.zones.writes == 4


def test_a_pod_that_only_shares_changes_the_fingerprint_and_gets_no_annotation(
    api: FakeObjects, kubelet: FakeKubelet, agent: SimulatedAgent
) -> None:
    kubelet.pods = (pod("a"),)
    agent.run(LOOK_S)
    assert attribute(api, "nodeTopologyPodsFingerprint") == fingerprint([pod("a")])
    assert ("PATCH", POD) not in api.asked


def test_a_steady_hour_takes_no_write_and_a_read_in_five_minutes_of_each_object(
    api: FakeObjects, kubelet: FakeKubelet, agent: SimulatedAgent
) -> None:
    kubelet.pods = (TRAINER,)
    agent.run(GAP_S)
    api.asked.clear()
    agent.run(3600)
    assert api.writes == []
    assert api.asked.count(("GET", ZONES)) == api.asked.count(("GET", POD)) == 12
    assert len(api.asked) == 24


def test_a_hundred_restarts_write_nothing(api: FakeObjects, kubelet: FakeKubelet) -> None:
    kubelet.pods = (TRAINER,)
    SimulatedAgent(api, kubelet).run(1)
    before = json.dumps(api.objects)
    api.asked.clear()
    for _ in range(100):
        SimulatedAgent(api, kubelet, spread=most).run(START_S + GAP_S)
    assert (json.dumps(api.objects), api.writes) == (before, [])


def test_agents_that_start_together_do_not_ask_together(
    api: FakeObjects, kubelet: FakeKubelet
) -> None:
    agent = SimulatedAgent(api, kubelet, spread=most)
    agent.run(START_S - LOOK_S)
    assert api.asked == []
    agent.run(LOOK_S)
    assert ZONES in api.objects


def test_once_waits_for_nothing(api: FakeObjects, kubelet: FakeKubelet) -> None:
    SimulatedAgent(api, kubelet, spread=most, once=True).zones.step()
    assert ZONES in api.objects


def test_pods_that_come_and_go_all_the_time_are_a_write_in_five_seconds_at_most(
    api: FakeObjects, kubelet: FakeKubelet, agent: SimulatedAgent
) -> None:
    api.asked.clear()
    for number in range(600 // int(LOOK_S)):
        kubelet.pods = (pod(f"p-{number}", devices=(gpu(0, 0, 1),)),)
        agent.run(LOOK_S)
    assert 0 < len(api.writes) <= 600 / GAP_S


def test_what_the_machine_does_not_tell_yet_is_not_asked_for(
    api: FakeObjects, kubelet: FakeKubelet
) -> None:
    agent = SimulatedAgent(api, kubelet)
    agent.store.publish(replace(MACHINE, numa_nodes=None))
    agent.run(60)
    assert (kubelet.questions, api.asked) == (0, [])


def test_policies_that_a_scan_could_not_read_stay_as_they_were(
    api: FakeObjects, agent: SimulatedAgent
) -> None:
    agent.store.publish(replace(MACHINE, kubelet=None))
    agent.run(60)
    assert attribute(api, "topologyManagerPolicy") == "single-numa-node"
    changed = replace(POLICIES, topology_manager_policy="restricted")
    agent.store.publish(replace(MACHINE, kubelet=changed))
    agent.run(GAP_S)
    assert attribute(api, "topologyManagerPolicy") == "restricted"


def test_a_kubelet_that_restarts_loses_no_device_until_its_plugins_are_back(
    api: FakeObjects, kubelet: FakeKubelet, agent: SimulatedAgent
) -> None:
    api.asked.clear()
    kubelet.offered = replace(OFFER, devices=())
    agent.run(30)
    kubelet.offered = OFFER
    agent.run(ABSENCE_S)
    assert (free_gpus(api), api.writes) == ([2, 2], [])
    kubelet.offered = replace(OFFER, devices=())
    agent.run(ABSENCE_S + GAP_S)
    assert free_gpus(api) == [None, None]


def test_a_kubelet_that_does_not_answer_changes_nothing_and_is_asked_less_and_less(
    api: FakeObjects, kubelet: FakeKubelet
) -> None:
    kubelet.pods = (TRAINER,)
    agent = SimulatedAgent(api, kubelet, spread=most)
    agent.run(START_S + GAP_S)
    kubelet.is_silent, kubelet.questions = True, 0
    api.asked.clear()
    agent.run(600)
    assert (free_gpus(api), api.asked) == ([0, 2], [])
    assert kubelet.questions <= 600 / KUBELET_RETRY_S[1] + 5
    assert agent.zones.kubelet_errors == kubelet.questions
    kubelet.is_silent, kubelet.pods = False, ()
    agent.run(KUBELET_RETRY_S[1])
    assert free_gpus(api) == [2, 2]


def test_ten_minutes_without_an_api_server_cost_few_requests_and_lose_nothing(
    api: FakeObjects, kubelet: FakeKubelet
) -> None:
    agent = SimulatedAgent(api, kubelet, spread=most)
    api.fail_with = 503
    kubelet.pods = (TRAINER,)
    agent.run(600)
    assert len(api.asked) <= 24  # two things to publish; after 1, 2, 4, … and 256 s, each and 7
    assert agent.zones.errors == len(api.asked)
    api.fail_with = None
    agent.run(API_RETRY_S[1] + 7)
    assert (free_gpus(api), agent.zones.writes) == ([0, 2], 2)
    api.fail_with = 503
    api.asked.clear()
    kubelet.pods = ()
    agent.run(60)  # the pauses begin with the shortest again
    assert len(api.asked) >= 4


def test_a_pod_that_the_api_server_refuses_is_counted(
    api: FakeObjects, kubelet: FakeKubelet
) -> None:
    api.refuse[POD] = 403
    kubelet.pods = (TRAINER,)
    agent = SimulatedAgent(api, kubelet)
    agent.run(60)
    assert (agent.zones.errors, agent.zones.writes) == (1, 1)


def test_another_producers_object_is_looked_at_no_sooner_than_at_the_next_recheck(
    api: FakeObjects, kubelet: FakeKubelet
) -> None:
    api.put(ZONES, {"zones": [{"name": "node-0", "type": "Node"}]}, "nfd")
    agent = SimulatedAgent(api, kubelet)
    agent.run(1)
    assert producers(agent) == ("nfd",)
    api.asked.clear()
    for number in range(20):
        kubelet.pods = (pod(f"p-{number}"),)
        agent.run(10)
    assert api.asked == []
    del api.objects[ZONES]
    agent.run(RECHECK_S[0])
    assert free_gpus(api) == [2, 2]
    assert producers(agent) is None


def test_an_object_that_somebody_deleted_is_back_within_six_minutes(
    api: FakeObjects, agent: SimulatedAgent
) -> None:
    del api.objects[ZONES]
    agent.run(RECHECK_S[1])
    assert free_gpus(api) == [2, 2]


def test_the_loop_ends_when_it_is_told_to_and_leaves_what_it_published(
    api: FakeObjects, kubelet: FakeKubelet
) -> None:
    agent = SimulatedAgent(api, kubelet, once=True)
    stopping = threading.Event()
    thread = threading.Thread(target=agent.zones.run, args=(stopping,))
    thread.start()
    assert eventually(lambda: ZONES in api.objects)
    stopping.set()
    thread.join(120)
    assert (thread.is_alive(), kubelet.is_closed, ZONES in api.objects) == (False, True, True)


def test_gpus_by_claim_are_taken_as_soon_as_the_slices_say_which_they_are(
    agent: SimulatedAgent, kubelet: FakeKubelet, api: FakeObjects
) -> None:
    claimed = ClaimedDevice(
        driver="gpu.nvidia.com", pool="gpu-1", name="gpu-0", namespace="ml", claim="c"
    )
    agent.store.publish(replace(MACHINE, gpus=(Gpu(index=0, uuid="GPU-2"),)))
    kubelet.pods = (replace(pod("a"), claimed=(claimed,)),)
    agent.run(GAP_S)
    assert free_gpus(api) == [2, 2]
    agent.published = (
        PublishedDevice(
            driver="gpu.nvidia.com",
            pool="gpu-1",
            name="gpu-0",
            attributes={"gpu.nvidia.com/uuid": "GPU-2"},
        ),
    )
    agent.run(GAP_S)
    assert free_gpus(api) == [2, 1]
