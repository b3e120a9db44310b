"""The expected end of pods that hold GPUs, for placement (`expect-run-times`).

The kubelet lists which pod holds which device. The API server has the allowed, stated or usual run
times of pods: ``spec.activeDeadlineSeconds`` of pod and Job, the annotation :data:`ANNOTATION`, and
the run times of earlier pods with the same owner. Without any of these, the pod's end is unknown.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import structlog

from nodetopo.allocation.remainder import NO_ENDS, Ends
from nodetopo.errors import UnreadableError
from nodetopo.formats.responses import moment, part, parts, texts
from nodetopo.kernel.loops import PeriodicLoop
from nodetopo.kernel.settings.own import KernelSettings
from nodetopo.kernel.settings.values import duration
from nodetopo.kubeapi.watch import PodWatch
from nodetopo.outage import Outage
from nodetopo.probes.kubelet.podresources import PodResources

ANNOTATION = "nodetopo.io/expected-duration"
"""Of a pod: how long it is expected to run, such as ``90s``, ``5m`` or a number of seconds."""

LOOK_S = 10.0
"""How often the kubelet is asked who holds what: a call over a local socket."""

OUTAGE_ATTEMPTS = 6
"""Looks in a row that the kubelet left unanswered, after which its silence is reported."""

REMEMBERED = 1024
"""Most pods, and owners, remembered; a kubelet runs 110 pods unless configured."""

RUNS_KEPT = 15
"""Earlier runs of an owner that count: the median of so few follows a change within some runs."""

PodName = tuple[str, str]
"""Namespace and name."""


class _Known(NamedTuple):
    """A pod whose end was not seen.

    Attributes:
        own_s: the run time in its annotation.
        deadlines: of the pod and its Job, in seconds since 1970, if any.
        owner: the uid of the object that controls it.
    """

    start: datetime
    own_s: float | None
    deadlines: tuple[float, ...]
    owner: str | None


class PodRunTimes(PodWatch):
    """Follows the pods of one node; one thread runs it, any thread can ask.

    A Job is read once, for its deadline; without permission to ``get`` Jobs the deadline is
    unknown. Succeeded pods form the history of their owner, for the life of this process; at its
    start the server lists those that still exist.
    """

    LOST = "run times not followed"
    AGAIN = "run times followed again"

    def __init__(self, kubeconfig: Path | None, node: str) -> None:
        """Send no request yet."""
        super().__init__(kubeconfig, node)
        self._running: OrderedDict[PodName, _Known] = OrderedDict()
        self._runs: OrderedDict[str, deque[float]] = OrderedDict()
        self._counted: OrderedDict[str, None] = OrderedDict()
        self._jobs: OrderedDict[str, float | None] = OrderedDict()

    def take(self, kind: str, found: Mapping[str, Any]) -> None:
        """Record a pod's facts, or its run time once it has ended."""
        metadata, spec, status = (part(found, name) for name in ("metadata", "spec", "status"))
        if spec.get("nodeName") != self._node:
            return
        name = str(metadata.get("namespace")), str(metadata.get("name"))
        start, controller = moment(status.get("startTime")), _controller(metadata)
        owner = None if controller is None else str(controller.get("uid"))
        if status.get("phase") == "Succeeded" and start is not None and owner is not None:
            self._count(str(metadata.get("uid")), owner, start, status)
        is_over = kind == "DELETED" or status.get("phase") in ("Succeeded", "Failed")
        if is_over or start is None:
            self._running.pop(name, None)
            return
        deadlines = [_deadline(spec, start)]
        if owner is not None and controller is not None and controller.get("kind") == "Job":
            deadlines.append(self._of_job(owner, name[0], str(controller.get("name")), start))
        self._running[name] = _Known(
            start=start,
            own_s=_stated(texts(metadata, "annotations").get(ANNOTATION)),
            deadlines=tuple(end for end in deadlines if end is not None),
            owner=owner,
        )
        _limit(self._running)

    def forget(self) -> None:
        """Forget which pods run; their history stays."""
        self._running.clear()

    def end(self, namespace: str, name: str) -> float | None:
        """Return the expected end of a running pod, in seconds since 1970; ``None``: unknown.

        Its annotation takes precedence over its owner's history; it ends at its deadline at the
        latest. An overdue pod has an end in the past.
        """
        pod = self._running.get((namespace, name))
        if pod is None:
            return None
        runs = self._runs.get(pod.owner) if pod.owner is not None else None
        expected_s = pod.own_s
        if expected_s is None and runs:
            expected_s = sorted(runs)[len(runs) // 2]  # the median; of two, the longer one
        expected = () if expected_s is None else (pod.start.timestamp() + expected_s,)
        return min((*expected, *pod.deadlines), default=None)

    def _of_job(self, uid: str, namespace: str, name: str, start: datetime) -> float | None:
        """Return the deadline of a Job, counted from its own start; *start* is the pod's."""
        if uid not in self._jobs and self._api is not None:
            path = f"/apis/batch/v1/namespaces/{quote(namespace)}/jobs/{quote(name)}"
            job = self._api.get(path, {}).body  # of a refusal the body has no spec
            begin = moment(part(job, "status").get("startTime")) or start
            self._jobs[uid] = _deadline(part(job, "spec"), begin)
            _limit(self._jobs)
        return self._jobs.get(uid)

    def _count(self, uid: str, owner: str, start: datetime, status: Mapping[str, Any]) -> None:
        """Add the run of a pod to the history of *owner*, once."""
        states = (part(container, "state") for container in parts(status, "containerStatuses"))
        ends = [moment(part(state, "terminated").get("finishedAt")) for state in states]
        ended = [end for end in ends if end is not None]
        if uid in self._counted or not ended:
            return
        self._counted[uid] = None
        _limit(self._counted)
        self._runs.setdefault(owner, deque(maxlen=RUNS_KEPT)).append(
            (max(ended) - start).total_seconds()
        )
        self._runs.move_to_end(owner)
        _limit(self._runs)


class RunTimesLoop(PeriodicLoop):
    """Gives placement the expected ends of GPUs in use; :attr:`watch` needs a separate thread.

    If the kubelet or the API server does not answer, no ends are known.
    """

    def __init__(self, settings: KernelSettings, expect: Callable[[Ends], None]) -> None:
        """Ask nothing yet; *expect* takes the ends by device id."""
        self._kubelet = PodResources(settings.pod_resources_socket)
        self._expect = expect
        self._outage = Outage(OUTAGE_ATTEMPTS)
        self.watch = PodRunTimes(settings.kubeconfig, settings.node_name)

    def step(self) -> float:
        """Look once; return the seconds until the next look."""
        log = structlog.get_logger()
        if self.watch.problem is not None:  # the watch has reported it
            self._expect(NO_ENDS)
            return LOOK_S
        try:
            held = self._kubelet.held()
        except UnreadableError as error:
            self._expect(NO_ENDS)
            if self._outage.failed():
                log.warning("run times unknown", error=str(error))
            return LOOK_S
        if self._outage.ended():
            log.info("run times known again")
        self._expect(
            {
                device.id: self.watch.end(pod.namespace, pod.name)
                for pod in held
                for device in pod.devices
            }
        )
        return LOOK_S

    def close(self) -> None:
        """Close the connection to the kubelet."""
        self._kubelet.close()


def _controller(metadata: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the reference to the object that controls a pod, e.g. its Job; ``None`` for none."""
    owners = parts(metadata, "ownerReferences")
    return next((owner for owner in owners if owner.get("controller") is True), None)


def _deadline(spec: Mapping[str, Any], start: datetime) -> float | None:
    """Return when a pod or Job that began at *start* is ended, seconds since 1970; ``None``: never.

    Both have the field ``activeDeadlineSeconds``.
    """
    seconds = spec.get("activeDeadlineSeconds")
    return start.timestamp() + seconds if isinstance(seconds, int) else None


def _stated(text: str | None) -> float | None:
    """Return the seconds in the annotation; ``None`` if it is missing or invalid."""
    try:
        return None if text is None else duration(text)
    except ValueError:
        return None


def _limit(kept: OrderedDict[Any, Any]) -> None:
    if len(kept) > REMEMBERED:
        kept.popitem(last=False)
