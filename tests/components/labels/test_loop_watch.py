"""What a watch of the Node means for its labels."""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nodetopo.components.labels.loop import LabelsLoop
from nodetopo.components.labels.outputs.nfd import NfdFile
from nodetopo.components.labels.outputs.pacing import GAP_S, START_S
from nodetopo.kernel.settings.declare import Settings
from nodetopo.kernel.store import SnapshotStore
from nodetopo.kubeapi.watch import NodeWatch
from tests.components.labels.label_simulation import COUNT, DGX, SimulatedAgent, least, most, node
from tests.deviceplugin.eventually import eventually
from tests.kubeapi.fake_api_server import FakeApi, Reply
from tests.kubeapi.fake_watch import FakeWatch, watched


class Tier(SimulatedAgent):
    """Notes the labels that the Node is said to have."""

    def note(self, node_labels: Mapping[str, str]) -> None:
        """Take them for labels of ours."""
        self.extra = dict(node_labels)


class Busy(FakeApi):
    """A server on which *meddle* is called while an answer to our write is under way."""

    meddle = staticmethod(lambda: None)

    def apply(self, query: Mapping[str, str], body: Mapping[str, Any]) -> Reply:
        """Store, have somebody meddle once, and answer."""
        answer = super().apply(query, body)
        meddle, self.meddle = self.meddle, lambda: None
        meddle()
        return answer


def test_the_watch_of_the_node_leads_to_the_labels_being_put_back(tmp_path: Path) -> None:
    seen = FakeWatch()
    seen.label(**{COUNT: "1"})
    with watched(seen, tmp_path) as kubeconfig:
        store = SnapshotStore()
        labelling = LabelsLoop(
            Settings(node_name="gpu-1", kubeconfig=kubeconfig),
            store,
            outputs=(node(FakeApi()),),
            desired=SimulatedAgent(),
            spread=least,
        )
        store.publish(DGX)
        stopping = threading.Event()
        thread = threading.Thread(target=labelling.run, args=(stopping,))
        thread.start()
        try:
            assert eventually(lambda: seen.open == 1)
            assert eventually(lambda: labelling._lanes[0]._is_disturbed)
        finally:
            stopping.set()
            store.close()
            thread.join(120)
    assert not thread.is_alive()


def test_a_watch_that_has_seen_the_node_before_tells_of_it_at_once() -> None:
    watch = NodeWatch(None, "gpu-1")
    watch.take(
        "MODIFIED", {"metadata": {"name": "gpu-1", "uid": "uid-1", "labels": {"a.io/rack": "r1"}}}
    )
    wishes = Tier()
    LabelsLoop(
        Settings(node_name="gpu-1"), SnapshotStore(), outputs=(), desired=wishes, watch=watch
    )
    assert wishes.extra == {"a.io/rack": "r1"}


def test_what_somebody_changes_in_the_middle_of_our_write_is_put_back() -> None:
    api = Busy()
    agent = SimulatedAgent(node(api))

    def meddle() -> None:
        api.set_by("admin", {COUNT: "1"})
        agent.see(api)  # before our own answer is there

    api.meddle = meddle
    agent.scan()
    agent.run(0)
    assert api.labels[COUNT] == "1"
    agent.run(GAP_S)
    assert api.labels[COUNT] == "8"


def test_what_a_watch_saw_of_our_own_write_asks_nothing() -> None:
    api = Busy()
    agent = SimulatedAgent(node(api))
    api.meddle = lambda: agent.see(api)
    agent.scan()
    agent.run(0)
    api.reads.clear()
    agent.run(20 * GAP_S)
    assert api.reads == []


def test_what_nfd_took_away_with_a_node_is_back_with_the_node(tmp_path: Path) -> None:
    path = tmp_path / "nodetopo"
    agent = SimulatedAgent(NfdFile(path, pause=lambda _: None), spread=most)
    agent.scan()
    agent.run(60)
    agent.see(FakeApi())
    path.unlink()
    agent.run(60)
    assert not path.exists()
    agent.see(FakeApi(uid="uid-2"))
    agent.run(START_S)
    assert path.exists()


def test_a_node_created_anew_is_looked_at_though_it_has_all_its_labels() -> None:
    api = FakeApi()
    agent = SimulatedAgent(node(api), spread=most)
    agent.scan()
    agent.run(60)
    agent.see(api)
    agent.run(60)
    api.reads.clear()
    api.uid = "uid-2"
    agent.see(api)
    agent.run(START_S)
    assert len(api.reads) == 1


def test_agents_that_need_the_node_do_not_follow_it_all_at_once() -> None:
    agent = SimulatedAgent(node(FakeApi()), spread=most)
    agent.needs_node = True
    agent.now = START_S - 0.1
    assert not agent.labelling.needs_watch
    agent.now = START_S
    assert agent.labelling.needs_watch
