"""A release of the chart in a real cluster: what its accounts may do, and what they may not.

No kubelet runs on the nodes, which labels and rights do without. The release is of another name and
in another namespace than the manifests, so that nothing of theirs can stand in for it.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

import pytest

from nodetopo.components.labels.outputs.node import NodeLabelPublisher
from nodetopo.tools.capture.archive import unpack
from tests.components.labels.outputs.desired_labels import desired
from tests.lab.api import Api, ApiError, Object
from tests.lab.cluster import MACHINES, Cluster
from tests.lab.granted import wait_granted
from tests.lab.helm.chart import is_hook, render
from tests.lab.node_agent import REPOSITORY, NodeAgent
from tests.lab.own_node import EVENTS, apply_event, bare_node, relabel
from tests.lab.schedulers import objects
from tests.lab.waiting import wait_for

pytestmark = pytest.mark.lab

NAMESPACE, NAME = "chart", "chart-topo"
OWN, OTHER = "chart-node-a", "chart-node-b"
SHAPE = "h100x8-nvswitch-2numa-8cx7"
COUNT = "nvidia.com/gpu.count"
PODS, SECRETS = (f"/api/v1/namespaces/{NAMESPACE}/{kind}" for kind in ("pods", "secrets"))

VALUES: Object = {
    "fullnameOverride": NAME,
    "namespace.create": True,
    "priorityClass.create": True,
    "networkPolicy.create": True,
    "components.flowSchema": True,
    "components.namedConfig": True,
    "namedConfigs.configs": {"default": {"version": "v1"}},
    "metrics.dashboard.create": True,
}
"""All that adds objects of Kubernetes itself, and no right."""

TAINT: Object = {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}
FOREIGN: Object = {"metadata": {"labels": {"foreign.example/key": "other"}}}
OURS: Object = {"metadata": {"labels": {"gpu.topology/probe": "x"}}}
CAPACITY: Object = {"status": {"capacity": {"nvidia.com/gpu": "9"}}}

Act: TypeAlias = Callable[[Api], object]


def node(name: str, part: str = "") -> str:
    """Return the path of a Node, or of a subresource of it."""
    return f"/api/v1/nodes/{name}{part}"


BY_POLICY: dict[str, tuple[Act, str]] = {
    "a label of another node": (lambda who: relabel(who, OTHER), "may change that Node only"),
    "a foreign label": (lambda who: who.merge(node(OWN), FOREIGN), "its own labels"),
    "a taint": (lambda who: who.merge(node(OWN), TAINT), "neither the spec nor the status"),
    "a cordon": (
        lambda who: who.merge(node(OWN), {"spec": {"unschedulable": True}}),
        "neither the spec nor the status",
    ),
    "an Event about another node": (
        lambda who: apply_event(who, OTHER),
        "may write Events about that Node",
    ),
}
"""What the rights of the account would allow, and what a policy says to it."""

BY_RIGHTS: dict[str, tuple[Act, str]] = {
    "capacity": (
        lambda who: who.merge(node(OWN, "/status"), CAPACITY),
        'cannot patch resource "nodes/status"',
    ),
    "a label through the status": (
        lambda who: who.merge(node(OWN, "/status"), FOREIGN),
        'cannot patch resource "nodes/status"',
    ),
    "a new node": (
        lambda who: who.create("/api/v1/nodes", bare_node("chart-node-c")),
        'cannot create resource "nodes"',
    ),
    "the end of a node": (lambda who: who.delete(node(OTHER)), 'cannot delete resource "nodes"'),
    "secrets": (lambda who: who.get(SECRETS), 'cannot list resource "secrets"'),
    "a pod": (
        lambda who: who.create(PODS, {"kind": "Pod", "apiVersion": "v1"}),
        'cannot create resource "pods"',
    ),
    "the end of a pod": (lambda who: who.delete(f"{PODS}/{OWN}"), 'cannot delete resource "pods"'),
}
"""What neither account of the chart has a right to."""

UNDER_ALL_RIGHTS: dict[str, tuple[Act, str]] = {
    **BY_POLICY,
    "capacity": (
        lambda who: who.merge(node(OWN, "/status"), CAPACITY),
        "neither the spec nor the status",
    ),
    "a label through the status": (
        lambda who: who.merge(node(OWN, "/status"), FOREIGN),
        "its own labels",
    ),
    "a new node": (BY_RIGHTS["a new node"][0], "may change that Node only"),
    "the end of a node": (BY_RIGHTS["the end of a node"][0], "may change that Node only"),
}
"""What a policy refuses to whatever rights somebody may have given to the account."""


def refused(act: Act, who: Api, said: str) -> None:
    """Assert that the API server refuses *act* of *who*, and what it says."""
    with pytest.raises(ApiError) as caught:
        act(who)
    assert caught.value.code in (403, 422)
    assert said in str(caught.value).replace('\\"', '"')  # it is JSON


class Release:
    """What ``helm install`` would send, applied, with the agent's pod on the Node ``OWN``."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.api = cluster.api
        rendered = render(VALUES, namespace=NAMESPACE)
        self.hooks = [one for one in rendered if is_hook(one)]
        # Helm's own order: namespaces and accounts first (releaseutil, InstallOrder).
        first = ("Namespace", "PriorityClass", "ServiceAccount", "ConfigMap")
        self.objects = sorted(
            (one for one in rendered if not is_hook(one)),
            key=lambda one: first.index(one["kind"]) if one["kind"] in first else len(first),
        )

    def install(self) -> None:
        """Apply the objects; return when rights and policies count."""
        for name in (OWN, OTHER):
            self.api.create("/api/v1/nodes", bare_node(name))
        for document in self.objects:
            objects.apply(self.api, document)
        wait_granted(self.api, self.objects)
        self.api.create(PODS, self.pod())
        loose = self.account(NAME)
        for attempt in (relabel, apply_event):
            wait_for("the policies count", partial(_says, loose, attempt, "names no node"))

    def one(self, kind: str) -> Object:
        """Return the one object or hook of *kind*."""
        (found,) = (one for one in (*self.objects, *self.hooks) if one["kind"] == kind)
        return found

    def pod(self) -> Object:
        """Return the pod that the controller would make of the DaemonSet for ``OWN``."""
        template = self.one("DaemonSet")["spec"]["template"]
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**template["metadata"], "name": OWN, "namespace": NAMESPACE},
            "spec": {**template["spec"], "nodeName": OWN},
        }

    def account(self, name: str, pod: str | None = None) -> Api:
        """Return the API server as the account *name* sees it, by a token of *pod* or of none."""
        spec: Object = {"expirationSeconds": 24 * 3600}
        if pod is not None:
            uid = self.api.get(f"{PODS}/{pod}")["metadata"]["uid"]
            spec["boundObjectRef"] = {"kind": "Pod", "apiVersion": "v1", "name": pod, "uid": uid}
        answer = self.api.create(
            f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{name}/token",
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec},
        )
        return Api(self.api.url, answer["status"]["token"], self.api.authority)

    def uninstall(self) -> None:
        """Delete what is there of the release, and its Nodes; namespaces would never be gone."""
        for document in reversed((*self.objects, *self.hooks)):
            if document["kind"] not in ("Namespace", "Job", "Pod"):
                self._delete(objects.place(self.api, document))
        for path in (f"{PODS}/{OWN}", f"{EVENTS}/{OTHER}.probe", node(OWN), node(OTHER)):
            self._delete(path)

    def _delete(self, path: str) -> None:
        if self.api.find(path) is not None:
            self.api.delete(path)


def _says(who: Api, attempt: Callable[[Api, str], None], said: str) -> bool:
    try:
        attempt(who, OTHER)
    except ApiError as error:
        return said in str(error)
    return False


@pytest.fixture(scope="module")
def release(cluster: Cluster) -> Iterator[Release]:
    """Return the release, installed."""
    found = Release(cluster)
    try:
        found.install()
        yield found
    finally:
        found.uninstall()


@pytest.fixture(scope="module")
def agent(release: Release) -> Api:
    """Return the API server as the agent's pod sees it."""
    return release.account(release.pod()["spec"]["serviceAccountName"], pod=OWN)


@pytest.fixture(scope="module")
def daemon(
    cluster: Cluster, agent: Api, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[NodeAgent]:
    """Return the daemon on an 8-GPU machine, started with the token of its pod."""
    host = tmp_path_factory.mktemp("host")
    unpack((MACHINES / SHAPE / "sysfs.txt").read_text("utf-8"), host)
    (host / "var/lib/kubelet/device-plugins").mkdir(parents=True)
    found = NodeAgent(
        OWN,
        MACHINES / SHAPE,
        home=tmp_path_factory.mktemp("home"),
        host=host,
        kubeconfig=cluster.control_plane.write_kubeconfig("chart-agent", agent.token),
        processes=cluster._processes,
    )
    found.start()
    yield found
    found.end()


def labels(api: Api, name: str) -> dict[str, str]:
    """Return the labels of the Node *name*."""
    found: dict[str, str] = api.get(node(name))["metadata"].get("labels", {})
    return found


def test_the_api_server_accepts_every_object_of_the_chart(release: Release) -> None:
    stored = [release.api.get(objects.place(release.api, one)) for one in release.objects]
    assert {one["kind"] for one in stored} >= {
        *("Namespace", "PriorityClass", "ServiceAccount", "ConfigMap", "DaemonSet"),
        *("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "NetworkPolicy"),
        *("FlowSchema", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
    }
    for hook in release.hooks:
        objects.apply(release.api, hook, is_dry_run=True)
    assert {one["kind"] for one in release.hooks} >= {"Job", "Pod"}


def test_hostpath_is_all_that_keeps_the_pod_from_the_baseline_of_pod_security(
    release: Release,
) -> None:
    name = "chart-baseline"
    enforced = {"pod-security.kubernetes.io/enforce": "baseline"}
    namespace = {"apiVersion": "v1", "kind": "Namespace"}
    objects.apply(release.api, {**namespace, "metadata": {"name": name, "labels": enforced}})
    pod = release.pod()
    pod["metadata"] = {**pod["metadata"], "namespace": name}
    path = f"/api/v1/namespaces/{name}/pods?dryRun=All"
    with pytest.raises(ApiError, match=r"violates PodSecurity .*: hostPath volumes \([^)]*\)\""):
        release.api.create(path, pod)


def test_the_token_is_that_of_the_pod_on_its_node(agent: Api) -> None:
    kind = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    who = agent.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", kind)
    user = who["status"]["userInfo"]
    assert user["username"] == f"system:serviceaccount:{NAMESPACE}:{NAME}"
    assert user["extra"]["authentication.kubernetes.io/node-name"] == [OWN]


def test_the_daemon_labels_its_node_by_that_token(release: Release, daemon: NodeAgent) -> None:
    wait_for(
        "the daemon labels its Node",
        lambda: labels(release.api, OWN).get(COUNT) == "8",
        evidence=daemon.log_since_start,
    )
    assert labels(release.api, OWN)["foreign.example/key"] == "set"
    assert labels(release.api, OTHER)[COUNT] == bare_node(OTHER)["metadata"]["labels"][COUNT]


@pytest.mark.parametrize("what", [*BY_POLICY, *BY_RIGHTS, "the list of nodes"])
def test_the_agent_is_refused(agent: Api, what: str) -> None:
    others: dict[str, tuple[Act, str]] = {
        "the list of nodes": (
            lambda who: who.get("/api/v1/nodes"),
            'cannot list resource "nodes"',
        )
    }
    act, said = (BY_POLICY | BY_RIGHTS | others)[what]
    refused(act, agent, said)


def test_a_token_of_no_pod_may_label_no_node(release: Release) -> None:
    refused(lambda who: relabel(who, OWN), release.account(NAME), "names no node")


@pytest.fixture(scope="module")
def mighty(release: Release, agent: Api) -> Iterator[Api]:
    """Return the API server as the agent sees it, given all rights."""
    group = "rbac.authorization.k8s.io"
    binding: dict[str, Any] = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"{NAME}-mighty"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}],
    }
    objects.apply(release.api, binding)
    wait_for("the rights count", lambda: _may(agent, lambda who: who.get(SECRETS)))
    yield agent
    release.api.delete(objects.place(release.api, binding))
    wait_for("the rights are gone", lambda: not _may(agent, lambda who: who.get(SECRETS)))


def _may(who: Api, act: Act) -> bool:
    try:
        act(who)
    except ApiError:
        return False
    return True


@pytest.mark.parametrize("what", UNDER_ALL_RIGHTS)
def test_a_policy_refuses_it_whatever_its_rights(mighty: Api, what: str) -> None:
    act, said = UNDER_ALL_RIGHTS[what]
    refused(act, mighty, said)


@pytest.fixture(scope="module")
def cleaner(release: Release, daemon: NodeAgent) -> Api:
    """Uninstall the release as helm does, and return the API server as the Job then sees it."""
    wait_for("the Node is labelled", lambda: COUNT in labels(release.api, OWN))
    daemon.stop()
    for document in reversed(release.objects):
        if document["kind"] != "Namespace":
            release.api.delete(objects.place(release.api, document))
    granted = [
        one
        for one in release.hooks
        if one["metadata"]["annotations"]["helm.sh/hook"] == "post-delete" and one["kind"] != "Job"
    ]
    for document in granted:
        objects.apply(release.api, document)
    wait_granted(release.api, granted)
    return release.account(release.one("Job")["spec"]["template"]["spec"]["serviceAccountName"])


@pytest.mark.parametrize("what", [*BY_RIGHTS, "an Event"])
def test_the_job_of_an_uninstall_is_refused(cleaner: Api, what: str) -> None:
    others: dict[str, tuple[Act, str]] = {
        "an Event": (lambda who: apply_event(who, OWN), 'cannot patch resource "events"')
    }
    act, said = (BY_RIGHTS | others)[what]
    refused(act, cleaner, said)


def test_the_job_takes_our_labels_from_all_nodes_and_leaves_those_of_others(
    cluster: Cluster, release: Release, cleaner: Api
) -> None:
    NodeLabelPublisher(cluster.kubeconfig, OTHER).publish(desired({COUNT: "4"}))
    (container,) = release.one("Job")["spec"]["template"]["spec"]["containers"]
    kubeconfig = cluster.control_plane.write_kubeconfig("chart-cleaner", cleaner.token)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "nodetopo", *container["args"]),
            *("--kubeconfig", kubeconfig, "--output", "json"),
        ],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    places = {one["place"]: one["labels"] for one in json.loads(done.stdout)["places"]}
    assert {COUNT} <= places[f"node/{OWN}"].keys()
    assert places[f"node/{OTHER}"] == {COUNT: "4"}
    for name in (OWN, OTHER):
        found = labels(release.api, name)
        assert found["foreign.example/key"] == "set"
        assert [key for key in found if key.startswith("nvidia.com/")] == [
            "nvidia.com/gpu.deploy.driver"
        ]
