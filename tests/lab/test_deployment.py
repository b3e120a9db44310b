"""What ``kubectl apply -k deploy/daemonset`` would send."""

import pytest

from tests.lab import deployment
from tests.lab.cluster import Cluster

pytestmark = pytest.mark.lab

_NAMES = (
    "Namespace",
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "DaemonSet",
)


def test_the_api_server_accepts_every_object_of_the_base(cluster: Cluster) -> None:
    documents = deployment.manifests()

    deployment.apply(cluster.api, documents)

    stored = [cluster.api.get(deployment.path(document)) for document in documents]
    assert tuple(entry["kind"] for entry in stored) == _NAMES
