"""A node with our DRA driver, for the tests that need one: how it starts, and what it publishes."""

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from nodetopo.model.codec import decode
from tests.deploy.kustomize import documents
from tests.deviceplugin.driver_tree import add_nodes, install
from tests.lab import deployment
from tests.lab.api import Object
from tests.lab.claims import CLAIMS, SLICES, TEMPLATES, Claims
from tests.lab.cluster import MACHINES, Cluster
from tests.lab.control_plane import Alpha
from tests.lab.machine_node import Node
from tests.lab.node_agent import NodeAgent
from tests.lab.pods import guaranteed
from tests.lab.waiting import wait_for

SHAPE = "h100x8-nvswitch-2numa-8cx7"
SNAPSHOT = decode((MACHINES / SHAPE / "snapshot.json").read_text("utf-8")).snapshot
IDS = tuple(gpu.id for gpu in SNAPSHOT.gpus)


@contextmanager
def dra_lab(name: str, alpha: Alpha | None = None) -> Iterator[Cluster]:
    """Yield a cluster with our classes and one node, *name*, whose runtime resolves CDI names.

    It is a cluster of its own: the class takes ``nvidia.com/gpu`` for every node.
    """
    lab = Cluster(alpha=alpha)
    lab.start()
    try:
        component = deployment.BASE / "components" / "dra"
        of_files = [documents(component / file) for file in ("classes.yaml", "rbac.yaml")]
        deployment.apply(lab.api, tuple(each for found in of_files for each in found))
        lab.control_plane.start_claim_controllers()
        node = lab.add_node(name, SHAPE)
        driver = node.host / "run/nvidia/driver"
        install(driver, "/usr/lib64", SNAPSHOT.driver_version or "")
        add_nodes(driver, "nvidiactl", "nvidia-uvm", *(f"nvidia{n}" for n in range(8)))
        node.runtime.resolve_cdi(node.host / "run/cdi")
        yield lab
    finally:
        lab.stop()


def paths(node: Node) -> list[str]:
    """Return where the daemon finds the node's directories."""
    registry = node.host / "var/lib/kubelet/plugins_registry"
    files = [f"--plugins-registry-dir={registry}", "--driver-root=/run/nvidia/driver"]
    return [*files, "--cdi-spec-dir=/run/cdi"]


def start(node: Node, *flags: str, is_on: bool = True) -> None:
    """Start the daemon, with the DRA driver on or off."""
    node.agent.start([*paths(node), *(["--dra"] if is_on else []), *flags])


def start_served(node: Node, *flags: str) -> None:
    """Start the daemon with the driver on, and wait until the kubelet has it."""
    start(node, *flags)
    wait_served(node)


def wait_served(node: Node, agent: NodeAgent | None = None) -> None:
    """Wait until the kubelet has the driver of the daemon last started."""
    wait_for(
        "the driver is registered",
        lambda: is_registered(agent or node.agent),
        evidence=node.logs,
    )


def is_registered(agent: NodeAgent) -> bool:
    """Return whether a kubelet has taken the driver since the daemon was started."""
    return "DRA driver registered" in agent.log_since_start()


def slices(lab: Cluster) -> list[Object]:
    """Return the slices of our driver."""
    items: list[Object] = lab.api.get(SLICES)["items"]
    return [it for it in items if it["spec"]["driver"] == "nodetopo.io"]


def published(lab: Cluster) -> dict[str, Any]:
    """Return our devices but those for administration, by name, in the allocator's order."""
    in_order = sorted(slices(lab), key=lambda each: str(each["metadata"]["name"]))
    devices = (it for each in in_order for it in each["spec"].get("devices", ()))
    return {it["name"]: it for it in devices if it["attributes"]["type"] != {"string": "admin"}}


def taints(lab: Cluster, key: str) -> Mapping[str, Object]:
    """Return the taints with *key*, by device."""
    return {
        name: taint
        for name, device in published(lab).items()
        for taint in device.get("taints", ())
        if taint["key"] == f"nodetopo.io/{key}"
    }


def singles(lab: Cluster, gpus: Collection[str]) -> set[str]:
    """Return the names of the single GPUs with the ids *gpus* that are published."""
    return {
        name
        for name, device in published(lab).items()
        if device["attributes"]["type"] == {"string": "gpu"}
        and device["attributes"]["uuid"]["string"] in gpus
    }


def out_of_reach(lab: Cluster, key: str) -> set[str]:
    """Return the ids of GPUs that no new claim can have: tainted with *key*, or left out.

    An API server that drops taints has them left out.
    """
    tainted = taints(lab, key).keys()
    return {gpu for gpu in IDS if not (names := singles(lab, [gpu])) or names & tainted}


def versions(lab: Cluster) -> dict[str, str]:
    """Return the version of each of our slices, which differs after every write."""
    return {it["metadata"]["name"]: it["metadata"]["resourceVersion"] for it in slices(lab)}


def prepared(node: Node) -> set[str]:
    """Return the GPUs of the claims that the daemon holds for prepared."""
    file = node.agent.state / "claims.json"
    state = json.loads(file.read_text("utf-8")) if file.exists() else {"claims": []}
    return {gpu for claim in state["claims"] for it in claim["devices"] for gpu in it["gpus"]}


def cdi_of(node: Node, pod: str) -> tuple[str, ...]:
    """Return the GPUs that the container of *pod* was created with by claim."""
    (created, *_) = node.runtime.created(pod)
    names = (name.partition("=")[2] for name in created.cdi)
    return tuple(sorted(names, key=IDS.index))


def singles_of(count: int) -> Object:
    """Return a request for *count* single GPUs."""
    exactly = {"deviceClassName": "gpu.nodetopo.io", "count": count}
    return {"name": "gpus", "exactly": exactly}


def events(lab: Cluster, node: Node) -> set[str]:
    """Return the reasons of the Events about *node*."""
    items: list[Object] = lab.api.get("/api/v1/namespaces/default/events")["items"]
    return {it["reason"] for it in items if it["involvedObject"]["name"] == node.name}


def empty(lab: Cluster, node: Node) -> None:
    """Delete all pods, claims and templates; the daemon runs with the driver on."""
    lab.pods.delete_all()
    claims = Claims(lab.api)
    for claim in claims.all():
        lab.api.delete(f"{CLAIMS}/{claim['metadata']['name']}")
    wait_for("no claim is left", lambda: not claims.all(), evidence=node.logs)
    wait_for("all are given up", lambda: not prepared(node), evidence=node.logs)
    for template in lab.api.get(TEMPLATES)["items"]:
        lab.api.delete(f"{TEMPLATES}/{template['metadata']['name']}")


def wait_sets(lab: Cluster, node: Node, *, are_there: bool) -> None:
    """Wait until the slices have sets, or single GPUs and no sets."""

    def is_so() -> bool:
        found = slices(lab)
        return bool(found) and any(it["spec"].get("sharedCounters") for it in found) is are_there

    wait_for(f"sets are published: {are_there}", is_so, evidence=node.logs)


def settle(lab: Cluster, node: Node) -> None:
    """Wait until a whole pod has come and gone without a write."""

    def is_quiet() -> bool:
        before = versions(lab)
        lab.pods.run(guaranteed("plain", node.name, {"cpu": 1, "memory": "64Mi"}))
        lab.pods.delete("plain")
        return before == versions(lab)

    wait_for("nothing is written", is_quiet, evidence=node.logs)
