"""Our agent on a cluster with Node Feature Discovery's objects, with the rights that we ship."""

from pathlib import Path

from nodetopo.components.labels.outputs.nfd import NodeFeaturePublisher
from tests.bench.fleet_identity import NAMESPACE, pod
from tests.deploy.kustomize import render
from tests.lab.api import Api, Object
from tests.lab.cluster import Cluster
from tests.lab.deployment import BASE
from tests.lab.granted import wait_granted
from tests.lab.schedulers import crds, objects

DAEMON_SET = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/nodetopo"
_COMPONENT = BASE / "components" / "node-feature"


def install(cluster: Cluster) -> None:
    """Add NFD's definitions, our DaemonSet, and what ``components/node-feature`` allows it."""
    crds.install(cluster.api, "nfd")
    cluster.control_plane.agent_kubeconfig()
    rights = [
        document
        for document in render(BASE, _COMPONENT)
        if document["metadata"]["name"] == "nodetopo-node-feature"
    ]
    for document in rights:
        objects.apply(cluster.api, document)
    wait_granted(cluster.api, rights)


def add_pod(api: Api, node: str) -> None:
    """Add the pod of our DaemonSet on *node*, under the node's name, as its controller would."""
    owner = api.get(DAEMON_SET)
    reference = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    body = pod(node)
    body["metadata"]["ownerReferences"] = [reference]
    api.create(f"/api/v1/namespaces/{NAMESPACE}/pods", body)


def publisher(kubeconfig: Path, node: str) -> NodeFeaturePublisher:
    """Return what the agent in that pod publishes by."""
    return NodeFeaturePublisher(kubeconfig, node, namespace=NAMESPACE, pod=node)


def find(api: Api, node: str) -> Object | None:
    """Return the object of *node*; ``None`` without one."""
    base = f"/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/{NAMESPACE}/nodefeatures"
    return api.find(f"{base}/nodetopo-{node}")
