"""What the pods of this node hold now, put into the newest snapshot; nothing asks the API server.

The kubelet's PodResources API tells what it gave, and its own files whose it is; cgroups tell what
is in force.
"""

from dataclasses import replace
from pathlib import Path

from agent.config.settings import Settings
from agent.model.snapshot import Snapshot
from agent.probes.kubelet_state import read_kubelet_state
from agent.probes.pod_cgroups import with_cgroups
from agent.probes.pod_uids import uids_by_holdings
from agent.probes.podresources import PodResources


class HeldPods:
    """Reads for one thread."""

    def __init__(self, settings: Settings) -> None:
        """Read nothing yet."""
        self._sysfs: Path = settings.sysfs_root
        self._host: Path = settings.host_root
        self._kubelet = PodResources(settings.pod_resources_socket)

    def read(self, snapshot: Snapshot) -> Snapshot:
        """Return *snapshot* with the node's pods, what the kubelet offers, and its state.

        Raises:
            UnreadableError: the kubelet does not answer.
        """
        offer = self._kubelet.offer()
        pods = self._kubelet.assigned()
        root = None if snapshot.kubelet is None else snapshot.kubelet.root_directory
        state, _issues = read_kubelet_state(self._host, root)
        uids = uids_by_holdings(pods, state)
        known = tuple(replace(pod, uid=uids.get((pod.namespace, pod.name))) for pod in pods)
        return replace(
            snapshot,
            pods=with_cgroups(self._sysfs, known),
            offer=offer,
            kubelet_state=state or snapshot.kubelet_state,
        )

    def close(self) -> None:
        """Leave the kubelet."""
        self._kubelet.close()
