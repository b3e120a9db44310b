"""What ``kubectl apply -k deploy/daemonset`` would send, and how it gets there."""

from pathlib import Path
from urllib.parse import quote

from tests.deploy.kustomize import render
from tests.lab.api import Api, Object
from tests.lab.granted import wait_granted

_TOKEN_S = 24 * 3600
"""An hour unless asked for, and a lab on a slow machine may run longer."""

BASE = Path(__file__).parents[2] / "deploy" / "daemonset"

_COLLECTIONS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "ConfigMap": "/api/v1/namespaces/{namespace}/configmaps",
    "DaemonSet": "/apis/apps/v1/namespaces/{namespace}/daemonsets",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
    "DeviceClass": "/apis/resource.k8s.io/v1/deviceclasses",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
}


def manifests(directory: Path = BASE) -> tuple[Object, ...]:
    """Return the objects of a kustomization.

    Raises:
        AssertionError: it uses more of kustomize than the tests render.
    """
    return tuple(render(directory))


def path(document: Object) -> str:
    """Return where the API server keeps *document*."""
    place = document["metadata"]
    collection = _COLLECTIONS[document["kind"]].format(namespace=place.get("namespace"))
    return f"{collection}/{quote(place['name'], safe='')}"


def apply(api: Api, documents: tuple[Object, ...]) -> None:
    """Apply *documents* in their order; return when what they grant is granted."""
    for document in documents:
        api.apply(path(document), document)
    wait_granted(api, documents)


def service_account_token(api: Api, documents: tuple[Object, ...]) -> str:
    """Return a token of the one ServiceAccount in *documents*, which must be applied."""
    (account,) = (entry for entry in documents if entry["kind"] == "ServiceAccount")
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": _TOKEN_S},
    }
    answer = api.create(f"{path(account)}/token", request)
    token: str = answer["status"]["token"]
    return token
