"""The settings that the kubelet runs with, beside those of its files."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from nodetopo.errors import UnreadableError
from nodetopo.model.kubelet import KubeletSettings
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.model.snapshot import Snapshot
from nodetopo.probes.kubelet.api import AGAIN_S, RETRY_S, RunningKubelet, with_running

ON_DISK = KubeletSettings(
    source="/k",
    origins={"cpuManagerPolicy": "/k"},
    embedded_in="rke2",
    changed_since_start=("/k",),
    root_directory="/r",
    version="v1.34.1",
    cpu_manager_policy="none",
)
RUNNING = KubeletSettings(source="configz", cpu_manager_policy="static")
REFUSED = "HTTP 403 Forbidden"


def test_what_the_kubelet_answers_takes_the_place_of_its_files() -> None:
    found = with_running(Snapshot(kubelet=ON_DISK), RUNNING)
    running = replace(RUNNING, embedded_in="rke2", root_directory="/r", version="v1.34.1")
    assert found == Snapshot(kubelet=running, kubelet_on_disk=ON_DISK)


def test_files_count_where_the_kubelet_does_not_answer() -> None:
    found = with_running(Snapshot(kubelet=ON_DISK), None)
    assert found == Snapshot(kubelet=ON_DISK, kubelet_on_disk=ON_DISK)


def test_a_kubelet_that_answers_needs_no_files() -> None:
    assert with_running(Snapshot(), RUNNING) == Snapshot(kubelet=RUNNING)


class Kubelet:
    """One that starts, and answers or does not."""

    def __init__(self, home: Path) -> None:
        self.socket = home / "kubelet.sock"
        self.policy: str | None = "static"
        self.asked = 0
        self.now = 0.0
        self.start()

    def start(self) -> None:
        """Make the socket anew."""
        fresh = self.socket.with_suffix(".new")
        fresh.touch()
        fresh.replace(self.socket)

    def configz(self) -> str:
        """Answer as the kubelet does."""
        self.asked += 1
        if self.policy is None:
            raise UnreadableError(REFUSED, "grant it")
        kind = {"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1"}
        return json.dumps({"kubeletconfig": {**kind, "cpuManagerPolicy": self.policy}})


@pytest.fixture
def kubelet(tmp_path: Path) -> Kubelet:
    return Kubelet(tmp_path)


@pytest.fixture
def running(kubelet: Kubelet) -> RunningKubelet:
    return RunningKubelet(kubelet.configz, kubelet.socket, clock=lambda: kubelet.now)


def policy(running: RunningKubelet) -> str | None:
    found = running.put_into(Snapshot(kubelet=ON_DISK)).kubelet
    return None if found is None else found.cpu_manager_policy


def test_it_is_asked_once_a_day(kubelet: Kubelet, running: RunningKubelet) -> None:
    assert policy(running) == "static"
    kubelet.policy = "none"
    kubelet.now = AGAIN_S - 1
    assert (policy(running), kubelet.asked) == ("static", 1)
    kubelet.now = AGAIN_S
    assert (policy(running), kubelet.asked) == ("none", 2)


def test_the_kubelet_is_asked_again_after_a_restart(
    kubelet: Kubelet, running: RunningKubelet
) -> None:
    policy(running)
    kubelet.policy = "none"
    kubelet.start()
    assert (policy(running), kubelet.asked) == ("none", 2)


def test_the_gap_of_a_start_changes_nothing(kubelet: Kubelet, running: RunningKubelet) -> None:
    policy(running)
    kubelet.socket.unlink()
    assert (policy(running), kubelet.asked) == ("static", 1)


def test_a_refusal_is_an_issue_and_asked_again_after_a_while(
    kubelet: Kubelet, running: RunningKubelet
) -> None:
    kubelet.policy = None
    found = running.put_into(Snapshot(kubelet=ON_DISK))
    assert found.kubelet == ON_DISK
    assert found.issues == (ProbeIssue(probe="kubelet", subject="configz", reason=REFUSED),)
    kubelet.now = RETRY_S - 1
    running.put_into(Snapshot())
    assert kubelet.asked == 1
    kubelet.policy, kubelet.now = "static", RETRY_S
    assert running.put_into(Snapshot(kubelet=ON_DISK)).issues == ()


def test_a_kubelet_that_stops_answering_is_taken_at_its_last_word(
    kubelet: Kubelet, running: RunningKubelet
) -> None:
    policy(running)
    kubelet.policy, kubelet.now = None, AGAIN_S
    assert policy(running) == "static"


def test_files_count_after_a_restart_without_an_answer(
    kubelet: Kubelet, running: RunningKubelet
) -> None:
    policy(running)
    kubelet.policy = None
    kubelet.start()
    assert policy(running) == "none"
