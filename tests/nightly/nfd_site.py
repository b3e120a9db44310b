"""A Node on a cluster with Node Feature Discovery, as the tests of our outputs want it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from nodetopo.components.labels.outputs.nfd import NfdFile
from nodetopo.components.labels.outputs.output import NFD_FILE, NODE_FEATURE, LabelOutput
from tests.lab import featured
from tests.lab.api import Api
from tests.lab.cluster import Cluster
from tests.lab.waiting import wait_for
from tests.nightly.nfd import NAMESPACE, Nfd

NODE = "featured"
PATH = f"/api/v1/nodes/{NODE}"
BARE = {"kubernetes.io/hostname": NODE, "vendor.example/before": "x"}
"""The labels of the Node that neither NFD nor we put there."""


class Site:
    """The Node, which has no kubelet, and NFD's programs.

    Attributes:
        nfd: all of it runs.
    """

    def __init__(self, cluster: Cluster, nfd: Nfd) -> None:
        self._cluster = cluster
        self.nfd = nfd

    @property
    def api(self) -> Api:
        """The API server, spoken to as administrator."""
        return self._cluster.api

    def output(self, name: str) -> LabelOutput:
        """Return our output *name*, as the agent on the Node has it."""
        return self._output(name, self._cluster.control_plane.agent_kubeconfig())

    def remove(self, name: str) -> Mapping[str, str]:
        """Take away what our output *name* published, as an administrator; return what that was."""
        return self._output(name, self._cluster.kubeconfig).remove().removed

    def _output(self, name: str, kubeconfig: Path) -> LabelOutput:
        if name == NFD_FILE:
            return NfdFile(self.nfd.features / "nodetopo")
        assert name == NODE_FEATURE
        return featured.publisher(kubeconfig, NODE)

    @contextmanager
    def file_of_others(self, labels: Mapping[str, str]) -> Iterator[None]:
        """Have another program's feature file, as GFD's is called, for the time of a block."""
        path = self.nfd.features / "gfd"
        path.write_text("".join(f"{key}={value}\n" for key, value in labels.items()), "utf-8")
        yield
        path.unlink()

    def labels(self) -> dict[str, str]:
        """Return the labels of the Node that were added."""
        found = self.api.get(PATH)["metadata"]["labels"]
        assert found.items() >= BARE.items()
        return {key: value for key, value in found.items() if key not in BARE}

    def wait_labels(self, wanted: Mapping[str, str]) -> None:
        """Wait until the labels that were added are just *wanted*."""
        wait_for(
            f"the Node has {len(wanted)} labels more",
            lambda: self.labels() == wanted,
            evidence=lambda: f"it has {self.labels()}\n{self.nfd.logs()}",
        )

    def delete_node(self) -> None:
        """Delete the Node."""
        self.api.delete(PATH)

    def create_node(self) -> None:
        """Create the Node, with no more than it had at first.

        Without any annotation, which a kubelet's Node never is, NFD cannot add its own.
        """
        annotations = {"vendor.example/before": "x"}
        metadata = {"name": NODE, "labels": dict(BARE), "annotations": annotations}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
        self.api.create("/api/v1/nodes", body)


@contextmanager
def running() -> Iterator[Site]:
    """Start everything, and end it after the block."""
    cluster = Cluster()
    cluster.start()
    home = cluster.run_dir / "nfd"
    home.mkdir()
    nfd = Nfd(cluster, home, NODE)
    try:
        featured.install(cluster)
        featured.add_pod(cluster.api, NODE)
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        cluster.api.create("/api/v1/namespaces", namespace)
        site = Site(cluster, nfd)
        site.create_node()
        nfd.start_master()
        nfd.start_worker()
        nfd.start_gc()
        yield site
    finally:
        nfd.stop()
        cluster.stop()
