"""Which container a call of the kubelet is for: the device-plugin API does not say.

The kubelet admits one pod at a time. It holds no lock during GetPreferredAllocation, lists the pod
under admission already, and shows what its containers were given before (kubernetes 1.34.1, 1.36.3
and 1.37.1: pkg/kubelet/cm/devicemanager/manager.go callGetPreferredAllocationIfAvailable,
pkg/kubelet/kubelet.go HandlePodAdditions, pkg/kubelet/apis/podresources/server_v1.go List). So one
PodResources List inside that call answers the question, from three facts:

- a pod that the last list lacked was added since, and the pods before it are admitted: it asks;
- without a new pod, the pod that got the last grant is still being admitted;
- a container that has the resource asked for does not ask for it.

A list is only safe there while nothing is reserved (:mod:`nodetopo.probes.kubelet.gate`), which is
while ``must_include`` is empty; and init containers are not listed. Where the list does not answer,
the requester is unknown, ``None``, and callers guess as they did without it.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Event, Lock
from time import monotonic
from types import MappingProxyType
from typing import TypeAlias

from nodetopo.deviceplugin.devices import PluginDevice
from nodetopo.deviceplugin.pb import deviceplugin_pb2 as pb
from nodetopo.deviceplugin.service import Answers, InformedPrefer, Prefer
from nodetopo.deviceplugin.settings import NumaReport
from nodetopo.errors import UnreadableError
from nodetopo.model.pod import Pod
from nodetopo.probes.kubelet.gate import ADMISSIONS, AdmissionGate

DEADLINE_S = 1.0
"""After a slower list, lookups pause for :data:`PAUSE` times as long. It is no timeout: a list that
was sent is waited for, because hanging up does not take it back."""

PAUSE = 10
"""Pause of lookups after a slow list, in durations of that list: admission becomes at most a tenth
slower."""

REMEMBERED = 512
"""Pods without a place in the last list whose devices are remembered: a kubelet that restarts lists
its pods one after the other again."""

PodName: TypeAlias = tuple[str, str]
"""Namespace and name."""

Held: TypeAlias = Mapping[str, frozenset[str]]
"""Device ids by resource."""

Containers: TypeAlias = Mapping[str, Held]
"""The containers of a pod in the order of its spec, and what each has."""

NOTHING: Held = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Requester:
    """The container that asks for devices now.

    Attributes:
        pod: ``None`` where several new pods are possible, none of which has devices yet.
        container: ``None`` where several are possible, none of which has devices yet.
        held: what the container has of other resources.
        beside: what the other containers of its pod have.
        requests: the numbers of devices in its spec; ``None`` where that is not known.
    """

    pod: PodName | None
    container: str | None
    held: Held
    beside: Held = field(default_factory=lambda: NOTHING)
    requests: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookups:
    """How many calls were looked up: answered, ambiguous, or without a list in time."""

    known: int = 0
    ambiguous: int = 0
    failed: int = 0


class Requesters:
    """Finds the requester of each call; the kubelet's calls come one at a time, others may read.

    Attributes:
        requests: a pod and the name of its container → the numbers of devices in its spec, by
            resource; ``None`` where that is not known. Set by whoever follows the pods.
    """

    def __init__(
        self,
        pods: Callable[[], Iterable[Pod]],
        *,
        gate: AdmissionGate = ADMISSIONS,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """Ask nothing yet.

        Args:
            pods: lists the node's pods, or raises UnreadableError once no list is under way.
            gate: says whether a list is safe.
            clock: of :attr:`last_s`, seconds.
        """
        self.requests: Callable[[PodName, str], Mapping[str, int] | None] = lambda *_: None
        self._pods = pods
        self._gate = gate
        self._clock = clock
        self._users: frozenset[str] = frozenset()
        self._ours: frozenset[str] = frozenset()  # resources
        self._news = Event()
        self._lock = Lock()  # guards all below
        self._known: OrderedDict[PodName, Containers] = OrderedDict()
        self._has_listed = False
        self._new: frozenset[PodName] = frozenset()
        self._granted: frozenset[tuple[str, str]] | None = None
        self._current: tuple[str, Requester] | None = None
        self._in_use: Held | None = None
        self._lookups: Mapping[str, int] = {}
        self._resumes_s = float("-inf")
        self.last_s: float | None = None

    def need(self, user: str, *, is_needed: bool) -> None:
        """Look requesters up while any *user* needs them."""
        self._users = self._users | {user} if is_needed else self._users - {user}
        if self._users:
            self.wake()

    @property
    def is_needed(self) -> bool:
        """Whether any user needs requesters."""
        return bool(self._users)

    def wait_needed(self) -> None:
        """Wait until some user needs requesters, or :meth:`wake` is called."""
        self._news.wait()

    def wake(self) -> None:
        """End a wait."""
        self._news.set()

    @property
    def lookups(self) -> Lookups:
        """How the lookups turned out since the start."""
        return Lookups(**self._lookups)

    @property
    def in_use(self) -> Held | None:
        """Every device that a container of the node has, by resource.

        As of the last list, with later grants; ``None`` where that list failed, or before any.
        """
        return self._in_use

    def prime(self, pods: Callable[[], Iterable[Pod]]) -> None:
        """Learn which pods were admitted before this process began, in no call of the kubelet.

        *pods* lists them when nothing is being allocated, or raises UnreadableError.
        """
        if not self._users:
            return
        try:
            before = _containers(pods())
        except UnreadableError:
            return
        with self._lock:
            if not self._has_listed:
                self._take(before)

    def around(self, resource: str, prefer: Prefer, answers: Answers) -> tuple[Prefer, Answers]:
        """Return *prefer* and *answers* of *resource*, with a requester during each call."""

        def ask(required: Sequence[str], size: int) -> None:
            self.look(resource, required, size)

        self._ours = self._ours | {resource}
        return InformedPrefer(ask, prefer), _RecordedAnswers(resource, answers, self)

    def look(self, resource: str, required: Sequence[str], size: int) -> Requester | None:
        """Find the container that asks for *size* devices of *resource*; called in that call.

        *required* are the devices that the kubelet has reserved for it.
        """
        self._current = None
        if required or not self._users:
            return None
        pods = self._listed()
        if pods is None:
            self._in_use = None
            self._count("failed")
            return None
        with self._lock:
            found = self._found(pods, resource, size)
            self._take(pods)
        if found is not None:
            self._current = resource, found
        self._count("ambiguous" if found is None else "known")
        return found

    @property
    def asking(self) -> Requester | None:
        """The container of the call in progress, whatever it asks for; ``None``: unknown."""
        current = self._current
        return None if current is None else current[1]

    def current(self, resource: str) -> Requester | None:
        """Return the container that asks for *resource* now; ``None``: unknown."""
        current = self._current
        return current[1] if current is not None and current[0] == resource else None

    def gave(self, resource: str, ids: Collection[str]) -> None:
        """Note that the container was given *ids*: the next call is another one's."""
        with self._lock:
            current, self._current = self._current, None
            self._granted = frozenset((resource, name) for name in ids)
            if current is not None and current[0] == resource:
                self._remember_grant(current[1], resource, frozenset(ids))
            if self._in_use is not None:
                before = self._in_use.get(resource, frozenset())
                self._in_use = {**self._in_use, resource: before | frozenset(ids)}

    def _listed(self) -> Mapping[PodName, Containers] | None:
        """Return the pods; ``None`` if the kubelet stalls, refuses, or a list is not safe."""
        began = self._clock()
        if began < self._resumes_s:
            return None
        try:
            with self._gate.asking() as is_safe:
                return _containers(self._pods()) if is_safe else None
        except UnreadableError:
            return None
        finally:
            self.last_s = self._clock() - began
            if self.last_s > DEADLINE_S:
                self._resumes_s = self._clock() + PAUSE * self.last_s

    def _found(
        self, pods: Mapping[PodName, Containers], resource: str, size: int
    ) -> Requester | None:
        """Return the requester by *pods*, a list, and by what was known before it."""
        new = frozenset(
            name
            for name, containers in pods.items()
            if self._has_listed and self._is_new(name, containers)
        )
        last = _after(pods, self._granted or frozenset(), resource)
        if new:
            self._new = new
            if len(new) > 1 or not last or last[0].pod not in new:
                self._granted, last = None, []
        candidates, is_ordered = last, bool(last)
        if not last and self._granted is None:
            candidates = _lacking(pods, self._new & pods.keys(), resource)
        if not candidates and not new and self._has_listed and not self._new:
            # The process began between two calls of one admission.
            candidates = [
                one for one in _lacking(pods, pods.keys(), resource) if self._ours & one.held.keys()
            ]
        known = [self._with_requests(one) for one in candidates]
        certain = [one for one in known if one.requests and one.requests.get(resource) == size]
        return self._one(
            certain or [one for one in known if one.requests is None], is_ordered=is_ordered
        )

    def _one(self, candidates: Sequence[Requester], *, is_ordered: bool) -> Requester | None:
        """Return the requester, without a name where several have nothing; ``None``: unknown.

        If *is_ordered*, the first may have some of its resources already, and comes first.
        """
        if len(candidates) == 1 or (candidates and is_ordered):
            return candidates[0]
        if not candidates or any(self._ours & one.held.keys() for one in candidates):
            return None
        only = len({one.pod for one in candidates}) == 1
        return Requester(
            pod=candidates[0].pod if only else None,
            container=None,
            held=NOTHING,
            beside=candidates[0].beside if only else NOTHING,
        )

    def _with_requests(self, one: Requester) -> Requester:
        if one.pod is None or one.container is None:
            return one
        return replace(one, requests=self.requests(one.pod, one.container))

    def _is_new(self, name: PodName, containers: Containers) -> bool:
        """Return whether the pod was not known, or one of its name had what it lacks.

        The last grant does not count: what an init container was given is never listed.
        """
        before = self._known.get(name)
        lost = frozenset() if before is None else _devices(before) - _devices(containers)
        granted = self._granted or frozenset()
        return before is None or any(device[1:] not in granted for device in lost)

    def _remember_grant(self, to: Requester, resource: str, ids: frozenset[str]) -> None:
        """Remember what a container was given, as the next list will have it."""
        before = self._known.get(to.pod) if to.pod is not None else None
        if to.pod is not None and to.container is not None and before is not None:
            held = {**before.get(to.container, NOTHING), resource: ids}
            self._known[to.pod] = {**before, to.container: held}

    def _take(self, pods: Mapping[PodName, Containers]) -> None:
        """Remember *pods*; of those that they lack, the ones with devices."""
        for name in [name for name, has in self._known.items() if not _devices(has)]:
            del self._known[name]
        for name, containers in pods.items():
            self._known[name] = containers
            self._known.move_to_end(name)
        while len(self._known) > max(REMEMBERED, len(pods)):
            self._known.popitem(last=False)
        self._has_listed = True
        in_use: dict[str, frozenset[str]] = {}
        for containers in pods.values():
            for held in containers.values():
                for resource, ids in held.items():
                    in_use[resource] = in_use.get(resource, frozenset()) | ids
        self._in_use = in_use

    def _count(self, outcome: str) -> None:
        self._lookups = {**self._lookups, outcome: self._lookups.get(outcome, 0) + 1}


class _RecordedAnswers:
    """The answers of a resource, each of which ends the call's requester."""

    def __init__(self, resource: str, answers: Answers, requesters: Requesters) -> None:
        self._resource = resource
        self._answers = answers
        self._requesters = requesters

    @property
    def numa(self) -> NumaReport:
        """Which NUMA nodes of a device the kubelet is given."""
        return self._answers.numa

    def look(self) -> None:
        """Look up the host's device nodes."""
        self._answers.look()

    def answer(self, devices: Sequence[PluginDevice]) -> pb.ContainerAllocateResponse:
        """Return the container response for *devices*; raises as the answers alone."""
        response = self._answers.answer(devices)
        self._requesters.gave(self._resource, [device.id for device in devices])
        return response


def _containers(pods: Iterable[Pod]) -> dict[PodName, Containers]:
    return {
        (pod.namespace, pod.name): {
            container.name: {
                given.resource: frozenset(given.ids) for given in container.devices or ()
            }
            for container in pod.containers
        }
        for pod in pods
    }


def _devices(containers: Containers) -> frozenset[tuple[str, str, str]]:
    return frozenset(
        (container, resource, name)
        for container, held in containers.items()
        for resource, ids in held.items()
        for name in ids
    )


def _lacking(
    pods: Mapping[PodName, Containers], names: Collection[PodName], resource: str
) -> list[Requester]:
    """Return the containers of the pods *names* that do not have *resource*."""
    return [
        _requester(name, pods[name], container)
        for name in sorted(names)
        for container, held in pods[name].items()
        if resource not in held
    ]


def _after(
    pods: Mapping[PodName, Containers], granted: frozenset[tuple[str, str]], resource: str
) -> list[Requester]:
    """Return the container that has *granted*, and those after it, that do not have *resource*."""
    for name, containers in pods.items():
        order = list(containers)
        for at, container in enumerate(order):
            has = {(kind, one) for kind, ids in containers[container].items() for one in ids}
            if granted and granted <= has:
                return [
                    _requester(name, containers, later)
                    for later in order[at:]
                    if resource not in containers[later]
                ]
    return []


def _requester(pod: PodName, containers: Containers, container: str) -> Requester:
    beside: dict[str, frozenset[str]] = {}
    for other, held in containers.items():
        if other != container:
            for resource, ids in held.items():
                beside[resource] = beside.get(resource, frozenset()) | ids
    return Requester(pod=pod, container=container, held=containers[container], beside=beside)
