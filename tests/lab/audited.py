"""A node of the lab whose pods our loops measure and explain, with the rights that are deployed."""

from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.components.audit.alignment.loop import AlignmentLoop
from nodetopo.components.audit.alignment.measure import measured
from nodetopo.components.audit.alignment.record import PodAlignment
from nodetopo.components.audit.rejections_loop import RejectionsLoop
from nodetopo.kernel.events import PodEventPublisher
from nodetopo.kernel.running_pods import RunningPods
from nodetopo.kernel.settings.declare import Settings
from nodetopo.kernel.store import SnapshotStore
from nodetopo.kubeapi.pods import joined, pods_of_node
from nodetopo.model.codec import decode
from nodetopo.model.snapshot import Snapshot
from nodetopo.probes.kubelet.config import read_kubelet_settings
from tests.lab.account import account_token, rules
from tests.lab.api import Object
from tests.lab.cluster import Cluster
from tests.lab.deployment import BASE
from tests.lab.machine_node import Node


class AuditedNode(Struct, frozen=True):
    """A node, and what our loops say of its pods."""

    cluster: Cluster
    node: Node
    kubeconfig: Path

    @property
    def settings(self) -> Settings:
        """What the loops are told."""
        return Settings(
            node_name=self.node.name,
            kubeconfig=self.kubeconfig,
            sysfs_root=self.node.host / "sys",
            procfs_root=self.node.host / "proc",
            host_root=self.node.host,
            pod_resources_socket=self.node.pod_resources_socket,
        )

    def machine(self) -> Snapshot:
        """Return the machine with its kubelet's settings, as a scan finds them."""
        text = self.node.machine_dir.joinpath("snapshot.json").read_text("utf-8")
        kubelet, _issues = read_kubelet_settings(self.node.host, self.node.host / "proc")
        return replace(decode(text).snapshot, kubelet=kubelet)

    def rows(self) -> dict[str, PodAlignment]:
        """Return what is measured of each pod, by its name, as ``audit`` joins it."""
        held = RunningPods(self.settings)
        found = held.read(self.machine())
        held.close()
        specified = pods_of_node(self.kubeconfig, self.node.name)
        return _by_name(replace(found, pods=joined(specified, found.pods or ())))

    def rows_without_api(self) -> dict[str, PodAlignment]:
        """Return the same as the daemon measures it."""
        held = RunningPods(self.settings)
        found = held.read(self.machine())
        held.close()
        return _by_name(found)

    def auditing(self) -> tuple[AlignmentLoop, PodEventPublisher]:
        """Return the loop that measures, and the one that posts."""
        events = PodEventPublisher(self.kubeconfig, self.node.name)
        return AlignmentLoop(self.settings, self._store(), post=events.post), events

    def rejections(self) -> tuple[RejectionsLoop, PodEventPublisher]:
        """Return the loop that explains, and the one that posts."""
        events = PodEventPublisher(self.kubeconfig, self.node.name)
        return RejectionsLoop(self.settings, self._store(), post=events.post), events

    def told(self, pod: str, reason: str) -> list[Object]:
        """Return the Events of *reason* about *pod* that ``kubectl describe pod`` shows."""
        uid = self.cluster.pods.get(pod)["metadata"]["uid"]
        return [
            event
            for event in self.cluster.pods.events(pod)
            if event["reason"] == reason and event["involvedObject"]["uid"] == uid
        ]

    def _store(self) -> SnapshotStore:
        store = SnapshotStore()
        store.publish(self.machine())
        return store


def account(cluster: Cluster, component: str) -> Path:
    """Return the way in for an account with the base's rights and those of *component*."""
    name = f"lab-{component}"
    granted = [*rules(BASE / "base"), *rules(BASE / "components" / component)]
    return cluster.control_plane.write_kubeconfig(name, account_token(cluster.api, name, granted))


def _by_name(snapshot: Snapshot) -> dict[str, PodAlignment]:
    return {row.pod: row for row in measured(snapshot)}
