"""What restarts, upgrades and a lost directory do to the node: ``docs/internals/faults.md``."""

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from nodetopo.deviceplugin.registration import RegistrationClient, RegistrationError
from tests.budget import cases
from tests.lab import namespace
from tests.lab.cluster import Cluster
from tests.lab.machine_node import Node
from tests.lab.node_agent import REPOSITORY, NodeAgent
from tests.lab.pods import GPU, guaranteed
from tests.lab.waiting import wait_for

pytestmark = pytest.mark.lab

_RESTARTS = cases(6, 20)
REGISTER_S = 60.0


@pytest.fixture
def newcomer(v100: Node, tmp_path: Path) -> Iterator[NodeAgent]:
    """Return a second daemon on the node; it is for the test to start."""
    agent = v100.another_agent("newcomer", tmp_path)
    yield agent
    agent.end()


def test_after_each_of_many_kubelet_restarts_the_same_gpus_are_there(v100: Node) -> None:
    gpus = v100.healthy(GPU)
    logged = len(v100.agent.log_since_start())
    for _ in range(_RESTARTS):
        before = v100.agent.registrations()
        v100.restart_kubelet()
        _wait_registrations(v100, v100.agent, before + 1)
        v100.wait_allocatable(GPU, 8)

        assert v100.healthy(GPU) == gpus
    assert _warnings(v100.agent.log_since_start()[logged:]) == []


def test_gpus_stay_allocatable_when_the_sockets_directory_is_emptied(
    cluster: Cluster, v100: Node
) -> None:
    gpus, before = v100.healthy(GPU), v100.agent.plugin_socket()
    cluster.pods.run(guaranteed("old", v100.name, {GPU: 2}))

    for entry in v100.agent.socket_dir.iterdir():
        entry.unlink()
    wait_for(
        "the daemon has made another socket",
        lambda: set(v100.agent.socket_dir.glob("*.sock")) - {before},
        evidence=v100.logs,
    )

    # Without kubelet.sock nobody can register, and the kubelet makes it when it starts.
    v100.wait_settled(GPU, 8)
    assert v100.healthy(GPU) == gpus
    cluster.pods.run(guaranteed("new", v100.name, {GPU: 6}))
    held = v100.given("old"), v100.given("new")
    registrations = v100.agent.registrations()
    v100.restart_kubelet()
    _wait_registrations(v100, v100.agent, registrations + 1)
    v100.wait_allocatable(GPU, 8)
    _wait_given(v100, {"old": held[0], "new": held[1]})


def test_gpus_stay_allocatable_when_the_daemons_socket_is_removed(
    cluster: Cluster, v100: Node
) -> None:
    """The kubelet would drop the new socket if the stream of the old one ended (1.36)."""
    registrations = v100.agent.registrations()
    logged = len(v100.agent.log_since_start())
    v100.agent.plugin_socket().unlink()

    _wait_registrations(v100, v100.agent, registrations + 1)

    v100.wait_settled(GPU, 8)
    cluster.pods.run(guaranteed("job", v100.name, {GPU: 8}))
    assert "device list stream lost" not in v100.agent.log_since_start()[logged:]


def test_a_checkpoint_that_is_deleted_is_written_again_with_the_next_allocation(
    cluster: Cluster, v100: Node
) -> None:
    cluster.pods.run(guaranteed("old", v100.name, {GPU: 2}))
    v100.agent.socket_dir.joinpath("kubelet_internal_checkpoint").unlink()
    cluster.pods.run(guaranteed("new", v100.name, {GPU: 6}))
    held = {name: v100.given(name) for name in ("old", "new")}

    v100.restart_kubelet()

    v100.wait_allocatable(GPU, 8)
    _wait_given(v100, held)


def test_a_kubelet_that_starts_without_its_checkpoint_gives_held_gpus_again(
    cluster: Cluster, v100: Node
) -> None:
    """What no plugin can prevent: the kubelet says which devices are free."""
    cluster.pods.run(guaranteed("old", v100.name, {GPU: 4}))
    ((*held,),) = v100.given("old").values()
    v100.kill_kubelet()
    v100.agent.socket_dir.joinpath("kubelet_internal_checkpoint").unlink()

    v100.start_kubelet()
    v100.wait_allocatable(GPU, 8)
    cluster.pods.run(guaranteed("new", v100.name, {GPU: 4}))

    assert (cluster.pods.phase("old"), v100.given("old")) == ("Running", {})
    ((*again,),) = v100.given("new").values()
    assert again == held


def test_a_second_daemon_takes_over_when_the_first_one_ends(
    cluster: Cluster, v100: Node, newcomer: NodeAgent
) -> None:
    """Up to 1.36 the kubelet drops the newer plugin when the older one ends (issue 121994)."""
    cluster.pods.run(guaranteed("old", v100.name, {GPU: 2}))
    before = v100.given("old")

    newcomer.start()
    _wait_registrations(v100, newcomer, 1)
    registrations = newcomer.registrations()
    v100.agent.stop()

    is_dropped = cluster.release.kubelet < (1, 37)
    if is_dropped:
        _wait_registrations(v100, newcomer, registrations + 1)
    wait_for("all GPUs are healthy", lambda: len(v100.healthy(GPU)) == 8, evidence=v100.logs)
    v100.wait_allocatable(GPU, 8)
    cluster.pods.run(guaranteed("new", v100.name, {GPU: 6}))
    assert (cluster.pods.phase("old"), v100.given("old")) == ("Running", before)
    assert is_dropped or newcomer.registrations() == registrations


def test_what_registers_a_connected_socket_again_does_not_take_its_gpus(
    cluster: Cluster, v100: Node
) -> None:
    """Kubelets since 1.37 refuse it, and then go by what they knew of that socket before."""
    before = v100.agent.registrations()
    kubelet = RegistrationClient(v100.agent.socket_dir / "kubelet.sock", REGISTER_S)
    if cluster.release.kubelet < (1, 37):
        kubelet.register(GPU, v100.agent.plugin_socket().name)
    else:
        with pytest.raises(RegistrationError, match="device plugin already connected"):
            kubelet.register(GPU, v100.agent.plugin_socket().name)

    cluster.pods.run(guaranteed("job", v100.name, {GPU: 8}))
    v100.restart_kubelet()
    _wait_registrations(v100, v100.agent, before + 1)
    v100.wait_allocatable(GPU, 8)
    assert "already connected" not in v100.agent.log_since_start()


def test_the_daemon_finds_the_sockets_directory_that_was_removed_and_made_anew(
    cluster: Cluster, v100: Node
) -> None:
    v100.kill_kubelet()
    before = v100.agent.registrations()
    # Moved away first: the daemon, which looks often, may make a socket while others are removed.
    removed = v100.agent.socket_dir.rename(v100.kubelet_dir / "removed")
    shutil.rmtree(removed)

    v100.start_kubelet()

    _wait_registrations(v100, v100.agent, before + 1)
    v100.wait_allocatable(GPU, 8)
    cluster.pods.run(guaranteed("job", v100.name, {GPU: 8}))


def test_another_version_and_back_changes_neither_ids_nor_what_a_pod_holds(
    cluster: Cluster, v100: Node, tmp_path: Path
) -> None:
    cluster.pods.run(guaranteed("job", v100.name, {GPU: 3}))
    before = (v100.checkpoint(), v100.healthy(GPU), v100.given("job"))

    for code in (_next_version(tmp_path), REPOSITORY):
        v100.agent.stop()
        v100.wait_allocatable(GPU, 0)
        v100.agent.start(code=code)
        v100.wait_allocatable(GPU, 8)

        assert (v100.checkpoint(), v100.healthy(GPU), v100.given("job")) == before
        assert cluster.pods.phase("job") == "Running"


def test_the_daemon_serves_from_a_read_only_root(cluster: Cluster, v100: Node) -> None:
    flags = namespace.unshare_flags()
    assert flags is not None
    v100.agent.stop()

    remount = 'mount -o remount,bind,ro / && ! touch /probe 2>&1 && exec "$@"'
    v100.agent.start(
        ["--health-file", "/run/nodetopo-lab/health.json"],
        prefix=("unshare", *flags, "sh", "-c", remount, "read-only"),
    )

    _wait_registrations(v100, v100.agent, 1)
    v100.wait_allocatable(GPU, 8)
    cluster.pods.run(guaranteed("job", v100.name, {GPU: 8}))


def _wait_registrations(node: Node, agent: NodeAgent, times: int) -> None:
    wait_for(
        f"the daemon has registered {times} times",
        lambda: agent.registrations() >= times,
        evidence=lambda: f"{node.logs()}\n{agent.log_since_start()}",
    )


def _wait_given(node: Node, held: Mapping[str, Mapping[str, tuple[str, ...]]]) -> None:
    """Wait until the kubelet lists the pods of *held* with the GPUs that they have there."""
    wait_for(
        "the kubelet lists what pods hold",
        lambda: all(node.given(pod) == ids for pod, ids in held.items()),
        evidence=node.logs,
    )


def _warnings(log: str) -> list[str]:
    """Return the lines of *log* that are warnings or worse."""
    return [line for line in log.splitlines() if json.loads(line)["level"] not in ("debug", "info")]


def _next_version(directory: Path) -> Path:
    """Return a directory with our code that calls itself another version."""
    shutil.copytree(
        REPOSITORY / "agent", directory / "agent", ignore=shutil.ignore_patterns("__pycache__")
    )
    init = directory / "agent" / "nodetopo" / "__init__.py"
    text = init.read_text("utf-8")
    changed = text.replace('__version__ = "', '__version__ = "99.')
    assert changed != text
    init.write_text(changed, "utf-8")
    return directory
