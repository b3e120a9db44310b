"""The agent as a pod: its service account is all that it knows of the API server."""

import sys
from pathlib import Path

import pytest

from tests.bench.footprint_lab import ROOT, Account, running
from tests.lab import deployment
from tests.lab.cluster import Cluster
from tests.lab.machine_node import Node

pytestmark = pytest.mark.lab

COUNT = "nvidia.com/gpu.count"

PROGRAM = (
    "import sys, atexit; from nodetopo.__main__ import main; "
    "atexit.register(lambda: print('kubernetes' in sys.modules)); sys.exit(main())"
)


def test_a_pod_labels_its_node_with_its_service_account_alone(
    cluster: Cluster, h100: Node, tmp_path: Path
) -> None:
    h100.agent.stop()
    path = f"/api/v1/nodes/{h100.name}"
    cluster.api.merge(path, {"metadata": {"labels": {COUNT: None}}})
    cluster.control_plane.agent_kubeconfig()  # applies the account
    token = deployment.service_account_token(cluster.api, deployment.manifests())
    account = Account(cluster.api, token, tmp_path)
    with running(h100, account, ROOT, (sys.executable, "-c", PROGRAM), ()):
        h100.wait_labels({COUNT: "8"})
    owners = cluster.api.get(path)["metadata"]["managedFields"]
    (ours,) = (entry for entry in owners if COUNT in str(entry))
    assert ours["manager"].startswith("nodetopo")
    assert (tmp_path / "output").read_text().splitlines()[-1] == "False"
