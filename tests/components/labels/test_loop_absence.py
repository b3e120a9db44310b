"""What takes a label off, and what does not."""

import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from nodetopo.components.labels.loop import AbsenceProof, DesiredLabelsBuilder, NodeTiers
from nodetopo.components.labels.outputs.nfd import NfdFile
from nodetopo.components.labels.outputs.pacing import GAP_S
from nodetopo.kernel.settings.declare import Settings
from nodetopo.model.gpu import Gpu
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.model.snapshot import Snapshot
from tests.components.labels.label_simulation import COUNT, DGX, LABELS, SimulatedAgent, node
from tests.deviceplugin.eventually import eventually
from tests.kubeapi.fake_api_server import FakeApi


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


def test_one_complete_scan_removes_nothing(api: FakeApi, agent: SimulatedAgent) -> None:
    agent.extra = {}
    agent.scan()
    agent.run(3600)
    assert "a.io/extra" in api.labels


def test_a_second_complete_scan_removes_what_both_lack(api: FakeApi, agent: SimulatedAgent) -> None:
    agent.extra = {}
    agent.scan()
    agent.run(60)
    agent.scan()
    agent.run(GAP_S)
    assert "a.io/extra" not in api.labels


def test_what_was_left_by_an_agent_before_goes_at_the_second_scan(api: FakeApi) -> None:
    api.set_by("nodetopo", {"a.io/old": "x"})
    agent = SimulatedAgent(node(api))
    agent.scan()
    agent.run(60)
    assert "a.io/old" in api.labels
    agent.scan()
    agent.run(GAP_S)
    assert "a.io/old" not in api.labels


@pytest.mark.parametrize(
    "doubtful",
    [
        replace(DGX, issues=(ProbeIssue(probe="nvml", subject="0", reason="lost"),)),
        replace(DGX, gpus=(replace(DGX.gpus[0], is_lost=True), *DGX.gpus[1:])),
    ],
    ids=["nvml does not answer", "a GPU is lost"],
)
def test_scans_in_doubt_remove_nothing(
    api: FakeApi, agent: SimulatedAgent, doubtful: Snapshot
) -> None:
    agent.extra = {}
    for _ in range(5):
        agent.scan(doubtful)
        agent.run(60)
    assert "a.io/extra" in api.labels


def test_gpus_on_the_bus_that_are_not_listed_lose_no_label(api: FakeApi) -> None:
    settings = Settings(node_name="gpu-1")
    wishes = DesiredLabelsBuilder(lambda: settings, NodeTiers(settings), lambda _: None)
    agent = SimulatedAgent(node(api), wishes=wishes)
    agent.scan()
    agent.run(60)
    bare = replace(DGX, gpus=())  # as in a container that may not open their devices
    for _ in range(5):
        agent.scan(bare)
        agent.run(60)
    assert api.labels.items() >= LABELS.items()
    for _ in range(2):
        agent.scan(replace(bare, pci_gpus=()))
        agent.run(60)
    assert COUNT not in api.labels


def test_a_scan_in_doubt_between_two_complete_ones_starts_the_proof_anew(
    api: FakeApi, agent: SimulatedAgent
) -> None:
    agent.extra = {}
    issue = ProbeIssue(probe="nvml", subject="0", reason="lost")
    for snapshot in (DGX, replace(DGX, issues=(issue,)), DGX):
        agent.scan(snapshot)
        agent.run(60)
    assert "a.io/extra" in api.labels


def test_a_label_that_comes_and_goes_is_not_removed() -> None:
    evidence = AbsenceProof()
    for keys in ({"a", "b"}, {"a"}, {"a", "b"}, {"a"}):
        evidence.add(replace(DGX), frozenset(keys))
        assert not evidence.is_proven


def test_one_scan_seen_by_other_settings_is_no_second_one() -> None:
    evidence, scan = AbsenceProof(), replace(DGX)
    for _ in range(3):
        evidence.add(scan, frozenset({"a"}))
        assert not evidence.is_proven
    evidence.add(replace(DGX), frozenset({"a"}))
    assert evidence.is_proven
    evidence.add(scan, frozenset({"a"}))
    assert evidence.is_proven
    evidence.add(scan, frozenset({"a", "b"}))
    assert not evidence.is_proven


def test_settings_that_change_remove_nothing_before_the_next_scan(api: FakeApi) -> None:
    api.set_by("nodetopo", {"a.io/old": "x"})
    agent = SimulatedAgent(node(api))
    agent.scan()
    agent.run(60)
    agent._asked = None  # other settings: the desired is made anew
    agent.run(600)
    assert "a.io/old" in api.labels
    agent.scan()
    agent.run(GAP_S)
    assert "a.io/old" not in api.labels


def test_a_stop_removes_nothing_from_any_output(api: FakeApi, tmp_path: Path) -> None:
    file = NfdFile(tmp_path / "nodetopo")
    agent = SimulatedAgent(node(api), file)
    agent.scan()
    stopping = threading.Event()
    thread = threading.Thread(target=agent.labelling.run, args=(stopping,))
    thread.start()
    assert eventually(lambda: COUNT in api.labels and (tmp_path / "nodetopo").exists())
    before = (dict(api.labels), (tmp_path / "nodetopo").read_text())
    stopping.set()
    agent.store.close()
    thread.join(120)
    assert not thread.is_alive()
    assert (api.labels, (tmp_path / "nodetopo").read_text()) == before


def test_one_output_that_fails_keeps_no_other_waiting(api: FakeApi, tmp_path: Path) -> None:
    api.fail_with = (503, {})
    agent = SimulatedAgent(node(api), NfdFile(tmp_path / "nodetopo"))
    agent.scan()
    agent.run(60)
    assert f"{COUNT}=8\n" in (tmp_path / "nodetopo").read_text()
    assert agent.labelling.errors == len(api.reads) > 1


def all_lost(*, is_first: bool) -> Snapshot:
    """Return DGX with every GPU lost; *is_first*: before anything was read of them."""
    gpus = (Gpu(index=gpu.index) if is_first else gpu for gpu in DGX.gpus)
    return replace(
        DGX, gpus=tuple(replace(gpu, is_lost=True) for gpu in gpus), nvlinks=None, pairs=()
    )


def daemon(api: FakeApi) -> SimulatedAgent:
    """Return an agent with the labels of the product, just started."""
    settings = Settings(node_name="gpu-1")
    wishes = DesiredLabelsBuilder(lambda: settings, NodeTiers(settings), lambda _: None)
    return SimulatedAgent(node(api), wishes=wishes)


def test_labels_that_lost_gpus_decide_stay_over_a_restart_as_well(api: FakeApi) -> None:
    agent = daemon(api)
    agent.scan()
    agent.run(60)
    expected = LABELS | {"gpu.topology/topology-ok": "false"}
    for agent_now, is_first in ((agent, False), (daemon(api), True)):
        for _ in range(3):
            agent_now.scan(all_lost(is_first=is_first))
            agent_now.run(60)
        assert {key: api.labels.get(key) for key in expected} == expected


def test_labels_that_lost_gpus_decide_are_absent_on_a_first_start(api: FakeApi) -> None:
    agent = daemon(api)
    agent.scan(all_lost(is_first=True))
    agent.run(60)
    decided = ("nvlink-islands", "nvlink-domain-size", "interconnect", "mig-enabled")
    assert {f"gpu.topology/{name}" for name in decided}.isdisjoint(api.labels)
    assert {COUNT, "nvidia.com/mig.capable", "nvidia.com/gpu.mode"}.isdisjoint(api.labels)
    assert api.labels["gpu.topology/topology-ok"] == "false"
