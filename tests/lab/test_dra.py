"""Our DRA driver on a real kubelet: from slices by the stock scheduler to names for the runtime."""

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pytest

from nodetopo.allocation.allocator import Allocator
from nodetopo.components.dra.pool import Pool
from tests.budget import cases
from tests.lab.audit import moment
from tests.lab.claims import CLASSES, Claims, pod_with, request, spec
from tests.lab.cluster import Cluster
from tests.lab.dra_node import (
    IDS,
    SNAPSHOT,
    cdi_of,
    dra_lab,
    empty,
    prepared,
    published,
    settle,
    singles_of,
    start,
    start_served,
    taints,
    versions,
    wait_served,
    wait_sets,
)
from tests.lab.machine_node import Node
from tests.lab.pods import GPU, Pods, guaranteed
from tests.lab.waiting import wait_for

pytestmark = pytest.mark.lab

_POOL = Pool.of(SNAPSHOT, SNAPSHOT.gpus)
_SETS = {each.gpus for each in _POOL.sets}
_WITH_SETS = "--dra-devices=sets"
_KIND = "device-plugin.nodetopo.io/gpu"
_KILLS = cases(8, 20)
_SEEN_S = 2.0
"""By then the scheduler has seen slices that the API server has; nothing says when."""
_SEED = 21


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Cluster]:
    """A cluster of its own: its class takes ``nvidia.com/gpu`` for every node."""
    del namespaces
    with dra_lab("dra") as lab:
        yield lab


@pytest.fixture
def node(lab: Cluster) -> Iterator[Node]:
    """Return a node whose agent publishes its GPUs, and sets; it is empty again afterwards."""
    node = lab.nodes["dra"]
    start_served(node, _WITH_SETS)
    # The kubelet leaves the slices of the last process for half a minute, in the order of its end.
    wait_for("the slices of a free node", lambda: is_of_free_node(lab), evidence=node.logs)
    yield node
    node.agent.end()
    node.agent.mend()
    (node.agent.state / "health.json").unlink(missing_ok=True)
    start_served(node, _WITH_SETS)
    # Without its driver the kubelet cannot give up the claims below.
    empty(lab, node)
    node.agent.stop()


@pytest.fixture
def pods(lab: Cluster) -> Pods:
    return lab.pods


@pytest.fixture
def claims(lab: Cluster) -> Claims:
    return Claims(lab.api)


def is_of_free_node(lab: Cluster) -> bool:
    """Return whether the best set of each size comes first, and nothing is tainted."""
    found = published(lab)
    return not any(it.get("taints") for it in found.values()) and all(
        first_set(lab, (), size) == best(IDS, size) for size in (1, 2, 4, 8)
    )


def best(free: Sequence[str], size: int) -> tuple[str, ...]:
    """Return what placement chooses of the GPUs *free*."""
    return Allocator(SNAPSHOT).allocate(available=free, size=size).chosen


def first_set(lab: Cluster, used: Sequence[str], size: int) -> tuple[str, ...] | None:
    """Return the first published set of *size* GPUs without those *used*.

    For one GPU it is the one that is marked as the best.
    """

    def fits(attributes: Mapping[str, Any]) -> bool:
        is_set = attributes["type"] == {"string": "gpu-set"}
        return (
            "best1" in attributes if size == 1 else is_set and attributes["gpus"] == {"int": size}
        )

    fitting = (
        gpus_of([name]) for name, device in published(lab).items() if fits(device["attributes"])
    )
    return next((gpus for gpus in fitting if not set(gpus) & set(used)), None)


def gpus_of(devices: Sequence[str]) -> tuple[str, ...]:
    """Return the ids of the GPUs of published devices."""
    found: list[str] = []
    for device in devices:
        backing = _POOL.backing(device)
        assert backing is not None
        found += backing.gpus
    assert len(set(found)) == len(found), f"a GPU twice in {devices}"
    return tuple(sorted(found, key=IDS.index))


def wait_order(lab: Cluster, node: Node, used: Sequence[str], size: int) -> None:
    """Wait until the best set of *size* GPUs without those *used* is the first that fits."""
    wanted = best([gpu for gpu in IDS if gpu not in used], size)
    wait_for(
        f"{wanted} come first",
        lambda: first_set(lab, used, size) == wanted,
        evidence=node.logs,
    )


def test_sets_of_every_size_are_what_allocate_chooses_before_and_after_churn(
    lab: Cluster, node: Node, pods: Pods, claims: Claims
) -> None:
    marked = {"cel": {"expression": '"best1" in device.attributes["nodetopo.io"]'}}
    claims.create_template("sets-of-1", spec(request(1, selectors=[marked])))
    for size in (2, 4, 8):
        claims.create_template(f"sets-of-{size}", spec(request(size)))
    draw = random.Random(_SEED)
    running: dict[str, tuple[str, ...]] = {}
    for number in range(16):
        used = [gpu for gpus in running.values() for gpu in gpus]
        free = [gpu for gpu in IDS if gpu not in used]
        able = [
            size
            for size in (1, 2, 4, 8)
            if size <= len(free) and (size == 1 or best(free, size) in _SETS)
        ]
        size = draw.choice(able or [0])
        if size and (draw.random() < 0.7 or not running):
            wait_order(lab, node, used, size)
            time.sleep(_SEEN_S)
            name = f"churn-{number}"
            pods.run(pod_with(name, node.name, f"sets-of-{size}", is_template=True))
            devices = claims.of_pod(name)
            assert devices is not None
            running[name] = gpus_of(devices)
            assert running[name] == best(free, size)
            assert cdi_of(node, name) == running[name]
        else:
            name = draw.choice(sorted(running))
            pods.delete(name)
            wait_for(
                f"the claim of {name} is gone",
                lambda name=name: claims.of_pod(name) is None,  # type: ignore[misc]
                evidence=node.logs,
            )
            del running[name]


def test_counters_are_never_overcommitted(node: Node, pods: Pods, claims: Claims) -> None:
    claims.create_template("pairs", spec(request(2)))
    names = [f"pair-{number}" for number in range(6)]
    for name in names:
        pods.create(pod_with(name, node.name, "pairs", is_template=True))

    def placed() -> list[tuple[str, ...]]:
        return [devices for name in names if (devices := claims.of_pod(name)) is not None]

    wait_for("four pairs are placed", lambda: len(placed()) >= 4, evidence=node.logs)
    for name in names:
        if claims.of_pod(name) is not None:
            pods.wait_phase(name, "Running")
    assert len(placed()) == 4
    assert set(gpus_of([device for devices in placed() for device in devices])) == set(IDS)
    waiting = [name for name in names if claims.of_pod(name) is None]
    assert [pods.phase(name) for name in waiting] == ["Pending", "Pending"]
    pods.delete(next(name for name in names if name not in waiting))
    wait_for(
        "a pair that waited runs",
        lambda: any(pods.phase(name) == "Running" for name in waiting),
        evidence=node.logs,
    )


def test_extended_resources_get_gpus_by_claim(node: Node, pods: Pods, claims: Claims) -> None:
    assert node.allocatable(GPU) in (None, 0), "no device plugin offers them"
    time.sleep(_SEEN_S)
    pods.run(guaranteed("four", node.name, {"cpu": 1, "memory": "64Mi", GPU: 4}))
    devices = claims.of_pod("four")
    assert devices is not None
    assert len(devices) == 4
    four = best(IDS, 4)
    assert gpus_of(devices) == four == cdi_of(node, "four")
    pods.run(guaranteed("rest", node.name, {"cpu": 1, "memory": "64Mi", GPU: 4}))
    assert set(cdi_of(node, "rest")) == set(IDS) - set(four)
    # The name of the class works without a name of its own, for sets as well.
    pods.delete("rest")
    implicit = "deviceclass.resource.kubernetes.io/gpus.nodetopo.io"
    pods.run(guaranteed("set", node.name, {"cpu": 1, "memory": "64Mi", implicit: 1}))


def test_an_unhealthy_gpu_is_tainted_and_its_pod_kept(
    lab: Cluster, node: Node, pods: Pods, claims: Claims
) -> None:
    claims.create("first", spec(request(1)))
    pods.run(pod_with("kept", node.name, "first"))
    (gpu,) = cdi_of(node, "kept")
    node.agent.xid(IDS.index(gpu), 79)
    theirs = {name for name in published(lab) if gpus_of([name]) == (gpu,)}  # others are left out
    wait_for(
        "devices are tainted",
        lambda: taints(lab, "unhealthy").keys() == theirs,
        evidence=node.logs,
    )
    assert {it["effect"] for it in taints(lab, "unhealthy").values()} == {"NoSchedule"}

    def status() -> list[str]:
        statuses = pods.get("kept")["status"]["containerStatuses"][0]
        return [
            resource["health"]
            for each in statuses.get("allocatedResourcesStatus", ())
            for resource in each.get("resources", ())
        ]

    wait_for("the pod says so", lambda: status() == ["Unhealthy"], evidence=lambda: str(status()))
    claims.create("eight", spec(request(8)))
    pods.create(pod_with("waits", node.name, "eight"))
    claims.create("four", spec(request(4)))
    pods.run(pod_with("beside", node.name, "four"))
    assert gpu not in cdi_of(node, "beside")
    assert pods.phase("kept") == "Running"
    assert pods.phase("waits") == "Pending"


def test_pods_on_an_unhealthy_gpu_are_evicted_where_that_is_set(
    lab: Cluster, node: Node, pods: Pods, claims: Claims
) -> None:
    node.agent.stop()
    start_served(node, _WITH_SETS, "--dra-unhealthy=evict")
    claims.create_template("singles", spec(request(1)))
    toleration = {"key": "nodetopo.io/unhealthy", "operator": "Exists", "effect": "NoExecute"}
    claims.create_template("tolerant", spec(request(1, tolerations=[toleration])))
    wait_for("slices are published", lambda: is_of_free_node(lab), evidence=node.logs)
    pods.run(pod_with("evicted", node.name, "singles", is_template=True))
    pods.run(pod_with("stays", node.name, "tolerant", is_template=True))
    gpus = {name: cdi_of(node, name)[0] for name in ("evicted", "stays")}
    for gpu in gpus.values():
        node.agent.xid(IDS.index(gpu), 79)
    wait_for(
        "the pod is evicted",
        lambda: "evicted" not in {pod["metadata"]["name"] for pod in pods.all()},
        evidence=node.logs,
    )
    assert pods.phase("stays") == "Running"


@pytest.mark.parametrize("form", ["sets", "gpus"])
def test_a_new_process_writes_nothing_and_a_new_kubelet_changes_nothing(
    lab: Cluster, node: Node, pods: Pods, claims: Claims, form: str
) -> None:
    node.agent.stop()
    start_served(node, f"--dra-devices={form}")
    claims.create("pair", spec(singles_of(2)))
    pods.run(pod_with("pair", node.name, "pair"))
    used = cdi_of(node, "pair")
    faulty = next(gpu for gpu in IDS if gpu not in used)
    node.agent.xid(IDS.index(faulty), 79)
    wait_for("a taint", lambda: taints(lab, "unhealthy"), evidence=node.logs)
    wait_for("the claim is kept", lambda: prepared(node) == set(used), evidence=node.logs)
    settle(lab, node)
    before, written = published(lab), versions(lab)
    since = moment()
    node.agent.stop()
    start_served(node, f"--dra-devices={form}")
    settle(lab, node)
    assert versions(lab) == written
    asked = lab.control_plane.agent_requests(since)
    assert asked["patch", "resourceslices"] == asked["create", "resourceslices"] == 0
    # A kubelet that starts deletes the slices of all drivers on its node.
    node.restart_kubelet()
    wait_for("the slices are back", lambda: published(lab) == before, evidence=node.logs)
    assert pods.phase("pair") == "Running"


@pytest.mark.parametrize("form", ["sets", "gpus"])
def test_a_claim_that_is_prepared_or_given_up_takes_one_write_at_most(
    lab: Cluster, node: Node, pods: Pods, claims: Claims, form: str
) -> None:
    node.agent.stop()
    start_served(node, f"--dra-devices={form}")
    wait_sets(lab, node, are_there=form == "sets")
    sizes = (1, 2, 4, 8)
    for size in sizes:
        asked = request(size) if form == "sets" else singles_of(size)
        claims.create_template(f"size-{size}", spec(asked))
    settle(lab, node)
    for size in sizes:
        name = f"one-write-{size}"
        before = writes(lab)
        pods.run(pod_with(name, node.name, f"size-{size}", is_template=True))
        settle(lab, node)
        assert writes(lab) - before <= 1, f"prepare of {size}"
        before = writes(lab)
        pods.delete(name)
        wait_for("it is given up", lambda: not prepared(node), evidence=node.logs)
        settle(lab, node)
        assert writes(lab) - before <= 1, f"unprepare of {size}"
    # Two claims of one pod are one change.
    pod = pod_with("two-claims", node.name, "size-1", is_template=True)
    more = {"name": "more", "resourceClaimTemplateName": "size-2"}
    pod["spec"]["resourceClaims"].append(more)
    pod["spec"]["containers"][0]["resources"]["claims"].append({"name": "more"})
    before = writes(lab)
    pods.run(pod)
    assert len(cdi_of(node, "two-claims")) == 3
    settle(lab, node)
    assert writes(lab) - before <= 1


def writes(lab: Cluster) -> int:
    """Return how often the agents wrote slices since the cluster started."""
    asked = lab.control_plane.agent_requests()
    return sum(asked[verb, "resourceslices"] for verb in ("patch", "create", "delete"))


@pytest.mark.parametrize("form", ["sets", "gpus"])
def test_an_agent_killed_again_and_again_loses_no_claim_and_gives_no_gpu_twice(
    node: Node, pods: Pods, claims: Claims, form: str
) -> None:
    claims.create_template("again", spec(request(1) if form == "sets" else singles_of(1)))
    draw = random.Random(_SEED)
    running: dict[str, str] = {}
    for number in range(_KILLS):
        name = f"kill-{number}"
        if number % 10 == 3:  # while the kubelet prepares it, which it tries again a minute later
            pods.create(pod_with(name, node.name, "again", is_template=True))
            wait_for("it is placed", partial(claims.of_pod, name), evidence=node.logs)
        else:
            pods.run(pod_with(name, node.name, "again", is_template=True))
        node.agent.kill()
        start(node, f"--dra-devices={form}")
        wait_served(node)
        pods.wait_phase(name, "Running")
        (gpu,) = cdi_of(node, name)
        assert gpu not in running.values(), f"{gpu} twice: {running}"
        running[name] = gpu
        while len(running) > 6:
            gone = draw.choice(sorted(running))
            pods.delete(gone)
            del running[gone]

    wait_for("the others are given up", lambda: prepared(node) == set(running.values()))
    for name, gpu in running.items():
        devices = claims.of_pod(name)
        assert devices is not None
        assert gpus_of(devices) == (gpu,)


def test_classes_are_those_of_the_deployment(lab: Cluster) -> None:
    names = {it["metadata"]["name"] for it in lab.api.get(CLASSES)["items"]}
    assert names == {f"{it}.nodetopo.io" for it in ("admin", "gpu", "gpus", "mig")}
