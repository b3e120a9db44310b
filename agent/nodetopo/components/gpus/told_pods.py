"""Tells pods which devices they were given, and why (`tell-pods`), or against their policy."""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence

import structlog

from nodetopo.components.gpus.own_pods import ANNOTATION, UNUSED_POLICY, OwnPod, OwnPods
from nodetopo.deviceplugin.allocation_log import LoggedAllocation
from nodetopo.errors import UnreadableError
from nodetopo.kernel.events import PodEvent, Post
from nodetopo.kernel.loops import PeriodicLoop
from nodetopo.kernel.requester import PodName
from nodetopo.model.pod import Pod
from nodetopo.outage import Outage

REASON = "DevicesPlaced"
"""Of the Event."""

LOOK_S = 5.0
"""Between two looks for new allocations. The kubelet is asked only where there are some, and then
has admitted the pod: it allocates for all containers of a pod within milliseconds."""

OUTAGE_ATTEMPTS = 6
"""Looks in a row that the kubelet left unanswered, after which its silence is reported."""

WAITING = 256
"""Most allocations whose pod is looked for."""

MOST_LOOKS = 12
"""How often the pod of an allocation is looked for; a watch that restarts takes a minute."""


class ToldPodsLoop(PeriodicLoop):
    """Posts one Event on each pod about its devices; one thread runs it.

    And one on each pod whose GPUs were chosen by another policy than its own.
    """

    def __init__(
        self,
        allocations: Callable[[], Iterable[LoggedAllocation]],
        listed: Callable[[], Iterable[Pod]],
        pods: OwnPods,
        post: Post,
        *,
        is_told: bool = True,
        has_policies: bool = False,
    ) -> None:
        """Post nothing yet.

        Args:
            allocations: returns the latest allocations, of every resource.
            listed: lists the containers' devices, or raises UnreadableError.
            pods: have the uids, by which people find the Events of a pod.
            post: takes Events.
            is_told: whether each pod is told its devices.
            has_policies: whether pods choose their policies.
        """
        self._is_told, self._has_policies = is_told, has_policies
        self._allocations = allocations
        self._listed = listed
        self._pods = pods
        self._post = post
        self._seen: OrderedDict[LoggedAllocation, None] = OrderedDict()
        self._waiting: OrderedDict[LoggedAllocation, int] = OrderedDict()
        self._outage = Outage(OUTAGE_ATTEMPTS)

    def step(self) -> float:
        """Post the Events of new allocations; return the seconds until the next look.

        A pod whose latest allocation was not seen before waits for the next look: it may be given
        more, and has one Event.
        """
        fresh = self._collect()
        if not self._waiting:
            return LOOK_S
        try:
            listed = tuple(self._listed())
        except UnreadableError as error:
            if self._outage.failed():
                structlog.get_logger().warning("pods not told", error=str(error))
            return LOOK_S
        if self._outage.ended():
            structlog.get_logger().info("pods told again")
        found: dict[PodName, list[tuple[str, LoggedAllocation]]] = {}
        for allocation in tuple(self._waiting):
            holder = _holder(listed, allocation)
            if holder is not None and self._pods.pod(holder[0]) is not None:
                found.setdefault(holder[0], []).append((holder[1], allocation))
            elif self._waiting[allocation] + 1 >= MOST_LOOKS:
                del self._waiting[allocation]
            else:
                self._waiting[allocation] += 1
        for name, given in found.items():
            if fresh.isdisjoint(allocation for _, allocation in given):
                self._tell(name, given)
                for _, allocation in given:
                    del self._waiting[allocation]
        return LOOK_S

    def _tell(self, name: PodName, given: Sequence[tuple[str, LoggedAllocation]]) -> None:
        pod = self._pods.pod(name)
        if pod is None:
            return
        unlike = [one for one in given if self._has_policies and _is_unlike(one[1], pod)]
        if unlike:
            self._say(name, pod.uid, UNUSED_POLICY, _warning(pod, *unlike[0]), is_warning=True)
        if self._is_told:
            message = "; ".join(_sentence(*one) for one in given)
            self._say(name, pod.uid, REASON, message, is_warning=False)

    def _say(self, name: PodName, uid: str, reason: str, message: str, *, is_warning: bool) -> None:
        self._post(
            PodEvent(
                reason=reason,
                message=message,
                is_warning=is_warning,
                key=uid,
                namespace=name[0],
                pod=name[1],
                uid=uid,
            )
        )

    def _collect(self) -> frozenset[LoggedAllocation]:
        """Let the allocations wait that were not seen before, and return them.

        Those whose devices were given to another container since are forgotten.
        """
        fresh = list[LoggedAllocation]()
        for allocation in sorted(self._allocations(), key=lambda one: one.at):
            if allocation not in self._seen:
                self._seen[allocation] = None
                for before in tuple(self._waiting):
                    if before.resource == allocation.resource and not set(
                        before.devices
                    ).isdisjoint(allocation.devices):
                        del self._waiting[before]
                policy = allocation.policy
                if self._is_told or (policy and self._pods.has_other_policy(policy)):
                    self._waiting[allocation] = 0
                    fresh.append(allocation)
        while len(self._seen) > WAITING:
            self._seen.popitem(last=False)
        while len(self._waiting) > WAITING:
            self._waiting.popitem(last=False)
        return frozenset(fresh)


def _holder(listed: Iterable[Pod], allocation: LoggedAllocation) -> tuple[PodName, str] | None:
    """Return the pod and container that has the devices of *allocation*; ``None``: none has."""
    devices = frozenset(allocation.devices)
    for pod in listed:
        for container in pod.containers:
            held: Mapping[str, tuple[str, ...]] = {
                given.resource: given.ids for given in container.devices or ()
            }
            if devices <= frozenset(held.get(allocation.resource, ())):
                return (pod.namespace, pod.name), container.name
    return None


def _is_unlike(allocation: LoggedAllocation, pod: OwnPod) -> bool:
    """Return whether *pod* wanted the GPUs of *allocation* by another policy."""
    return None not in (allocation.policy, pod.policy) and allocation.policy != pod.policy


def _warning(pod: OwnPod, container: str, allocation: LoggedAllocation) -> str:
    return (
        f"annotation {ANNOTATION}: {pod.policy} was not followed: which pod asks was not known in "
        f"time, and {allocation.resource} of container {container} was chosen by the node's "
        f"policy, {allocation.policy}; delete the pod to have it placed again"
    )


def _sentence(container: str, allocation: LoggedAllocation) -> str:
    said = allocation.said or f"{', '.join(allocation.devices)}, for reasons that are not known"
    chosen = "" if allocation.is_ours else ", chosen by the kubelet"
    return f"container {container}, {allocation.resource}: {said}{chosen}"
