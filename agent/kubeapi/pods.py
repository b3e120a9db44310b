"""What the API server has of a node: its pods, its own object, what our account may do."""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from agent.errors import ApiUnavailable, DecodeError
from agent.model.node import NodeStatus
from agent.model.pod import Container, Pod
from agent.probes.pods.manifest import pods_from_manifest
from agent.probes.pods.objects import node_status_from_object, pod_from_object

# What an account of Kubernetes may do: the question to the API server, and its answer.

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
"""Where an account asks about itself; all accounts may (ClusterRole ``system:basic-user``)."""


ASKED = ("get nodes/proxy", "create nodes/proxy", "get nodes/configz", "get nodes/metrics")
"""What an audit wants to know: the first two let an account run commands in any pod of a node
(https://kubernetes.io/docs/concepts/security/rbac-good-practices/#access-to-proxy-subresource-of-nodes),
the others are all that reading the kubelet's settings and counts takes."""


def review(right: str) -> Mapping[str, Any]:
    """Return the question whether our account has *right*, ``verb resource[/subresource]``."""
    verb, _, resource = right.partition(" ")
    name, _, subresource = resource.partition("/")
    attributes = {"verb": verb, "resource": name, "subresource": subresource}
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }


def is_allowed(answer: Mapping[str, Any]) -> bool:
    """Return what the API server says to a question; one without a verdict is a no."""
    status = answer.get("status")
    return isinstance(status, Mapping) and status.get("allowed") is True


__all__ = ["ApiServer", "joined", "pod_from_object", "pods_from_manifest", "pods_of_node"]


TIMEOUT_S = 10.0
"""Patience for one answer."""


PAGE_SIZE = 100
"""Pods asked for at once: a page of usual pods is 1 MiB, and one of the largest 150 MiB."""


MAX_PAGES = 100
"""A guard against a server that never ends; a kubelet runs 110 pods unless told otherwise."""


MAX_ANSWER_BYTES = 32 << 20
"""Largest answer read; a page of pods of 320 KiB each. Decoded, it is some ten times as much."""


_SUCCESS = (200, 201)


class ApiServer:
    """The API server as our account sees it, asked by hand and not watched.

    Once it could not be reached, further questions fail at once with the same words.
    """

    def __init__(self, kubeconfig: Path | None) -> None:
        """Ask nothing yet.

        Without *kubeconfig* the service account of the own pod is used, or else the kubeconfig
        that kubectl would take.

        Raises:
            ApiUnavailable: no such account or file.
        """
        self._client = _client(kubeconfig)
        self._lost: str | None = None

    def pods(self, node: str) -> tuple[Pod, ...]:
        """Return the pods bound to *node*, in the server's order, finished ones included.

        Raises:
            ApiUnavailable: no answer, or the list is refused.
        """
        pods: list[Pod] = []
        query = {"fieldSelector": f"spec.nodeName={node}", "limit": str(PAGE_SIZE)}
        for _ in range(MAX_PAGES):
            page = self._get(f"/api/v1/pods?{urlencode(query)}", "allow `list` on pods")
            pods.extend(map(_pod, _items(page)))
            token = _continue(page)
            if not token:
                return tuple(pods)
            query["continue"] = token
        raise ApiUnavailable(f"more than {MAX_PAGES * PAGE_SIZE} pods on node {node!r}")

    def node(self, name: str) -> NodeStatus:
        """Return what the server has of the node *name*.

        Raises:
            ApiUnavailable: no answer, or it is refused.
        """
        found = self._get(f"/api/v1/nodes/{quote(name, safe='')}", "allow `get` on nodes")
        try:
            return node_status_from_object(found)
        except DecodeError as error:
            raise ApiUnavailable(f"the API server sent an unreadable node: {error}") from error

    def rights(self, asked: Iterable[str]) -> dict[str, bool]:
        """Return ``verb resource`` → whether our account may do it on any object.

        Raises:
            ApiUnavailable: no answer, or the question is refused.
        """
        cure = "allow `create` on selfsubjectaccessreviews"
        return {
            right: is_allowed(self._ask("POST", REVIEWS, cure, review(right))) for right in asked
        }

    def _get(self, path: str, cure: str) -> Mapping[str, Any]:
        return self._ask("GET", path, cure, None)

    def _ask(self, method: str, path: str, cure: str, body: object) -> Mapping[str, Any]:
        if self._lost is not None:
            raise ApiUnavailable(self._lost)
        from urllib3.exceptions import HTTPError  # noqa: PLC0415 - comes with kubernetes

        try:
            return _ask(self._client, method, path, cure, body)
        except HTTPError as error:
            url = f"{self._client.configuration.host}{path.partition('?')[0]}"
            self._lost = f"{method} {url}: {error}"
            cure = "check the address in the kubeconfig and that the API server runs"
            raise ApiUnavailable(self._lost, cure) from error


def pods_of_node(kubeconfig: Path | None, node: str) -> tuple[Pod, ...]:
    """Return the pods bound to *node*, as :meth:`ApiServer.pods` does.

    Raises:
        ApiUnavailable: no account or file that can be used, no answer, or the list is refused.
    """
    return ApiServer(kubeconfig).pods(node)


def joined(api_pods: Iterable[Pod], assigned_pods: Iterable[Pod]) -> tuple[Pod, ...]:
    """Return *api_pods* with the devices, CPUs and memory that *assigned_pods* state.

    Pods are matched by namespace and name, containers by name. What only the kubelet knows
    of follows at the end, with unknown spec; what only the API server knows of stays
    without assignments.
    """
    assigned = {(pod.namespace, pod.name): pod for pod in assigned_pods}
    known = tuple(_joined(pod, assigned.pop((pod.namespace, pod.name), None)) for pod in api_pods)
    return (*known, *assigned.values())


def _joined(pod: Pod, assigned: Pod | None) -> Pod:
    if assigned is None:
        return pod
    given = {container.name: container for container in assigned.containers}
    containers = tuple(
        _given(container, given.pop(container.name, None)) for container in pod.containers
    )
    return replace(pod, containers=(*containers, *given.values()))


def _given(container: Container, assigned: Container | None) -> Container:
    if assigned is None:
        return container
    return replace(container, devices=assigned.devices, cpus=assigned.cpus, memory=assigned.memory)


def _client(kubeconfig: Path | None) -> Any:
    # Imported here: 21 MiB that nothing but this question needs.
    from kubernetes import config  # noqa: PLC0415
    from kubernetes.client import ApiClient, Configuration  # noqa: PLC0415
    from yaml import YAMLError  # noqa: PLC0415

    load: Any = config  # the package is typed, but for this module of it
    configuration = Configuration()
    try:
        if kubeconfig is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
            load.load_incluster_config(client_configuration=configuration)
        else:
            file = None if kubeconfig is None else str(kubeconfig)
            load.load_kube_config(file, client_configuration=configuration, persist_config=False)
        return ApiClient(configuration)
    # The package checks no types: a file that is no kubeconfig ends in any of these.
    except (
        config.ConfigException,
        OSError,
        YAMLError,
        ValueError,
        TypeError,
        AttributeError,
        KeyError,
    ) as error:
        origin = kubeconfig or "the default kubeconfig or service account"
        raise ApiUnavailable(
            f"cannot use {origin}: {' '.join(str(error).split())}",
            "give a readable kubeconfig with --kubeconfig",
        ) from error


def _ask(client: Any, method: str, path: str, cure: str, body: object) -> Mapping[str, Any]:
    url = f"{client.configuration.host}{path.partition('?')[0]}"
    response = client.rest_client.pool_manager.request(
        method,
        f"{client.configuration.host}{path}",
        headers={
            "Accept": "application/json",
            "Content-Type": "application/json",
            **_authorization(client.configuration),
        },
        body=None if body is None else json.dumps(body),
        timeout=TIMEOUT_S,
        retries=False,
        preload_content=False,
    )
    try:
        text = response.read(MAX_ANSWER_BYTES + 1)
    finally:
        response.release_conn()
        response.close()
    if response.status not in _SUCCESS:
        cure = f"{cure} to this account" if response.status == 403 else ""
        raise ApiUnavailable(f"{method} {url}: HTTP {response.status} {response.reason}", cure)
    if len(text) > MAX_ANSWER_BYTES:
        raise ApiUnavailable(f"{method} {url}: larger than {MAX_ANSWER_BYTES >> 20} MiB")
    return _object(text, f"{method} {url}")


def _object(text: bytes, asked: str) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ApiUnavailable(f"{asked}: the answer is not JSON") from error
    return found if isinstance(found, dict) else {}


def _authorization(configuration: Any) -> dict[str, str]:
    from kubernetes.config import ConfigException  # noqa: PLC0415

    try:
        # Asking for the settings also rereads a rotated service account token.
        settings = configuration.auth_settings().values()
    except (ConfigException, OSError) as error:
        raise ApiUnavailable(f"cannot read the service account token: {error}") from error
    return {item["key"]: item["value"] for item in settings if item["in"] == "header"}


def _items(page: Mapping[str, Any]) -> list[Any]:
    items = page.get("items")
    if not isinstance(items, list):
        raise ApiUnavailable("the API server's list of pods has no items")
    return items


def _continue(page: Mapping[str, Any]) -> str | None:
    metadata = page.get("metadata")
    token = metadata.get("continue") if isinstance(metadata, dict) else None
    return token if isinstance(token, str) else None


def _pod(item: Any) -> Pod:
    try:
        return pod_from_object(item if isinstance(item, dict) else {})
    except DecodeError as error:
        raise ApiUnavailable(f"the API server sent a pod that cannot be read: {error}") from error
