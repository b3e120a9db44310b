"""One-off reads of the API server: a node's pods, its Node object, our account's permissions."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from msgspec.structs import replace

from nodetopo.errors import ApiUnavailable, DecodeError
from nodetopo.formats.responses import part, parts
from nodetopo.kubeapi.client import MAX_LIST, NOT_FOUND, Api, Unreachable, following_page, pages
from nodetopo.model.dra import SLICES, PublishedDevice
from nodetopo.model.node import NodeStatus
from nodetopo.model.pod import Container, Pod
from nodetopo.probes.dra import devices_of
from nodetopo.probes.pods.manifest import pods_from_manifest
from nodetopo.probes.pods.objects import node_status_from_object, pod_from_object

__all__ = ["ApiServer", "joined", "pod_from_object", "pods_from_manifest", "pods_of_node"]

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
"""Path of an account's questions about its permissions, open to all accounts (ClusterRole
``system:basic-user``).
"""

REVIEWS_OF_OTHERS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
"""Where an administrator asks about another account."""

WHO_AM_I = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
"""Path of an account's question about its own name, open to all accounts since Kubernetes 1.28."""

AGENT_PODS = "app.kubernetes.io/name=nodetopo"
"""Selects the pods of ``deploy/daemonset``."""

ACCOUNT = "system:serviceaccount:"
"""Begins the user name of a service account, ``NAMESPACE:NAME`` follows
(k8s.io/apiserver, authentication/serviceaccount/util.go)."""

AUDITED_RIGHTS = ("get nodes/proxy", "create nodes/proxy", "get nodes/configz", "get nodes/metrics")
"""The rights that an audit checks: the first two let an account run commands in any pod of a node
(https://kubernetes.io/docs/concepts/security/rbac-good-practices/#access-to-proxy-subresource-of-nodes),
the others are all that reading the kubelet's settings and counts takes."""

PAGE_SIZE = 100
"""Pods requested at once: a page of usual pods is 1 MiB, and one of the largest 150 MiB."""

MAX_PAGES = 100
"""A guard against a server that never ends; a kubelet runs 110 pods unless configured otherwise."""

MAX_ANSWER_BYTES = 32 << 20
"""Largest answer read; a page of pods of 320 KiB each. Decoded, it is some ten times as much."""


class ApiServer:
    """The API server as our account sees it.

    Questions raise ApiUnavailable if there is no answer, or it is refused or malformed. Once the
    server could not be reached, further questions fail at once with the same words.
    """

    def __init__(self, kubeconfig: Path | None) -> None:
        """Ask nothing yet.

        Without *kubeconfig* the service account of the own pod is used.
        """
        self._api = Api(kubeconfig)
        self._lost: str | None = None

    def pods(self, node: str) -> tuple[Pod, ...]:
        """Return the pods bound to *node*, in the server's order, finished ones included."""

        def page(query: Mapping[str, str]) -> Mapping[str, Any]:
            return self._ask("/api/v1/pods", query, grant="allow `list` on pods")

        pods: list[Pod] = []
        selector = {"fieldSelector": f"spec.nodeName={node}"}
        for number, body in enumerate(pages(page, selector, PAGE_SIZE), start=1):
            items = body.get("items")
            if not isinstance(items, list):
                raise ApiUnavailable("the API server's list of pods has no items")
            try:
                pods += [pod_from_object(item if isinstance(item, dict) else {}) for item in items]
            except DecodeError as error:
                problem = f"the API server sent a pod that cannot be read: {error}"
                raise ApiUnavailable(problem) from error
            if number == MAX_PAGES and following_page(body):
                raise ApiUnavailable(f"more than {MAX_PAGES * PAGE_SIZE} pods on node {node!r}")
        return tuple(pods)

    def published(self, node: str) -> tuple[PublishedDevice, ...]:
        """Return the devices that DRA drivers publish for *node*, as :func:`devices_of` does.

        Empty where the API server has no DRA.
        """
        answer = self._api.get(SLICES, {"fieldSelector": f"spec.nodeName={node}"}, MAX_LIST)
        if answer.status == NOT_FOUND:
            return ()
        if answer.status != 200:
            cure = "allow `list` on resourceslices to this account"
            raise ApiUnavailable(f"GET {self._api.host}{SLICES}: {answer.problem}", cure)
        return devices_of(parts(answer.body, "items"))

    def node(self, name: str) -> NodeStatus:
        path = f"/api/v1/nodes/{quote(name, safe='')}"
        try:
            return node_status_from_object(self._ask(path, {}, grant="allow `get` on nodes"))
        except DecodeError as error:
            raise ApiUnavailable(f"the API server sent an unreadable node: {error}") from error

    def agent_rights(self, node: str, asked: Iterable[str]) -> dict[str, bool]:
        """Return ``verb resource`` → whether the agent's account can do it on any object.

        It is the account of the agent's pod on *node*, else the asking account, if it is a service
        account: a person's permissions prove nothing about the agent.
        """
        own, agent = self.account(), self._agent_account(node)
        if own == agent or (agent is None and own.startswith(ACCOUNT)):
            return self.rights(asked)
        if agent is None:
            raise ApiUnavailable(
                f"this is the account {own}, and no pod of the agent is on node {node!r}"
            )
        return self.rights(asked, agent)

    def account(self) -> str:
        """Return the user name of our account."""
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        grant = "allow `create` on selfsubjectreviews"
        answer = self._ask(WHO_AM_I, {}, grant=grant, body=body)
        return str(part(part(answer, "status"), "userInfo").get("username") or "without a name")

    def rights(self, asked: Iterable[str], user: str | None = None) -> dict[str, bool]:
        """Return ``verb resource`` → whether *user*, or our account, can do it on any object."""
        path, what = REVIEWS, "selfsubjectaccessreviews"
        if user is not None:
            path, what = REVIEWS_OF_OTHERS, f"subjectaccessreviews, to ask about {user}"
        grant = f"allow `create` on {what}"
        return {
            right: is_allowed(self._ask(path, {}, grant=grant, body=review(right, user)))
            for right in asked
        }

    def _agent_account(self, node: str) -> str | None:
        """Return the user name of the agent on *node*; ``None`` if it has no pod there."""
        query = {"fieldSelector": f"spec.nodeName={node}", "labelSelector": AGENT_PODS}
        for pod in parts(self._ask("/api/v1/pods", query, grant="allow `list` on pods"), "items"):
            namespace = part(pod, "metadata").get("namespace")
            name = part(pod, "spec").get("serviceAccountName")
            if namespace and name:
                return f"{ACCOUNT}{namespace}:{name}"
        return None

    def _ask(
        self,
        path: str,
        query: Mapping[str, str],
        *,
        grant: str,
        body: Mapping[str, Any] | None = None,
    ) -> Mapping[str, Any]:
        if self._lost is not None:
            raise ApiUnavailable(self._lost)
        try:
            return self._api.ask(path, query, grant=grant, max_bytes=MAX_ANSWER_BYTES, body=body)
        except Unreachable as error:
            self._lost = error.cause
            raise


def pods_of_node(kubeconfig: Path | None, node: str) -> tuple[Pod, ...]:
    """Return the pods bound to *node*, as :meth:`ApiServer.pods` does.

    Raises:
        ApiUnavailable: no account or file that can be used, no answer, or the list is refused.
    """
    return ApiServer(kubeconfig).pods(node)


def review(right: str, user: str | None = None) -> Mapping[str, Any]:
    """Return the question whether an account has *right*, ``verb resource[/subresource]``.

    *user* is the user name of a service account; ``None`` for the asking account.
    """
    verb, _, resource = right.partition(" ")
    name, _, subresource = resource.partition("/")
    attributes = {"verb": verb, "resource": name, "subresource": subresource}
    kind = "SelfSubjectAccessReview"
    spec: dict[str, Any] = {"resourceAttributes": attributes}
    if user is not None:
        # The groups of every service account; the API server does not look them up.
        all_accounts = ACCOUNT.rstrip(":") + "s"
        namespace = user.removeprefix(ACCOUNT).partition(":")[0]
        groups = [all_accounts, f"{all_accounts}:{namespace}", "system:authenticated"]
        kind = "SubjectAccessReview"
        spec |= {"user": user, "groups": groups}
    return {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}


def is_allowed(answer: Mapping[str, Any]) -> bool:
    """Return the verdict in the *answer* to :func:`review`; False where it has none."""
    status = answer.get("status")
    return isinstance(status, Mapping) and status.get("allowed") is True


def joined(api_pods: Iterable[Pod], assigned_pods: Iterable[Pod]) -> tuple[Pod, ...]:
    """Return *api_pods* with the devices, CPUs and memory of *assigned_pods* and their containers.

    Pods are matched by namespace and name, containers by name. Pods and containers known only to
    the kubelet follow at the end, with unknown spec; those known only to the API server have no
    assignments.
    """
    assigned = {(pod.namespace, pod.name): pod for pod in assigned_pods}
    known: list[Pod] = []
    for pod in api_pods:
        other = assigned.pop((pod.namespace, pod.name), None)
        if other is None:
            known.append(pod)
            continue
        by_name = {container.name: container for container in other.containers}
        containers: list[Container] = []
        for container in pod.containers:
            given = by_name.pop(container.name, None)
            containers.append(
                container
                if given is None
                else replace(
                    container,
                    devices=given.devices,
                    cpus=given.cpus,
                    memory=given.memory,
                    claimed=given.claimed,
                )
            )
        containers += by_name.values()
        known.append(
            replace(pod, containers=tuple(containers), cpus=other.cpus, memory=other.memory)
        )
    return (*known, *assigned.values())
