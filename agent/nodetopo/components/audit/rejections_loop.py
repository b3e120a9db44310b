"""The loop that explains why the kubelet rejected a pod, in the log and on the pod."""

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import structlog
from msgspec import Struct
from msgspec.structs import replace

from nodetopo.admission.admit import admit
from nodetopo.admission.errors import TOPOLOGY_AFFINITY_ERROR
from nodetopo.admission.suggestions import with_changes
from nodetopo.components.audit.rejected_pods import RejectedPods
from nodetopo.deviceplugin.plugin import Absence
from nodetopo.errors import AgentError, DecodeError
from nodetopo.formats.responses import moment
from nodetopo.kernel.events import PodEvent, Post, utc_now
from nodetopo.kernel.loops import PeriodicLoop
from nodetopo.kernel.running_pods import RunningPods
from nodetopo.kernel.settings.own import KernelSettings
from nodetopo.kernel.store import SnapshotStore
from nodetopo.kubeapi.pods import joined, pods_of_node
from nodetopo.model.pod import Pod
from nodetopo.model.snapshot import Snapshot
from nodetopo.probes.pods.objects import pod_from_object

REASON = "RejectionExplained"
"""Of the Event."""

NEWS = timedelta(minutes=10)
"""Age beyond which a rejection is ignored: the node has changed since, and a restarted agent would
repeat explanations.
"""

GAP_S = 5.0
"""Between two explanations. A controller whose pods the node rejects creates new ones all the time
(kubernetes issue 84869), and each is a request to the API server and some tenths of a second."""

WAITING = 16
"""Most waiting pods; beyond it, the oldest is dropped."""

REMEMBERED = 1024
"""Pods that are not explained twice."""

ATTEMPTS = 3
"""Times that the kubelet and the API server are asked: pods are rejected above all while the
kubelet comes back, which takes seconds."""

MOST_CONTAINERS = 256
"""Of a pod that is explained: some tenths of a second. The API server takes thousands, and the work
grows with their square."""

POLL_S = 1.0
"""Interval for checking whether the next pod is due."""

IDLE_S = 10.0
"""Pause between rounds while no pod waits; a new pod ends the pause."""

SECOND = timedelta(seconds=1)
"""A pod's times are whole seconds (k8s.io/apimachinery, meta/v1, Time.MarshalJSON)."""

Absences = Callable[[], Mapping[str, Sequence[Absence]]]
"""Returns when no kubelet had the devices of a resource from us, by resource."""

_NOT_REGISTERED = "cannot allocate unregistered device {},"
_NO_HEALTHY = "cannot allocate unhealthy devices {},"
"""The kubelet's message about a resource whose plugin never registered since its start, and about
one whose plugin was lost or whose devices are all Unhealthy (kubernetes 1.36
pkg/kubelet/cm/devicemanager/manager.go, devicesToAllocate; before the comma of
pkg/kubelet/cm/admission/errors.go).
"""


class _Rejected(NamedTuple):
    """A pod that awaits its explanation, after unanswered *attempts*.

    *at* is the time of the rejection, ``None`` if its status lacks it.
    """

    pod: Pod
    uid: str
    at: datetime | None
    attempts: int = 0


_WHEN = "when the kubelet rejected the pod"


class Explanation(Struct, frozen=True, kw_only=True):
    """Why a pod was rejected; *text* is ``None`` if unknown, with the reason in *missing*."""

    text: str | None
    missing: tuple[str, ...] = ()


class Period(NamedTuple):
    """A time in which no kubelet had the devices of a resource from us; *until* as in Absence."""

    since: datetime
    until: datetime | None

    def holds(self, second: datetime) -> bool:
        """Return whether any part of the second beginning at *second* is in the period."""
        is_begun = self.since < second + SECOND
        return is_begun and (self.until is None or second <= self.until)


class Downtime(Struct, frozen=True, kw_only=True):
    """A device plugin that was down, or *may have been*, when a pod was rejected."""

    text: str
    is_certain: bool = True


def no_absences() -> Mapping[str, Sequence[Absence]]:
    """Return no known absences of device plugins."""
    return {}


def explain(snapshot: Snapshot, pod: Pod, downtime: Downtime | None = None) -> Explanation:
    """Return why the node of *snapshot* rejects *pod*, and the changes that would make it fit.

    *downtime* is a device plugin's at the rejection; ``None`` without one.
    """
    if len(pod.containers) > MOST_CONTAINERS:
        return Explanation(text=None, missing=(f"time for {len(pod.containers)} containers",))
    admission = admit(snapshot, (pod,))
    (result,) = with_changes(snapshot, admission, (pod,)).pods
    if result.admitted is None:
        return Explanation(text=None, missing=result.missing)
    if result.admitted:
        cause = "what it lacked is available again" if downtime is None else downtime.text
        why = f"by now the kubelet would admit it: {cause}"
    else:
        why = "; ".join(result.why) or result.message or "no reason found"
        if downtime is not None and downtime.is_certain:
            why = f"{downtime.text}. Now: {why}"
        if result.changes:
            why += f". Any one of these would make it fit: {'; '.join(result.changes)}"
    return Explanation(text=f"{pod.status_reason}: {why}")


def downtime_of(
    pod: Pod, at: datetime | None, absences: Mapping[str, Sequence[Period]]
) -> Downtime | None:
    """Return which device plugin was down when the kubelet rejected *pod*; ``None`` if none was.

    The kubelet's message decides where it names the devices. The Topology Manager's is the same for
    devices without a plugin as for devices that are taken: there the times decide.

    Args:
        pod: with its ``status_reason`` and ``status_message``.
        at: when it was rejected, in whole seconds; ``None`` if unknown.
        absences: when no kubelet had the devices of a resource from us, by resource, the earliest
            first.
    """
    message = pod.status_message or ""
    for resource in dict.fromkeys(
        name for container in pod.containers for name in container.limits or ()
    ):
        periods = absences.get(resource, ())
        down = Downtime(text=f"the device plugin of {resource} was down {_WHEN}")
        if _NOT_REGISTERED.format(resource) in message:
            return down
        is_named = _NO_HEALTHY.format(resource) in message
        if not is_named and (pod.status_reason != TOPOLOGY_AFFINITY_ERROR or not periods):
            continue
        if at is not None and any(period.holds(at) for period in periods):
            return down
        is_earlier = at is None or not periods or at < periods[0].since
        if is_named and is_earlier:
            problem = "its device plugin was down, or all devices were Unhealthy"
            return Downtime(
                text=f"the kubelet had no healthy {resource} when it rejected the pod: {problem}"
            )
        if is_named:
            return Downtime(text=f"all {resource} were Unhealthy {_WHEN}")
        if at is not None and is_earlier:
            problem = "its device plugin may have been down"
            return Downtime(
                text=f"it was rejected before this agent offered {resource}: {problem}",
                is_certain=False,
            )
    return None


class RejectionsLoop(PeriodicLoop):
    """Explains rejected pods; :attr:`watch` and :meth:`run` take a thread each.

    Attributes:
        watch: follows the pods.
        explained: pods that were explained.
        given_up: pods that were not: too many at a time, or the reason is unknown.
    """

    def __init__(
        self,
        settings: KernelSettings,
        store: SnapshotStore,
        *,
        post: Post,
        read: Callable[[Snapshot], Snapshot] | None = None,
        absences: Absences = no_absences,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        """Ask nothing yet.

        Args:
            settings: locate the kubelet and the API server.
            store: has the machine.
            post: takes Events.
            read: puts the pods into a snapshot; ``None`` reads them by *settings*.
            absences: the downtimes of our device plugins.
            clock: for pauses; monotonic, the same clock as for *absences*.
            now: the wall-clock time of pods' timestamps.
        """
        self._settings = settings
        self._store = store
        self._post = post
        self._pods = RunningPods(settings)
        self._read = read or self._with_specified_pods
        self._absences = absences
        self._clock = clock
        self._now = now
        self._waiting: deque[_Rejected] = deque()
        self._news = threading.Event()
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._not_before = float("-inf")
        self.watch = RejectedPods(settings.kubeconfig, settings.node_name, self.take)
        self.explained = 0
        self.given_up = 0

    def take(self, pod_object: Mapping[str, Any]) -> None:
        """Have the pod of *pod_object* explained, once; called by the watch's thread."""
        try:
            pod = pod_from_object(pod_object)
        except DecodeError as error:
            structlog.get_logger().warning("rejected pod unreadable", error=str(error))
            return
        if pod.uid is None or pod.uid in self._seen:
            return
        self._seen[pod.uid] = None
        if len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
        metadata, status = pod_object.get("metadata") or {}, pod_object.get("status") or {}
        rejected_at = moment(status.get("startTime"))
        at = rejected_at or moment(metadata.get("creationTimestamp"))
        if at is not None and self._now() - at > NEWS:
            return
        if len(self._waiting) >= WAITING:
            self._waiting.popleft()
            self.given_up += 1
        self._waiting.append(_Rejected(pod, pod.uid, rejected_at))
        self._news.set()

    def wake(self) -> None:
        """End a wait for pods, because the daemon stops; any thread can call it."""
        self._news.set()

    def wait(self, stopping: threading.Event, seconds: float) -> None:
        """Wait for the next pod, or until a waiting one is due."""
        if self._waiting:
            stopping.wait(seconds)
        else:
            self._news.wait(IDLE_S)
            self._news.clear()

    def step(self) -> float:
        """Explain one pod, if one waits and it is time; return the seconds until the next step."""
        current = self._store.current
        if current is None or not self._waiting or self._clock() < self._not_before:
            return POLL_S
        rejected = self._waiting.popleft()
        self._not_before = self._clock() + GAP_S
        is_answered = False
        try:
            snapshot = self._read(current.snapshot)
            is_answered = snapshot.offer is not None
            downtime = downtime_of(rejected.pod, rejected.at, self._periods())
            explanation = explain(snapshot, rejected.pod, downtime)
        except AgentError as error:
            is_answered = False
            explanation = Explanation(text=None, missing=(str(error),))
        except Exception:  # noqa: BLE001 - no pod must end what offers the GPUs
            structlog.get_logger().exception("rejection not worked out", uid=rejected.uid)
            is_answered = True
            explanation = Explanation(text=None, missing=("an answer: a bug in nodetopo",))
        is_last = is_answered or rejected.attempts + 1 >= ATTEMPTS
        if explanation.text is None and not is_last:
            self._waiting.append(rejected._replace(attempts=rejected.attempts + 1))
        else:
            self._report(rejected, explanation)
        return POLL_S

    def close(self) -> None:
        """Close the connection to the kubelet."""
        self._pods.close()

    def _report(self, rejected: _Rejected, explanation: Explanation) -> None:
        pod, uid = rejected.pod, rejected.uid
        log = structlog.get_logger().bind(pod=f"{pod.namespace}/{pod.name}", uid=uid)
        if explanation.text is None:
            self.given_up += 1
            log.warning("rejection not explained", missing=list(explanation.missing))
            return
        self.explained += 1
        log.warning("rejection explained", reason=pod.status_reason, message=explanation.text)
        self._post(
            PodEvent(
                reason=REASON,
                message=explanation.text,
                is_warning=True,
                key=uid,
                namespace=pod.namespace,
                pod=pod.name,
                uid=uid,
            )
        )

    def _periods(self) -> dict[str, list[Period]]:
        """Return when our device plugins were down, by resource."""
        now, now_s = self._now(), self._clock()

        def at(monotonic_s: float) -> datetime:
            return now - timedelta(seconds=now_s - monotonic_s)

        return {
            resource: [
                Period(
                    at(absence.since_s), None if absence.until_s is None else at(absence.until_s)
                )
                for absence in absences
            ]
            for resource, absences in self._absences().items()
        }

    def _with_specified_pods(self, snapshot: Snapshot) -> Snapshot:
        """Return *snapshot* with the running pods, and with the uids and specs of all pods.

        The kubelet's files about a pod count only while the pod exists in the API server, by uid.
        """
        running = self._pods.read(snapshot)
        specified = pods_of_node(self._settings.kubeconfig, self._settings.node_name)
        return replace(running, pods=joined(specified, running.pods or ()))
