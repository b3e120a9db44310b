"""Who an agent of a fleet is: a token of the pod that runs it, which names the node."""

from collections.abc import Callable
from typing import Any, TypeAlias

NAMESPACE = "nodetopo"
ACCOUNT = "nodetopo"

_LASTS_S = 4 * 3600
"""As long as a bench can take; the kubelet asks for an hour and renews."""


Create: TypeAlias = Callable[[str, dict[str, Any]], dict[str, Any]]
"""Posts an object to the collection at a path, and returns what became of it."""


def pod_token(create: Create, node: str) -> str:
    """Create the agent's pod on *node*, and return the token that its kubelet would mount."""
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
    uid = create(pods, pod(node))["metadata"]["uid"]
    reference = {"kind": "Pod", "apiVersion": "v1", "name": node, "uid": uid}
    return _token(create, {"boundObjectRef": reference})


def loose_token(create: Create) -> str:
    """Return a token of no pod, as ``kubectl create token`` makes it."""
    return _token(create, {})


def _token(create: Create, spec: dict[str, Any]) -> str:
    answer = create(
        f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}/token",
        {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": _LASTS_S, **spec},
        },
    )
    token: str = answer["status"]["token"]
    return token


def pod(node: str) -> dict[str, Any]:
    """Return the agent's pod on *node*, which gives it its name."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": node, "namespace": NAMESPACE},
        "spec": {
            "serviceAccountName": ACCOUNT,
            "nodeName": node,
            "containers": [{"name": "nodetopo", "image": "nodetopo"}],
        },
    }
