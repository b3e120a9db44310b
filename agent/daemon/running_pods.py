"""What the pods of this node hold now, put into the newest snapshot; nothing asks the API server.

The kubelet's PodResources API tells what it gave, and its own files whose it is; cgroups tell what
is in force.
"""

from dataclasses import replace
from pathlib import Path

import structlog

from agent.config.settings import Settings
from agent.errors import UnreadableError
from agent.model.node import NodeOffer
from agent.model.snapshot import ProbeIssue, Snapshot
from agent.probes.kubelet.podresources import PodResources
from agent.probes.kubelet.state import read_kubelet_state
from agent.probes.pods.cgroups import with_cgroups
from agent.probes.pods.uids import uids_by_holdings


class HeldPods:
    """Reads for one thread.

    A kubelet that tells its pods and not what it offers, as an old one may, leaves the offer
    unknown: an issue of the snapshot says so, and the log once.
    """

    def __init__(self, settings: Settings) -> None:
        """Read nothing yet."""
        self._sysfs: Path = settings.sysfs_root
        self._host: Path = settings.host_root
        self._kubelet = PodResources(settings.pod_resources_socket)
        self._refusal: UnreadableError | None = None

    def read(self, snapshot: Snapshot) -> Snapshot:
        """Return *snapshot* with the node's pods, what the kubelet offers, and its state.

        Raises:
            UnreadableError: the kubelet does not tell its pods.
        """
        asked = self._asked(snapshot)
        root = None if snapshot.kubelet is None else snapshot.kubelet.root_directory
        state, _issues = read_kubelet_state(self._host, root)
        return self._told_apart(replace(asked, kubelet_state=state or snapshot.kubelet_state))

    def read_whole(self, snapshot: Snapshot) -> Snapshot:
        """Return the same, but never without the offer.

        Without it all CPUs and memory of a NUMA node would count as free for pods, and what a pod
        has of another node, because the kubelet keeps some, as its fault.

        Raises:
            UnreadableError: the kubelet does not tell its pods, or what it offers.
        """
        found = self.read(snapshot)
        if self._refusal is not None:
            raise self._refusal
        return found

    def beside_state(self, snapshot: Snapshot) -> Snapshot:
        """Return the same of a *snapshot* whose state of the kubelet was read just now.

        Raises:
            UnreadableError: the kubelet does not tell its pods.
        """
        return self._told_apart(self._asked(snapshot))

    def close(self) -> None:
        """Leave the kubelet."""
        self._kubelet.close()

    def _asked(self, snapshot: Snapshot) -> Snapshot:
        """Return *snapshot* with what the kubelet answers."""
        pods = self._kubelet.assigned()
        offer, issues = self._offer()
        return replace(snapshot, pods=pods, offer=offer, issues=(*snapshot.issues, *issues))

    def _offer(self) -> tuple[NodeOffer | None, tuple[ProbeIssue, ...]]:
        before, self._refusal = self._refusal, None
        try:
            return self._kubelet.offer(), ()
        except UnreadableError as error:
            self._refusal = error
            if before is None or error.cause != before.cause:
                structlog.get_logger().warning("kubelet's offer not read", problem=str(error))
            return None, (unanswered(error),)

    def _told_apart(self, snapshot: Snapshot) -> Snapshot:
        """Return *snapshot* with the uids of its pods, and with what their cgroups say."""
        pods = snapshot.pods or ()
        uids = uids_by_holdings(pods, snapshot.kubelet_state)
        known = tuple(replace(pod, uid=uids.get((pod.namespace, pod.name))) for pod in pods)
        return replace(snapshot, pods=with_cgroups(self._sysfs, known))


def unanswered(error: UnreadableError) -> ProbeIssue:
    """Return what a snapshot says of a kubelet that does not tell."""
    return ProbeIssue(probe="podresources", subject="kubelet", reason=error.cause)
