"""The cluster of the nightly proof: labelled by our agents, its topologies exported by us.

The real API server and kube-scheduler, twelve nodes of ``tests.lab.schedulers.fabric``, and
beside them KAI and Kueue. Each serves its own gangs; a trial leaves nothing behind.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from nodetopo.tools.cluster.export.formats import export
from nodetopo.tools.cluster.export.record import ExportOptions
from nodetopo.tools.cluster.node import cluster_node
from tests.lab.api import Api, Object
from tests.lab.cluster import Cluster
from tests.lab.processes import Processes
from tests.lab.schedulers import crds, fabric, objects
from tests.nightly.kai import Kai
from tests.nightly.kueue import Kueue
from tests.nightly.trial import Scheduler

CLIQUES: Mapping[str, str] = MappingProxyType(
    {
        name: "-".join(map(str, one.fabric)) if one.fabric else name
        for name, one in fabric.MACHINES.items()
    }
)
"""The NVLink partition that each node is in, by its hardware and not by what its labels say."""


class NightlyCluster:
    """Both schedulers on one cluster.

    Attributes:
        schedulers: by the name that ``nodetopo export --for`` has for them.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.schedulers: Mapping[str, Scheduler] = {
            "kai": Kai(self.api, exported(self.api, "kai")),
            "kueue": Kueue(self.api, exported(self.api, "kueue")),
        }

    @property
    def api(self) -> Api:
        """The API server, spoken to as administrator."""
        return self._cluster.api

    def start(self, processes: Processes) -> None:
        """Create what is exported and start the schedulers."""
        for name, scheduler in self.schedulers.items():
            for one in exported(self.api, name):
                objects.apply(self.api, one)
            scheduler.start(self._cluster.kubeconfig, processes)

    @contextmanager
    def unlabelled(self) -> Iterator[None]:
        """Take all our labels from the nodes for the time of a block."""
        fabric.withdraw(self._cluster)
        try:
            yield
        finally:
            fabric.publish(self._cluster)


@contextmanager
def running() -> Iterator[NightlyCluster]:
    """Start everything, and end it after the block."""
    cluster = Cluster()
    cluster.start()
    home = cluster.run_dir / "nightly"
    home.mkdir()
    processes = Processes(home)
    try:
        crds.install(cluster.api, "kai", "kueue")
        fabric.build(cluster)
        fabric.publish(cluster)
        nightly = NightlyCluster(cluster)
        nightly.start(processes)
        yield nightly
    finally:
        processes.stop_all()
        cluster.stop()


def exported(api: Api, scheduler: str) -> tuple[Object, ...]:
    """Return the objects that ``nodetopo export --for SCHEDULER`` prints for the nodes there."""
    nodes = [cluster_node(one["metadata"]) for one in api.get("/api/v1/nodes")["items"]]
    return tuple(dict(one) for one in export(scheduler, nodes, ExportOptions()).objects)
