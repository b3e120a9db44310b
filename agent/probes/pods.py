"""The node's pods, from the API server, and joined with what the kubelet assigned to them."""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from agent.errors import ApiUnavailable, DecodeError
from agent.model.pod import Container, Pod
from agent.probes.pod_manifest import pods_from_manifest
from agent.probes.pod_object import pod_from_object

__all__ = ["joined", "pod_from_object", "pods_from_manifest", "pods_of_node"]

TIMEOUT_S = 10.0
"""Patience for one page."""

PAGE_SIZE = 500
"""Pods asked for at once; client-go's pager takes as many."""

MAX_PAGES = 20
"""A guard against a server that never ends; a kubelet runs 110 pods unless told otherwise."""

_OK = 200


def pods_of_node(kubeconfig: Path | None, node: str) -> tuple[Pod, ...]:
    """Return the pods bound to *node*, in the API server's order, finished ones included.

    Without *kubeconfig* the service account of the own pod is used, or else the kubeconfig
    that kubectl would take.

    Raises:
        ApiUnavailable: no such account or file, no answer, or the list is refused.
    """
    client = _client(kubeconfig)
    pods: list[Pod] = []
    query = {"fieldSelector": f"spec.nodeName={node}", "limit": str(PAGE_SIZE)}
    for _ in range(MAX_PAGES):
        page = _page(client, query)
        pods.extend(map(_pod, _items(page)))
        token = _continue(page)
        if not token:
            return tuple(pods)
        query["continue"] = token
    raise ApiUnavailable(f"more than {MAX_PAGES * PAGE_SIZE} pods on node {node!r}")


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


def _page(client: Any, query: Mapping[str, str]) -> Mapping[str, Any]:
    from urllib3.exceptions import HTTPError  # noqa: PLC0415 - comes with kubernetes

    url = f"{client.configuration.host}/api/v1/pods"
    try:
        response = client.rest_client.pool_manager.request(
            "GET",
            f"{url}?{urlencode(query)}",
            headers={"Accept": "application/json", **_authorization(client.configuration)},
            timeout=TIMEOUT_S,
            retries=False,
        )
        page = json.loads(response.data) if response.status == _OK else None
    except HTTPError as error:
        cure = "check the address in the kubeconfig and that the API server runs"
        raise ApiUnavailable(f"GET {url}: {error}", cure) from error
    except (ValueError, RecursionError) as error:
        raise ApiUnavailable(f"GET {url}: the answer is not JSON") from error
    if response.status != _OK:
        cure = "allow `list` on pods to this account" if response.status == 403 else ""
        raise ApiUnavailable(f"GET {url}: HTTP {response.status} {response.reason}", cure)
    return page if isinstance(page, dict) else {}


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
