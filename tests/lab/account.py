"""Accounts of the lab's cluster with rights of the tests' choosing."""

from collections.abc import Sequence
from pathlib import Path

import yaml

from tests.lab.api import Api, Object
from tests.lab.deployment import apply, service_account_token

_RBAC = "rbac.authorization.k8s.io"


def account_token(api: Api, name: str, granted: Sequence[Object]) -> str:
    """Return a token of the service account *name*, which may do what the rules *granted* say."""
    who = {"name": name, "namespace": "default"}
    role = {"kind": "ClusterRole", "metadata": {"name": name}}
    binding = {
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", **who}],
    }
    documents: tuple[Object, ...] = (
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": who},
        {"apiVersion": f"{_RBAC}/v1", **role, "rules": list(granted)},
        {"apiVersion": f"{_RBAC}/v1", **role, "kind": "ClusterRoleBinding", **binding},
    )
    apply(api, documents)
    return service_account_token(api, documents)


def rules(directory: Path) -> list[Object]:
    """Return the rules of the one ClusterRole in *directory* of ``deploy/daemonset``."""
    documents = yaml.safe_load_all((directory / "rbac.yaml").read_text("utf-8"))
    (role,) = (one for one in documents if one["kind"] == "ClusterRole")
    found: list[Object] = role["rules"]
    return found
