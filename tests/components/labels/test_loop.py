"""When labels are published: hours of it, without waiting."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from nodetopo.backoff import API_RETRY_S, note_answer
from nodetopo.components.labels.outputs.nfd import NfdFile
from nodetopo.components.labels.outputs.pacing import CORRECTION_S, FOLLOWED_S, GAP_S, START_S
from nodetopo.kernel.pacing import RECHECK_S
from nodetopo.model.snapshot import Kernel, Snapshot
from tests.components.labels.label_simulation import COUNT, DGX, SimulatedAgent, least, most, node
from tests.kubeapi.fake_api_server import FakeApi

NO_GPU = replace(DGX, gpus=(), pci_gpus=(), nvlinks=(), pairs=())


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def agent(api: FakeApi) -> SimulatedAgent:
    """Return an agent that has published."""
    found = SimulatedAgent(node(api))
    found.scan()
    found.run(0)
    assert api.labels[COUNT] == "8"
    return found


def test_a_thousand_restarts_change_no_label_and_write_nothing(api: FakeApi) -> None:
    first = SimulatedAgent(node(api))
    first.scan()
    first.run(1)
    before, version = dict(api.labels), api.version
    api.patches.clear()
    api.reads.clear()
    for _ in range(1000):
        again = SimulatedAgent(node(api), spread=most)
        again.scan()
        again.run(START_S + GAP_S)
        again.scan()
        again.run(GAP_S)
    assert (api.labels, api.version, api.patches) == (before, version, [])
    assert len(api.reads) == 1000


def test_a_steady_hour_takes_no_write_and_a_read_in_five_minutes_at_most(
    api: FakeApi, agent: SimulatedAgent
) -> None:
    api.reads.clear()
    for _ in range(60):
        agent.scan()
        agent.run(60)
    assert (api.writes, agent.labelling.writes) == (1, 1)
    assert len(api.reads) <= 12


def test_scans_that_change_no_label_ask_nobody(api: FakeApi, agent: SimulatedAgent) -> None:
    api.reads.clear()
    for number in range(4):
        agent.scan(replace(DGX, kernel=Kernel(release=f"6.{number}")))
        agent.run(60)
    assert api.reads == []


def test_a_label_that_is_unread_for_ever_stays_and_asks_nobody(api: FakeApi) -> None:
    api.set_by("nodetopo", {"a.io/unread": "x"})
    agent = SimulatedAgent(node(api))
    agent.unread = {"a.io/unread"}
    for _ in range(60):
        agent.scan()
        agent.run(60)
    assert api.labels["a.io/unread"] == "x"
    assert len(api.reads) <= 15


def test_a_node_that_proves_to_have_no_gpu_keeps_no_label(
    api: FakeApi, agent: SimulatedAgent
) -> None:
    agent.extra = {}
    agent.scan(NO_GPU)
    agent.run(RECHECK_S[1])
    assert COUNT in api.labels
    agent.scan(replace(NO_GPU, pci_gpus=None))
    agent.run(RECHECK_S[1])
    assert COUNT in api.labels
    agent.scan(NO_GPU)
    agent.scan(NO_GPU)
    agent.run(RECHECK_S[1])
    agent.scan(NO_GPU)
    agent.run(RECHECK_S[1])
    assert api.labels == {}


def test_while_a_watch_tells_of_the_node_it_is_read_once_an_hour(
    api: FakeApi, agent: SimulatedAgent
) -> None:
    agent.see(api)
    agent.run(RECHECK_S[0])
    api.reads.clear()
    agent.scan()
    agent.run(FOLLOWED_S[0] - 1)
    assert api.reads == []
    agent.run(FOLLOWED_S[1])
    assert 1 <= len(api.reads) <= 2


def test_the_first_sight_of_a_node_hurries_no_correction(api: FakeApi) -> None:
    api.set_by("nodetopo", {COUNT: "7"})
    agent = SimulatedAgent(node(api), spread=most)
    agent.scan()
    agent.run(START_S)
    agent.see(api)
    agent.run(CORRECTION_S - 1)
    assert api.labels[COUNT] == "7"


def test_agents_that_start_together_do_not_ask_together(api: FakeApi) -> None:
    agent = SimulatedAgent(node(api), spread=most)
    agent.scan()
    agent.run(START_S - 0.1)
    assert api.reads == []
    agent.run(0.2)
    assert COUNT in api.labels


def test_a_node_that_has_labels_of_ours_is_corrected_by_chance_within_a_minute(
    api: FakeApi,
) -> None:
    api.set_by("nodetopo", {COUNT: "7"})
    agent = SimulatedAgent(node(api), spread=most)
    agent.scan()
    agent.run(START_S + CORRECTION_S - 0.1)
    assert (api.labels[COUNT], len(api.reads)) == ("7", 1)
    agent.run(0.2)
    assert api.labels[COUNT] == "8"


def test_once_waits_for_nothing(api: FakeApi) -> None:
    api.set_by("nodetopo", {COUNT: "7"})
    agent = SimulatedAgent(node(api), spread=most, once=True)
    agent.scan()
    agent.run(0.01)
    assert api.labels[COUNT] == "8"


def test_before_anything_was_read_nothing_is_asked(api: FakeApi) -> None:
    agent = SimulatedAgent(node(api))
    agent.extra = {}
    agent.run(60)
    agent.scan(Snapshot())
    agent.run(60)
    assert api.reads == []


def test_ten_minutes_without_an_api_server_cost_few_requests_and_lose_nothing(
    api: FakeApi,
) -> None:
    agent = SimulatedAgent(node(api), spread=most)
    api.fail_with = (503, {})
    for number in range(10):
        agent.extra = {"a.io/extra": f"v{number}"}
        agent.scan()
        agent.run(60)
    asked = len(api.reads)
    assert asked == 10  # 5 s after the start, then after 1, 2, 4, … and 256 s
    api.fail_with = None
    agent.run(API_RETRY_S[1])
    assert (api.labels["a.io/extra"], api.writes) == ("v9", 1)


def test_the_least_pause_after_a_refusal_is_a_second(api: FakeApi) -> None:
    agent = SimulatedAgent(node(api), spread=least)
    api.fail_with = (503, {})
    agent.scan()
    agent.run(59.5)
    assert len(api.reads) == 60


def test_a_storm_of_429_is_answered_by_the_pauses_that_were_asked_for(api: FakeApi) -> None:
    agent = SimulatedAgent(node(api), spread=least)
    agent.scan()
    for asked_s in (1, 2, 4, 60):
        api.fail_with = (429, {"Retry-After": str(asked_s)})
        agent.run(0)
        api.reads.clear()
        agent.run(asked_s + API_RETRY_S[0] - 0.1)
        assert api.reads == []
        agent.now += 0.1
    api.fail_with = None
    agent.run(0)
    assert COUNT in api.labels


def test_the_pause_asked_for_ends_once_the_server_answers_anybody(api: FakeApi) -> None:
    agent = SimulatedAgent(node(api), spread=least)
    agent.scan()
    api.fail_with = (503, {"Retry-After": "60"})
    agent.run(0)
    api.fail_with = None
    agent.run(API_RETRY_S[0])
    assert COUNT not in api.labels
    note_answer()
    agent.run(0)
    assert COUNT in api.labels


def test_an_answer_hurries_no_agent_that_spreads_over_a_new_node(api: FakeApi) -> None:
    agent = SimulatedAgent(node(api), spread=most)
    agent.scan()
    api.fail_with = (429, {"Retry-After": "60"})
    agent.run(START_S)
    agent.see(api)
    api.fail_with, api.uid = None, "uid-2"
    api.reads.clear()
    agent.see(api)
    note_answer()  # to the watch, which shows the new Node
    agent.run(START_S - 0.1)
    assert api.reads == []
    agent.run(0.2)
    assert COUNT in api.labels


def test_a_success_ends_the_back_off(api: FakeApi) -> None:
    agent = SimulatedAgent(node(api), spread=most)
    api.fail_with = (503, {})
    agent.scan()
    agent.run(600)
    api.fail_with = None
    agent.run(API_RETRY_S[1])
    api.fail_with = (503, {})
    agent.extra = {"a.io/extra": "y"}
    agent.scan()
    agent.run(0)
    api.fail_with = None
    agent.run(API_RETRY_S[0])
    assert api.labels["a.io/extra"] == "y"


def test_a_poisoned_value_keeps_no_other_label_away(api: FakeApi, agent: SimulatedAgent) -> None:
    agent.extra = {"a.io/extra": "not valid", "a.io/other": "y"}
    agent.scan()
    agent.run(GAP_S)
    assert (api.labels["a.io/other"], api.labels["a.io/extra"]) == ("y", "x")
    assert agent.labelling.refused == 1
    patches = len(api.patches)
    agent.run(3600)
    assert len(api.patches) == patches


def test_a_node_created_anew_gets_its_labels_within_ten_seconds(
    api: FakeApi, agent: SimulatedAgent
) -> None:
    agent.run(60)
    agent.see(api)
    api.uid, api.labels, api.owners = "uid-2", {}, {}
    agent.see(api)
    agent.run(10)
    assert api.labels[COUNT] == "8"


@pytest.mark.parametrize("was_seen", [False, True])
def test_a_node_that_was_long_gone_gets_its_labels_when_it_comes(
    api: FakeApi, *, was_seen: bool
) -> None:
    api.node = "not-yet"
    agent = SimulatedAgent(node(api), spread=most)
    agent.scan()
    agent.run(3600)
    if was_seen:
        agent.see(FakeApi(uid="uid-0"))
        agent.run(60)
    api.node = "gpu-1"
    agent.see(api)
    agent.run(10)
    assert api.labels[COUNT] == "8"


def test_a_node_is_found_anew_without_a_watch_too(api: FakeApi, agent: SimulatedAgent) -> None:
    api.uid, api.labels, api.owners = "uid-2", {}, {}
    agent.run(RECHECK_S[0])
    assert api.labels[COUNT] == "8"


def test_a_label_that_somebody_changes_is_put_back_within_ten_seconds(
    api: FakeApi, agent: SimulatedAgent
) -> None:
    agent.run(60)
    api.set_by("admin", {COUNT: "1"})
    agent.see(api)
    agent.run(10)
    assert api.labels[COUNT] == "8"


def test_what_others_do_to_their_own_labels_asks_nothing(
    api: FakeApi, agent: SimulatedAgent
) -> None:
    agent.run(60)
    api.reads.clear()
    api.set_by("kubelet", {"kubernetes.io/os": "linux"})
    agent.see(api)
    agent.run(60)
    assert api.reads == []


def test_two_writers_that_insist_write_ever_less(api: FakeApi, agent: SimulatedAgent) -> None:
    for _ in range(3600):
        if api.labels[COUNT] == "8":
            api.set_by("other", {COUNT: "1"})
            agent.see(api)
        agent.run(1)
    assert 12 <= agent.labelling.writes <= 18


def test_a_quarrel_that_is_over_is_forgotten(api: FakeApi, agent: SimulatedAgent) -> None:
    for _ in range(600):
        api.set_by("other", {COUNT: "1"})
        agent.see(api)
        agent.run(1)
    agent.run(3600)  # the other one has left
    for pause_s in (GAP_S, 2 * GAP_S):
        api.set_by("admin", {COUNT: "1"})
        agent.see(api)
        agent.run(pause_s)
        assert api.labels[COUNT] == "8"


def test_a_file_alone_needs_no_api_server_and_no_watch(tmp_path: Path) -> None:
    agent = SimulatedAgent(NfdFile(tmp_path / "nodetopo"))
    agent.scan()
    agent.run(0)
    assert not agent.labelling.needs_watch
    assert (agent.labelling.writes, agent.labelling.errors) == (1, 0)
