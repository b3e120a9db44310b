"""What ``deploy/daemonset`` holds, read the way ``kubectl apply -k`` reads a plain base."""

from pathlib import Path
from urllib.parse import quote

import yaml

from tests.deploy.kustomize import set_images
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
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
}


def manifests(directory: Path = BASE) -> tuple[Object, ...]:
    """Return the objects of a kustomization of resources, namespace, labels and images.

    Raises:
        AssertionError: it uses more of kustomize than the lab renders.
    """
    plan = yaml.safe_load((directory / "kustomization.yaml").read_text("utf-8"))
    beyond = set(plan) - {"apiVersion", "kind", "resources", "namespace", "labels", "images"}
    assert not beyond, f"the lab does not render {sorted(beyond)} of {directory}"
    found = [document for name in plan["resources"] for document in _load(directory / name)]
    for document in found:
        place = document["metadata"]
        for entry in plan.get("labels", ()):
            place["labels"] = {**place.get("labels", {}), **entry["pairs"]}
        if "namespace" in plan and "{namespace}" in _COLLECTIONS[document["kind"]]:
            place["namespace"] = plan["namespace"]
    set_images(found, plan.get("images", ()))
    return tuple(found)


def _load(resource: Path) -> tuple[Object, ...]:
    if resource.is_dir():
        return manifests(resource)
    return tuple(filter(None, yaml.safe_load_all(resource.read_text("utf-8"))))


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
