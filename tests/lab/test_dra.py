"""Our DRA driver on a real kubelet: from slices by the stock scheduler to names for the runtime."""

import json
import random
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pytest

from agent.allocation.allocator import Allocator
from agent.dra.devices import Conditions
from agent.dra.pool import Pool
from agent.model.codec import decode
from tests.deploy.kustomize import documents
from tests.deviceplugin.driver_tree import add_nodes, install
from tests.lab import deployment
from tests.lab.api import Object
from tests.lab.claims import CLASSES, SLICES, Claims, pod_with, request, spec
from tests.lab.cluster import MACHINES, Cluster
from tests.lab.machine_node import Node
from tests.lab.pods import GPU, Pods, guaranteed
from tests.lab.waiting import wait_for

pytestmark = pytest.mark.lab

_SHAPE = "h100x8-nvswitch-2numa-8cx7"
_SNAPSHOT = decode((MACHINES / _SHAPE / "snapshot.json").read_text("utf-8")).snapshot
_POOL = Pool.of(_SNAPSHOT, _SNAPSHOT.gpus)
_FREE = [it["name"] for group in _POOL.groups((), Conditions()) for it in group.devices]
"""The devices in the order of a node without claims."""
_IDS = tuple(gpu.id for gpu in _SNAPSHOT.gpus)
_KIND = "device-plugin.nodetopo.io/gpu"
_KILLS = 20
_SEEN_S = 2.0
"""By then the scheduler has seen slices that the API server has; nothing says when."""
_SEED = 21


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Cluster]:
    """A cluster of its own: its class takes ``nvidia.com/gpu`` for every node."""
    del namespaces
    lab = Cluster()
    lab.start()
    try:
        component = deployment.BASE / "components" / "dra"
        of_files = [documents(component / name) for name in ("classes.yaml", "rbac.yaml")]
        deployment.apply(lab.api, tuple(each for found in of_files for each in found))
        lab.control_plane.start_claim_controllers()
        node = lab.add_node("dra", _SHAPE)
        driver = node.host / "run/nvidia/driver"
        install(driver, "/usr/lib64", _SNAPSHOT.driver_version or "")
        add_nodes(driver, "nvidiactl", "nvidia-uvm", *(f"nvidia{n}" for n in range(8)))
        node.runtime.resolve_cdi(node.host / "run/cdi")
        yield lab
    finally:
        lab.stop()


@pytest.fixture
def node(lab: Cluster) -> Iterator[Node]:
    """Return a node whose agent publishes its GPUs; it is empty again afterwards."""
    node = lab.nodes["dra"]
    start(node)
    wait_for("the driver is registered", partial(is_registered, node), evidence=node.logs)
    # The kubelet leaves the slices of the last process for half a minute, in the order of its end.
    wait_for("the slices of a free node", lambda: is_of_free_node(lab), evidence=node.logs)
    yield node
    # Without its driver the kubelet cannot give up the claims below.
    node.agent.heal(flags(node))
    lab.pods.delete_all()
    for claim in Claims(lab.api).all():
        lab.api.delete(
            f"/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/{claim['metadata']['name']}"
        )
    wait_for("no claim is left", lambda: not Claims(lab.api).all(), evidence=node.logs)
    wait_for("all are given up", lambda: not prepared(node), evidence=node.logs)
    node.agent.stop()


@pytest.fixture
def pods(lab: Cluster) -> Pods:
    return lab.pods


@pytest.fixture
def claims(lab: Cluster) -> Claims:
    return Claims(lab.api)


def start(node: Node, *more: str) -> None:
    node.agent.start([*flags(node), *more])


def flags(node: Node) -> list[str]:
    registry = node.host / "var/lib/kubelet/plugins_registry"
    paths = [f"--plugins-registry-dir={registry}", "--driver-root=/run/nvidia/driver"]
    return ["--dra", *paths, "--cdi-spec-dir=/run/cdi"]


def slices(lab: Cluster) -> list[Object]:
    items: list[Object] = lab.api.get(SLICES)["items"]
    return [it for it in items if it["spec"]["driver"] == "nodetopo.io"]


def spec_of_slices(lab: Cluster) -> dict[str, Any]:
    return {it["metadata"]["name"]: it["spec"] for it in slices(lab)}


def is_of_free_node(lab: Cluster) -> bool:
    """Return whether each slice has its devices in the order for a node without claims.

    Which devices are in which of the slices for sets of one size depends on the claims before.
    """
    specs = spec_of_slices(lab).values()
    orders = [[_FREE.index(it["name"]) for it in each.get("devices", ())] for each in specs]
    return len(orders) == 7 and all(order == sorted(order) for order in orders)


def devices_of(specs: dict[str, Any]) -> dict[str, Any]:
    """Return the published devices by name, whichever slices they are in."""
    return {it["name"]: it for each in specs.values() for it in each.get("devices", ())}


def gpus_of(devices: Sequence[str]) -> tuple[str, ...]:
    """Return the ids of the GPUs of published devices."""
    found: list[str] = []
    for device in devices:
        backing = _POOL.backing(device)
        assert backing is not None
        found += backing.gpus
    assert len(set(found)) == len(found), f"a GPU twice in {devices}"
    return tuple(sorted(found, key=_IDS.index))


def cdi_of(node: Node, pod: str) -> tuple[str, ...]:
    """Return the GPUs that the container of *pod* was created with."""
    (created, *_) = node.runtime.created(pod)
    return tuple(sorted((name.partition("=")[2] for name in created.cdi), key=_IDS.index))


def wait_order(lab: Cluster, node: Node, used: Sequence[str], size: int) -> None:
    """Wait until the best set of *size* GPUs without those *used* is the first that fits."""
    free = [gpu for gpu in _IDS if gpu not in used]
    best = Allocator(_SNAPSHOT).allocate(available=free, size=size).chosen

    def first() -> tuple[str, ...] | None:
        names = [
            device["name"]
            for _, each in sorted(spec_of_slices(lab).items())
            for device in each.get("devices", ())
            if device["attributes"]["gpus"] == {"int": size}
            and device["attributes"]["type"] == {"string": "gpu-set"}
        ]
        fitting = (gpus_of([name]) for name in names)
        return next((gpus for gpus in fitting if not set(gpus) & set(used)), None)

    wait_for(f"{best} come first", lambda: first() == best, evidence=node.logs)


def test_sets_of_every_size_are_what_allocate_chooses_before_and_after_churn(
    lab: Cluster, node: Node, pods: Pods, claims: Claims
) -> None:
    for size in (1, 2, 4, 8):
        claims.create_template(f"sets-of-{size}", spec(request(size)))
    draw = random.Random(_SEED)
    running: dict[str, tuple[str, ...]] = {}
    allocator = Allocator(_SNAPSHOT)
    for number in range(16):
        used = [gpu for gpus in running.values() for gpu in gpus]
        free = [gpu for gpu in _IDS if gpu not in used]
        size = draw.choice([size for size in (1, 2, 4, 8) if size <= len(free)] or [0])
        if size and (draw.random() < 0.7 or not running):
            wait_order(lab, node, used, size)
            time.sleep(_SEEN_S)
            name = f"churn-{number}"
            pods.run(pod_with(name, node.name, f"sets-of-{size}", is_template=True))
            devices = claims.of_pod(name)
            assert devices is not None
            running[name] = gpus_of(devices)
            assert running[name] == allocator.allocate(available=free, size=size).chosen
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
    assert set(gpus_of([device for devices in placed() for device in devices])) == set(_IDS)
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
    best = Allocator(_SNAPSHOT).allocate(available=_IDS, size=4).chosen
    assert gpus_of(devices) == best == cdi_of(node, "four")
    pods.run(guaranteed("rest", node.name, {"cpu": 1, "memory": "64Mi", GPU: 4}))
    assert set(cdi_of(node, "rest")) == set(_IDS) - set(best)
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
    node.agent.xid(_IDS.index(gpu), 79)
    wait_for("devices are tainted", lambda: len(tainted(lab)) == 45, evidence=node.logs)
    assert {it["effect"] for it in tainted(lab).values()} == {"NoSchedule"}

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


def tainted(lab: Cluster) -> dict[str, Any]:
    """Return the first taint of each device that has one."""
    return {
        device["name"]: device["taints"][0]
        for each in spec_of_slices(lab).values()
        for device in each.get("devices", ())
        if device.get("taints")
    }


def test_pods_on_an_unhealthy_gpu_are_evicted_where_that_is_set(
    lab: Cluster, node: Node, pods: Pods, claims: Claims
) -> None:
    node.agent.stop()
    start(node, "--dra-unhealthy=evict")
    wait_for("the driver is registered", partial(is_registered, node), evidence=node.logs)
    claims.create_template("singles", spec(request(1)))
    toleration = {"key": "nodetopo.io/unhealthy", "operator": "Exists", "effect": "NoExecute"}
    claims.create_template("tolerant", spec(request(1, tolerations=[toleration])))
    wait_for("slices are published", lambda: len(slices(lab)) == 7, evidence=node.logs)
    pods.run(pod_with("evicted", node.name, "singles", is_template=True))
    pods.run(pod_with("stays", node.name, "tolerant", is_template=True))
    gpus = {name: cdi_of(node, name)[0] for name in ("evicted", "stays")}
    for gpu in gpus.values():
        node.agent.xid(_IDS.index(gpu), 79)
    wait_for(
        "the pod is evicted",
        lambda: "evicted" not in {pod["metadata"]["name"] for pod in pods.all()},
        evidence=node.logs,
    )
    assert pods.phase("stays") == "Running"


def test_a_new_process_and_a_new_kubelet_change_nothing(
    lab: Cluster, node: Node, pods: Pods, claims: Claims
) -> None:
    claims.create("pair", spec(request(2)))
    pods.run(pod_with("pair", node.name, "pair"))
    used = cdi_of(node, "pair")
    wait_for(
        "the slices follow the claim",
        lambda: "slices published" in node.agent.log_since_start().partition("claim prepared")[2],
        evidence=node.logs,
    )
    before = spec_of_slices(lab)
    versions = {it["metadata"]["name"]: it["metadata"]["resourceVersion"] for it in slices(lab)}
    node.agent.stop()
    start(node)
    wait_for("the driver is registered", partial(is_registered, node), evidence=node.logs)
    wait_order(lab, node, used, 4)
    assert versions == {
        it["metadata"]["name"]: it["metadata"]["resourceVersion"] for it in slices(lab)
    }
    # A kubelet that starts deletes the slices of all drivers on its node.
    node.restart_kubelet()
    wait_for("the slices are back", lambda: len(slices(lab)) == 7, evidence=node.logs)
    wait_order(lab, node, used, 4)
    assert devices_of(before) == devices_of(spec_of_slices(lab))
    assert pods.phase("pair") == "Running"


def test_an_agent_killed_again_and_again_loses_no_claim_and_gives_no_gpu_twice(
    node: Node, pods: Pods, claims: Claims
) -> None:
    claims.create_template("again", spec(request(1)))
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
        start(node)
        wait_for("the driver is registered", partial(is_registered, node), evidence=node.logs)
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


def prepared(node: Node) -> set[str]:
    """Return the GPUs of the claims that the daemon holds for prepared."""
    file = node.agent.state / "claims.json"
    state = json.loads(file.read_text("utf-8")) if file.exists() else {"claims": []}
    return {gpu for claim in state["claims"] for it in claim["devices"] for gpu in it["gpus"]}


def is_registered(node: Node) -> bool:
    return "DRA driver registered" in node.agent.log_since_start()


def test_classes_are_those_of_the_deployment(lab: Cluster) -> None:
    names = {it["metadata"]["name"] for it in lab.api.get(CLASSES)["items"]}
    assert names == {f"{it}.nodetopo.io" for it in ("admin", "gpu", "gpus", "mig")}
