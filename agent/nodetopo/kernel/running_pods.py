"""The node's running pods, put into the newest snapshot without asking the API server.

The kubelet's PodResources API lists what it allocated, its own files name the pods' uids, and
cgroups hold the limits in force.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeAlias

import structlog
from msgspec.structs import replace

from nodetopo.errors import UnreadableError
from nodetopo.kernel.settings.own import KernelSettings
from nodetopo.kernel.shown import ListedPods
from nodetopo.model.dra import PublishedDevice
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.model.snapshot import Snapshot
from nodetopo.outage import Outage
from nodetopo.probes.kubelet.podresources import PodResources
from nodetopo.probes.kubelet.state import read_kubelet_state
from nodetopo.probes.pods.cgroups import with_cgroups
from nodetopo.probes.pods.uids import uids_by_holdings

Published: TypeAlias = tuple[PublishedDevice, ...] | None
"""The devices that DRA drivers publish for the node; ``None`` if unknown."""


class RunningPods:
    """Reads the pods of the node; for one thread.

    An old kubelet lists its pods but not its allocatable devices. The offer is then unknown: the
    snapshot has an issue, logged once.
    """

    def __init__(
        self, settings: KernelSettings, published: Callable[[], Published] = lambda: None
    ) -> None:
        """Read nothing yet; *published* returns the devices published by DRA drivers."""
        self._published = published
        self._sysfs = settings.sysfs_root
        self._host = settings.host_root
        self._kubelet = PodResources(settings.pod_resources_socket)
        self._offer_error: UnreadableError | None = None
        self._offer_problem = Outage()

    def read(self, snapshot: Snapshot) -> Snapshot:
        """Return *snapshot* with the node's pods, allocatable resources and kubelet state.

        Raises:
            UnreadableError: the kubelet does not list its pods.
        """
        listed = self._listed(snapshot)
        root = None if snapshot.kubelet is None else snapshot.kubelet.root_directory
        state, _issues = read_kubelet_state(self._host, root)
        return self._identified(replace(listed, kubelet_state=state or snapshot.kubelet_state))

    def read_with_offer(self, snapshot: Snapshot) -> Snapshot:
        """Return the same as :meth:`read`, but never without the offer.

        Without the offer, all CPUs and memory of a NUMA node would count as free for pods, and a
        pod that overflows to another node because the kubelet reserves some would be blamed for it.

        Raises:
            UnreadableError: the kubelet does not list its pods or its allocatable resources.
        """
        result = self.read(snapshot)
        if self._offer_error is not None:
            raise self._offer_error
        return result

    def read_beside_state(self, snapshot: Snapshot) -> Snapshot:
        """Return the same as :meth:`read` of a *snapshot* whose kubelet state was just read.

        Raises:
            UnreadableError: the kubelet does not list its pods.
        """
        return self._identified(self._listed(snapshot))

    def close(self) -> None:
        """Close the connection to the kubelet."""
        self._kubelet.close()

    def _listed(self, snapshot: Snapshot) -> Snapshot:
        """Return *snapshot* with the answers of the PodResources API."""
        pods = self._kubelet.assigned()
        self._offer_error, offer, issues = None, None, snapshot.issues
        try:
            offer = self._kubelet.offer()
        except UnreadableError as error:
            self._offer_error = error
            issues = (*issues, kubelet_issue(error))
        cause = None if self._offer_error is None else self._offer_error.cause
        if self._offer_problem.changed(cause) and cause is not None:
            problem = str(self._offer_error)
            structlog.get_logger().warning("kubelet's offer not read", problem=problem)
        published = self._published()
        return replace(snapshot, pods=pods, offer=offer, issues=issues, published=published)

    def _identified(self, snapshot: Snapshot) -> Snapshot:
        """Return *snapshot* with the uids and cgroup limits of its pods."""
        pods = snapshot.pods or ()
        uids = uids_by_holdings(pods, snapshot.kubelet_state)
        identified = tuple(replace(pod, uid=uids.get((pod.namespace, pod.name))) for pod in pods)
        return replace(snapshot, pods=with_cgroups(self._sysfs, identified))


def listed_pods(snapshot: Snapshot) -> ListedPods | None:
    """Return *snapshot* as listed now; ``None`` where it has no pods, which were not listed."""
    return None if snapshot.pods is None else ListedPods(snapshot=snapshot, at=datetime.now(UTC))


def kubelet_issue(error: UnreadableError) -> ProbeIssue:
    """Return the issue of a snapshot whose kubelet did not answer."""
    return ProbeIssue(probe="podresources", subject="kubelet", reason=error.cause)
