"""``explain-claim`` and ``export --for dra`` of a real API server's slices and claims."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from nodetopo.cli.main import main
from nodetopo.machines import bundled
from tests.lab.cluster import Cluster
from tests.tools.cluster.claimed import claim, plain
from tests.tools.cluster.export.dra_machines import slices

pytestmark = pytest.mark.lab

API = "/apis/resource.k8s.io/v1"
CLAIMS = f"{API}/namespaces/default/resourceclaims"
V100 = bundled.machine("dgx-1v")


@pytest.fixture
def published(cluster: Cluster) -> Iterator[Cluster]:
    """Return the cluster with what NVIDIA's driver publishes of one node."""
    (one,) = slices(V100, "n1")
    cluster.api.create(f"{API}/resourceslices", one)
    yield cluster
    for item in cluster.api.get(CLAIMS)["items"]:
        cluster.api.delete(f"{CLAIMS}/{item['metadata']['name']}")
    cluster.api.delete(f"{API}/resourceslices/{one['metadata']['name']}")


def allocated(cluster: Cluster, sent: Mapping[str, Any]) -> None:
    """Create a claim, with the status that *sent* has."""
    metadata = {"name": sent["metadata"]["name"]}
    cluster.api.create(CLAIMS, {**sent, "metadata": metadata, "status": {}})
    cluster.api.merge(f"{CLAIMS}/{metadata['name']}/status", {"status": sent["status"]})


def test_a_claim_is_explained_by_what_the_api_server_keeps_of_it_and_of_others(
    published: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    allocated(published, claim("first", plain(2), ["gpu-0", "gpu-3"], at=1))
    allocated(published, claim("job", plain(2), ["gpu-1", "gpu-4"], at=5))
    allocated(published, claim("later", plain(2), ["gpu-6", "gpu-7"], at=9))
    code = main(["explain-claim", "job", "--kubeconfig", str(published.kubeconfig), "-o", "json"])
    found = json.loads(capsys.readouterr().out)
    assert (code, found["verdict"], found["node"]) == (1, "worse", "n1")
    assert found["given"]["gpus"] == [1, 4]
    assert found["free"] == [1, 2, 4, 5, 6, 7]
    assert found["unknown"] == []


def test_the_shapes_of_a_cluster_are_those_of_its_slices(
    published: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    published.api.create("/api/v1/nodes", {"metadata": {"name": "n1"}})
    code = main(
        ["export", "--for", "dra", "--sizes", "2", "--kubeconfig", str(published.kubeconfig)]
    )
    published.api.delete("/api/v1/nodes/n1")
    (template,) = yaml.safe_load_all(capsys.readouterr().out)
    assert code == 0
    assert template["metadata"]["name"] == "gpu-topology-8x-tesla-v100-sxm2-32gb-2"
    assert len(template["spec"]["spec"]["devices"]["requests"][0]["firstAvailable"]) == 8
