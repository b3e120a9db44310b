"""What the driver and the hardware do to the node; the list is ``docs/internals/faults.md``."""

from pathlib import Path

import pytest

from tests.fake_nvml.build import library
from tests.lab.audit import moment
from tests.lab.cluster import Cluster
from tests.lab.go_program import user_cache
from tests.lab.machine_node import Node
from tests.lab.pods import GPU, guaranteed
from tests.lab.waiting import wait_for

pytestmark = pytest.mark.lab


def test_pods_are_admitted_while_the_nvml_child_is_frozen(cluster: Cluster, v100: Node) -> None:
    with v100.agent.frozen(child=True):
        for name, gpus in (("one", 1), ("two", 2), ("four", 4)):
            cluster.pods.run(guaranteed(name, v100.name, {GPU: gpus}))

        assert len(v100.healthy(GPU)) == 8


def test_a_daemon_that_starts_before_the_driver_offers_the_gpus_once_there_is_one(
    cluster: Cluster, v100: Node, tmp_path: Path
) -> None:
    v100.agent.stop()
    driver = tmp_path / "driver"
    v100.agent.start(["--nvml-library", str(driver)])
    v100.wait_allocatable(GPU, 0)
    wait_for("a scan is over", lambda: "snapshot published" in v100.agent.log_since_start())
    assert v100.agent.registrations() == 0

    driver.symlink_to(library(user_cache()))

    # The same process: it would be seen to have ended.
    v100.wait_allocatable(GPU, 8)
    cluster.pods.run(guaranteed("job", v100.name, {GPU: 8}))


def test_a_gpu_in_the_place_of_another_gets_an_id_of_its_own(cluster: Cluster, v100: Node) -> None:
    cluster.pods.run(guaranteed("job", v100.name, {GPU: 1}))
    ((old,),) = v100.given("job").values()
    others = v100.healthy(GPU) - {old}
    new = "GPU-00000000-0000-4000-8000-0000000000ff"
    slot = int(old.rpartition("-")[2])

    v100.agent.change_answer(f"nvmlDeviceGetUUID {slot}", f"0 {new}")

    wait_for(
        "the new GPU is healthy and the old one is not",
        lambda: v100.healthy(GPU) == others | {new},
        evidence=v100.logs,
    )
    assert v100.given("job")["work"] == (old,)
    v100.wait_allocatable(GPU, 8)
    cluster.pods.delete("job")
    cluster.pods.run(guaranteed("next", v100.name, {GPU: 8}))
    assert set(v100.given("next")["work"]) == others | {new}


def test_xid_79_takes_every_replica_of_its_gpu_out_and_no_other(v100: Node) -> None:
    v100.agent.stop()
    v100.agent.start(["--time-slicing", f"{GPU}=4"])
    v100.wait_allocatable(GPU, 32)
    before = v100.healthy(GPU)

    v100.agent.xid(3, 79)

    v100.wait_allocatable(GPU, 28)
    (gone,) = {name.partition("::")[0] for name in before - v100.healthy(GPU)}
    assert gone.endswith("3")
    assert v100.capacity(GPU) == 32


def test_the_daemon_lists_nothing_and_watches_what_is_of_its_own_node(
    cluster: Cluster, v100: Node
) -> None:
    """A LIST per node and minute is a storm on a large cluster."""
    v100.agent.stop()
    start = moment()
    v100.agent.start()
    # The watch and the first look start each at a moment of its own, in either order.
    wait_for(
        "the daemon has looked at its Node and watches it",
        lambda: {"get", "watch"} <= set(cluster.control_plane.agent_verbs(v100.name, start)),
        evidence=v100.logs,
    )

    asked = cluster.control_plane.agent_requests(start)
    assert {verb for verb, _ in asked} <= {"get", "patch", "create", "watch"}
    assert {kind for verb, kind in asked if verb == "watch"} <= {"nodes", "resourceslices"}
    assert asked["get", "nodes"] >= 1
