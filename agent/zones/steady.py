"""What the kubelet offers and gave, without the gap in which it was restarted.

For those seconds its plugins have to come back, and it lists its pods bit by bit, beginning with
none, as the API server tells it of them: a kubelet 1.36.3 answered for half a second that it offers
everything and gave nothing. A scheduler that read so would place pods onto GPUs that are taken.
"""

from collections.abc import Collection, Sequence

from agent.model.pod_resources import NodeOffer, PodHolding
from agent.zones.zones import CPU

ABSENCE_S = 60.0
"""What is missing for so long is gone. Plugins register again within seconds, and pods are listed
as soon as the API server answers; the kubelet itself counts the devices of a plugin that went away
for five minutes more (kubernetes 1.36 pkg/kubelet/cm/devicemanager/types.go,
endpointStopGracePeriod)."""

_Name = tuple[str, str]
"""Namespace and name of a pod."""


class SteadyOffer:
    """Remembers what one node offered."""

    def __init__(self) -> None:
        self._last: NodeOffer | None = None
        self._missing_since: dict[str, float] = {}

    def take(self, offer: NodeOffer, now: float) -> NodeOffer:
        """Return *offer*, made at *now* (seconds), and as they were the resources it lacks.

        What only shrinks, such as by an unhealthy GPU, counts at once.
        """
        lost = frozenset[str]() if self._last is None else self._last.resources - offer.resources
        self._missing_since = {name: self._missing_since.get(name, now) for name in lost}
        bridged = {name for name, since in self._missing_since.items() if now - since < ABSENCE_S}
        self._last = offer if self._last is None else _joined(offer, self._last, bridged)
        return self._last


class SteadyPods:
    """Remembers the pods of one node over a start of its kubelet."""

    def __init__(self) -> None:
        self._start: object = None
        self._last: dict[_Name, PodHolding] = {}
        self._awaited: dict[_Name, PodHolding] = {}
        self._until = 0.0

    def take(self, held: Sequence[PodHolding], start: object, now: float) -> tuple[PodHolding, ...]:
        """Return *held* and what the kubelet that started as *start* has not listed yet.

        That are the pods of before, until *now* (seconds) is long after that start; a pod that
        it listed once counts no longer than it is listed.
        """
        if start != self._start:
            self._start, self._until = start, now + ABSENCE_S
            self._awaited = self._last
        listed = {_name(pod): pod for pod in held}
        waits = now < self._until
        self._awaited = {
            name: pod for name, pod in self._awaited.items() if waits and name not in listed
        }
        self._last = self._awaited | listed
        return tuple(sorted((*held, *self._awaited.values()), key=_name))


def _name(pod: PodHolding) -> _Name:
    return pod.namespace, pod.name


def _joined(offer: NodeOffer, before: NodeOffer, names: Collection[str]) -> NodeOffer:
    """Return *offer* with the resources *names* as they were *before*."""
    return NodeOffer(
        devices=(*offer.devices, *(one for one in before.devices if one.resource in names)),
        cpus=before.cpus if CPU in names else offer.cpus,
        memory=(*offer.memory, *(one for one in before.memory if one.kind in names)),
    )
