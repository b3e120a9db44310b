"""The agent of a Node under ``deploy/daemonset/components/own-node``, with too many rights."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from nodetopo.components.dra.slices import slice_name
from nodetopo.components.labels.outputs.nfd import NODE_NAME_LABEL
from nodetopo.model.dra import DRIVER, SLICES
from tests.bench.fleet_identity import loose_token, pod_token
from tests.deploy.kustomize import render
from tests.lab.api import Api, ApiError
from tests.lab.cluster import Cluster
from tests.lab.deployment import BASE
from tests.lab.helm import chart
from tests.lab.schedulers import crds, objects
from tests.lab.waiting import wait_for

OWN, OTHER = "own-node-a", "own-node-b"
ELSEWHERE = "own-node-elsewhere"
"""A namespace that a kustomization could have put the agent into."""

FEATURES = "/apis/nfd.k8s-sigs.io/v1alpha1/namespaces/nodetopo/nodefeatures"
EVENTS = "/api/v1/namespaces/default/events"
ZONES = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"

Documents = Sequence[dict[str, Any]]

BY_KUSTOMIZE = render(BASE, BASE / "components" / "own-node")


def by_chart() -> Documents:
    """Return what the chart renders by default for the account that the lab's agent has."""
    return chart.render()


_ANYTHING: dict[str, Any] = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "own-node-anything"},
    "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
}
"""More rights than the agent has, so that it is a policy that refuses, and not RBAC."""

_BINDING: dict[str, Any] = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "own-node-anything"},
    "roleRef": {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": "own-node-anything",
    },
    "subjects": [
        {"kind": "ServiceAccount", "name": "nodetopo", "namespace": namespace}
        for namespace in ("nodetopo", ELSEWHERE)
    ],
}


@contextmanager
def policed(cluster: Cluster, documents: Documents = BY_KUSTOMIZE) -> Iterator[Api]:
    """Return the API server as the agent on the Node ``OWN`` sees it, until the end.

    The policies are those among *documents*. There are bare Nodes ``OWN`` and ``OTHER``; the
    agent's pod has the name of its Node.
    """
    api = cluster.api
    policies = [it for it in documents if it["kind"].startswith("ValidatingAdmissionPolicy")]
    assert policies
    for project in ("node-resource-topology", "nfd"):
        crds.install(api, project)
    cluster.control_plane.agent_kubeconfig()
    for name in (OWN, OTHER):
        api.create("/api/v1/nodes", bare_node(name))
    added = [*policies, _ANYTHING, _BINDING]
    for document in added:
        objects.apply(api, document)
    agent = Api(api.url, pod_token(api.create, OWN), api.authority)
    wait_for("the policies count", lambda: all(_refused(api)))
    try:
        yield agent
    finally:
        for document in reversed(policies):
            api.delete(objects.place(api, document))
        # The rights last: who has none is refused by them, whatever the policies say.
        wait_for("the policies are gone", lambda: not any(_refused(api)))
        for document in (_BINDING, _ANYTHING):
            api.delete(objects.place(api, document))
        api.delete(f"{EVENTS}/{event_name(OTHER)}")  # of the attempt that was not refused
        api.delete(pod_path(OWN))
        for name in (OWN, OTHER):
            api.delete(f"/api/v1/nodes/{name}")


def loose(api: Api) -> Api:
    """Return the API server as the owner of a token of no pod sees it."""
    return Api(api.url, loose_token(api.create), api.authority)


def bare_node(name: str) -> dict[str, Any]:
    """Return a Node with labels and an annotation of others, and labels of ours."""
    labels = {
        "foreign.example/key": "set",
        "gpu.topology/stale": "yes",
        "nvidia.com/gpu.count": "7",
        "nvidia.com/gpu.deploy.driver": "true",
    }
    metadata = {
        "name": name,
        "labels": labels,
        "annotations": {"foreign.example/note": "x"},
    }
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata}


def pod_path(name: str) -> str:
    """Return the path of a pod beside the agent's."""
    return f"/api/v1/namespaces/nodetopo/pods/{name}"


def relabel(api: Api, name: str) -> None:
    """Change a label of ours on the Node *name*, by a value that is another each time."""
    change = {"metadata": {"labels": {"gpu.topology/probe": str(time.monotonic_ns())}}}
    api.merge(f"/api/v1/nodes/{name}", change)


def annotate(api: Api, name: str, key: str = "kai.scheduler/numa-placement-observed") -> None:
    """Change an annotation of the pod *name*."""
    change = {"metadata": {"annotations": {key: str(time.monotonic_ns())}}}
    api.merge(pod_path(name), change)


def apply_zones(api: Api, name: str) -> None:
    """Write the NodeResourceTopology *name*, without keeping it."""
    kind = {"apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology"}
    api.apply(f"{ZONES}/{name}", {**kind, "metadata": {"name": name}, "zones": []}, is_dry_run=True)


def apply_features(
    api: Api, name: str, *, target: str | None = None, label: str = "gpu.topology/probe"
) -> None:
    """Write the NodeFeature of the Node *name*, for *target*, without keeping it."""
    body = features(name, label)
    body["metadata"]["labels"][NODE_NAME_LABEL] = target or name
    api.apply(f"{FEATURES}/nodetopo-{name}", body, is_dry_run=True)


def features(name: str, label: str = "gpu.topology/probe") -> dict[str, Any]:
    """Return a NodeFeature of the Node *name* with one label."""
    return {
        "apiVersion": "nfd.k8s-sigs.io/v1alpha1",
        "kind": "NodeFeature",
        "metadata": {
            "name": f"nodetopo-{name}",
            "namespace": "nodetopo",
            "labels": {NODE_NAME_LABEL: name},
        },
        "spec": {"features": {}, "labels": {label: "x"}},
    }


def apply_slice(api: Api, node: str, *, name: str | None = None, **spec: Any) -> None:
    """Write a ResourceSlice of the Node *node*, with *spec* instead, without keeping it."""
    body = slice_of(node, **spec)
    body["metadata"]["name"] = name or body["metadata"]["name"]
    api.apply(f"{SLICES}/{body['metadata']['name']}", body, is_dry_run=True)


def slice_of(node: str, **spec: Any) -> dict[str, Any]:
    """Return a ResourceSlice of the Node *node* with one device, and *spec* instead; no Nones."""
    chosen = {
        "driver": DRIVER,
        "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0"}],
        **spec,
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": slice_name(node, "1-devices-0")},
        "spec": {key: value for key, value in chosen.items() if value is not None},
    }


def event_name(subject: str) -> str:
    """Return a name of an Event about *subject*, of the form that the agent gives it."""
    return f"{subject}.0123456789abcdef"


def event(about: str, **changes: Any) -> dict[str, Any]:
    """Return an Event about the Node *about* as the agent on ``OWN`` writes it, with *changes*."""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": event_name(about), "namespace": "default"},
        "involvedObject": {"kind": "Node", "name": about, "uid": about},
        "source": {"component": "nodetopo", "host": OWN},
        "reportingComponent": "nodetopo",
        "reportingInstance": OWN,
        "reason": "Probe",
        "message": str(time.monotonic_ns()),
        **changes,
    }


def apply_event(api: Api, name: str, **changes: Any) -> None:
    """Write an Event about the Node *name*."""
    body = event(name, **changes)
    api.apply(f"{EVENTS}/{body['metadata']['name']}", body)


def _refused(api: Api) -> tuple[bool, ...]:
    """Tell which of the policies refuse a token of no pod now."""
    agent = loose(api)
    return (
        _is_refused(relabel, agent, OTHER),
        _is_refused(annotate, agent, OWN),
        _is_refused(apply_zones, agent, OTHER),
        _is_refused(apply_features, agent, OTHER),
        _is_refused(apply_event, agent, OTHER),
        _is_refused(apply_slice, agent, OTHER),
    )


def _is_refused(attempt: Callable[[Api, str], None], agent: Api, name: str) -> bool:
    try:
        attempt(agent, name)
    except ApiError as error:
        return "names no node" in str(error)
    return False
