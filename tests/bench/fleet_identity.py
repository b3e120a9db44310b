"""Who an agent of a fleet is: a token of the pod that runs it, which names the node."""

from typing import Any, Protocol

NAMESPACE = "nodetopo"
ACCOUNT = "nodetopo"

_LASTS_S = 4 * 3600
"""As long as a bench can take; the kubelet asks for an hour and renews."""


class Creates(Protocol):
    """What posts an object to a collection and returns what became of it."""

    def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Post *body* to the collection at *path*."""


def pod_token(api: Creates, node: str) -> str:
    """Create the agent's pod on *node*, and return the token that its kubelet would mount."""
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
    uid = api.create(pods, pod(node))["metadata"]["uid"]
    reference = {"kind": "Pod", "apiVersion": "v1", "name": node, "uid": uid}
    return _token(api, {"boundObjectRef": reference})


def loose_token(api: Creates) -> str:
    """Return a token of no pod, as ``kubectl create token`` makes it."""
    return _token(api, {})


def _token(api: Creates, spec: dict[str, Any]) -> str:
    answer = api.create(
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
