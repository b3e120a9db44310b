"""Pods that outlive the DRA driver of their GPUs: their GPUs stay with them."""

from collections.abc import Iterator

import pytest

from nodetopo.model.codec import decode
from tests.deploy.kustomize import documents
from tests.deviceplugin.driver_tree import add_nodes, install
from tests.lab import deployment
from tests.lab.claims import SLICES, Claims, pod_with, spec
from tests.lab.cluster import MACHINES, Cluster
from tests.lab.dra_node import singles_of
from tests.lab.machine_node import Node
from tests.lab.pods import GPU
from tests.lab.waiting import wait_for

pytestmark = pytest.mark.lab

_SHAPE = "h100x8-nvswitch-2numa-8cx7"
_SNAPSHOT = decode((MACHINES / _SHAPE / "snapshot.json").read_text("utf-8")).snapshot
_IDS = frozenset(gpu.id for gpu in _SNAPSHOT.gpus)


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Cluster]:
    """A cluster with the classes of our driver."""
    del namespaces
    lab = Cluster()
    lab.start()
    try:
        component = deployment.BASE / "components" / "dra"
        of_files = [documents(component / name) for name in ("classes.yaml", "rbac.yaml")]
        deployment.apply(lab.api, tuple(each for found in of_files for each in found))
        lab.control_plane.start_claim_controllers()
        node = lab.add_node("left", _SHAPE)
        driver = node.host / "run/nvidia/driver"
        install(driver, "/usr/lib64", _SNAPSHOT.driver_version or "")
        add_nodes(driver, "nvidiactl", "nvidia-uvm", *(f"nvidia{n}" for n in range(8)))
        node.runtime.resolve_cdi(node.host / "run/cdi")
        yield lab
    finally:
        lab.stop()


@pytest.fixture
def node(lab: Cluster) -> Iterator[Node]:
    """Return a node whose agent publishes its GPUs; afterwards its driver gives up the claims."""
    node = lab.nodes["left"]
    start(node, "--dra")
    wait_for("slices are published", lambda: bool(slices(lab)), evidence=node.logs)
    yield node
    node.agent.stop()
    start(node, "--dra")
    lab.pods.delete_all()
    node.agent.stop()


def start(node: Node, *flags: str) -> None:
    registry = node.host / "var/lib/kubelet/plugins_registry"
    paths = [f"--plugins-registry-dir={registry}", "--driver-root=/run/nvidia/driver"]
    node.agent.start([*paths, "--cdi-spec-dir=/run/cdi", *flags])


def slices(lab: Cluster) -> list[str]:
    return [it["metadata"]["name"] for it in lab.api.get(SLICES)["items"]]


def given(node: Node, pod: str) -> frozenset[str]:
    """Return the GPUs that the container of *pod* was created with by claim."""
    (created, *_) = node.runtime.created(pod)
    return frozenset(name.partition("=")[2] for name in created.cdi)


def test_without_the_driver_the_device_plugin_offers_all_but_the_gpus_of_claims(
    lab: Cluster, node: Node
) -> None:
    Claims(lab.api).create("pair", spec(singles_of(2)))
    lab.pods.run(pod_with("pair", node.name, "pair"))
    held = given(node, "pair")
    assert len(held) == 2
    node.agent.stop()
    start(node)
    wait_for("the kubelet deletes the slices", lambda: not slices(lab), evidence=node.logs)
    node.wait_allocatable(GPU, 6)
    assert node.healthy(GPU) == _IDS - held
    node.agent.stop()
    start(node)  # it finds no slices any more, only the pod
    node.wait_settled(GPU, 6)
    assert node.healthy(GPU) == _IDS - held
