"""Whose end is to take our objects along: what runs the pod that this program is in.

With the DaemonSet as owner an object outlives the pods, which a rollout replaces, and the
cluster's garbage collector deletes it after an uninstall. GFD names its pod as well
(k8s-device-plugin v0.19.0), which would be a write at each new pod.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import structlog

from agent.errors import ApiUnavailable
from agent.kubeapi.apply import Connect

Owners = tuple[Mapping[str, Any], ...]
"""Entries of ``metadata.ownerReferences``."""

_REFUSED = (401, 403, 404)


def owners_through_pod(connect: Connect, namespace: str, pod: str) -> Owners:
    """Return the controller of *pod*, as an owner; the pod itself where it has none.

    Empty where the API server does not let us see the pod: labels matter more than that
    somebody has to clean up.

    Raises:
        ApiUnavailable: it cannot be told now.
    """
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(pod, safe='')}"
    answer = connect().get_metadata(path, {"resourceVersion": "0"})
    if answer.status in _REFUSED:
        said = str(answer.body.get("message") or f"HTTP {answer.status}")
        structlog.get_logger().warning("owner of the pod not known", pod=pod, problem=said)
        return ()
    if answer.status != 200:
        raise ApiUnavailable(
            f"GET {path}: HTTP {answer.status}",
            "it is tried again later",
            retry_after_s=answer.retry_after_s,
        )
    metadata = answer.body.get("metadata") or {}
    itself = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": metadata.get("uid")}
    controllers = (one for one in metadata.get("ownerReferences") or () if one.get("controller"))
    return (_owner(next(controllers, itself)),)


def _owner(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return *found* as one owner among others: it neither controls nor holds up its deletion."""
    return {key: found.get(key) for key in ("apiVersion", "kind", "name", "uid")}
