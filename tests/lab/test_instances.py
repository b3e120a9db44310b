"""Several instances of the daemon on one node: its GPUs stay, whoever ends, in which order."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import pytest

from nodetopo.errors import UnreadableError
from tests.lab.api import ApiError
from tests.lab.cluster import Cluster
from tests.lab.machine_node import Node
from tests.lab.node_agent import REPOSITORY, NodeAgent
from tests.lab.pods import GPU, guaranteed
from tests.lab.test_faults_lifecycle import _next_version
from tests.lab.waiting import wait_for

pytestmark = pytest.mark.lab

_LOOK_S = 0.02


@dataclass
class Watched:
    """How long a node was without some of its GPUs, by the kubelet's own list.

    Attributes:
        away_s: the longest time without a break.
        away: how often that began.
    """

    away_s: float = 0.0
    away: int = 0
    _since: float | None = None

    def note(self, now: float, *, is_complete: bool) -> None:
        """Take one look at the list."""
        if is_complete:
            self._since = None
            return
        if self._since is None:
            self._since, self.away = now, self.away + 1
        self.away_s = max(self.away_s, now - self._since)


@contextmanager
def watched(node: Node) -> Iterator[Watched]:
    """Look at what the kubelet lists until the end of the block."""
    found, over = Watched(), threading.Event()

    def look() -> None:
        while not over.wait(_LOOK_S):
            try:
                is_complete = len(node.healthy(GPU)) == 8
            except (UnreadableError, ApiError):
                continue
            found.note(monotonic(), is_complete=is_complete)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


@pytest.fixture
def start(v100: Node, tmp_path: Path) -> Iterator[Callable[..., NodeAgent]]:
    """Start further instances, each with files of its own; end them all afterwards."""
    started: list[NodeAgent] = []

    def begin(*arguments: str, code: Path = REPOSITORY) -> NodeAgent:
        home = tmp_path / f"home-{len(started)}"
        home.mkdir()
        agent = v100.another_agent(f"instance-{len(started)}", home)
        started.append(agent)
        agent.start(arguments, code=code)
        wait_for("it has registered", lambda: agent.registrations() > 0, evidence=v100.logs)
        return agent

    yield begin
    for agent in started:
        agent.end()


Ended = Callable[[NodeAgent], None]
HOW = pytest.mark.parametrize("end", [NodeAgent.stop, NodeAgent.kill], ids=["ends", "killed"])


def _settled(cluster: Cluster, node: Node, name: str) -> None:
    """Wait until all GPUs are there and stay, and a pod gets all but two."""
    node.wait_settled(GPU, 8)
    cluster.pods.run(guaranteed(name, node.name, {GPU: 6}))


@HOW
def test_gpus_are_back_when_the_newer_of_two_instances_ends(
    cluster: Cluster, v100: Node, start: Callable[..., NodeAgent], end: Ended
) -> None:
    """The kubelet stops its newest plugin, and the stream of the older one stays open."""
    cluster.pods.run(guaranteed("old", v100.name, {GPU: 2}))
    held = v100.given("old")
    newer = start()
    before = v100.agent.registrations()
    with watched(v100) as seen:
        end(newer)
        wait_for(
            "the older one registers again",
            lambda: v100.agent.registrations() > before,
            evidence=v100.logs,
        )
        _settled(cluster, v100, "new")
    print(f"newer of two, {end.__name__}: {seen}")
    assert v100.given("old") == held


@HOW
def test_gpus_are_back_when_the_older_of_two_instances_ends(
    cluster: Cluster, v100: Node, start: Callable[..., NodeAgent], end: Ended
) -> None:
    """Up to 1.36 the kubelet stops its newest plugin; since 1.37 only the one that ended."""
    newer = start()
    before = newer.registrations()
    is_dropped = cluster.release.kubelet < (1, 37)
    with watched(v100) as seen:
        end(v100.agent)
        if is_dropped:
            wait_for(
                "the newer one registers again",
                lambda: newer.registrations() > before,
                evidence=v100.logs,
            )
        _settled(cluster, v100, "new")
    print(f"older of two, {end.__name__}: {seen}")
    assert is_dropped or (newer.registrations(), seen.away) == (before, 0)


@HOW
@pytest.mark.parametrize("order", [(2, 1), (1, 2), (0, 1), (2, 0)], ids=str)
def test_gpus_are_back_whichever_of_three_instances_end(
    cluster: Cluster,
    v100: Node,
    start: Callable[..., NodeAgent],
    end: Ended,
    order: tuple[int, int],
) -> None:
    instances = [v100.agent, start(), start()]
    for number in order:
        with watched(v100) as seen:
            end(instances[number])
            v100.wait_settled(GPU, 8)
        print(f"{number} of three, {end.__name__}, order {order}: {seen}")
    _settled(cluster, v100, "new")


def test_gpus_are_back_after_a_rollback_with_a_surge(
    cluster: Cluster, v100: Node, start: Callable[..., NodeAgent], tmp_path: Path
) -> None:
    """Another version starts beside the old one, is taken back, and this one starts again."""
    other = start(code=_next_version(tmp_path))
    with watched(v100) as seen:
        v100.agent.stop()
        v100.wait_settled(GPU, 8)
        v100.agent.start()
        wait_for("registered", lambda: v100.agent.registrations() > 0, evidence=v100.logs)
        other.stop()
        v100.wait_settled(GPU, 8)
    print(f"surge and rollback: {seen}")
    _settled(cluster, v100, "new")


def test_manifests_and_chart_at_once_share_their_state_and_the_node_keeps_its_gpus(
    cluster: Cluster, v100: Node, start: Callable[..., NodeAgent]
) -> None:
    """Both DaemonSets mount /run/nodetopo of the host."""
    chart = start("--health-file", v100.agent.settings()["health-file"])
    v100.wait_settled(GPU, 8)
    with watched(v100) as seen:
        chart.stop()
        v100.wait_settled(GPU, 8)
    print(f"manifests and chart: {seen}")
    _settled(cluster, v100, "new")


def test_once_beside_the_daemon_registers_nothing(
    cluster: Cluster, v100: Node, tmp_path: Path
) -> None:
    once = v100.another_agent("once", tmp_path)
    before = v100.agent.registrations()
    with watched(v100) as seen:
        once.start(["--once"])
        shown = once.wait_ended()
        v100.wait_settled(GPU, 8)
    assert shown == 0, v100.logs()
    assert once.registrations() <= 1  # with the stand-in
    assert (v100.agent.registrations(), seen.away) == (before, 0)
    _settled(cluster, v100, "new")
