"""Which container a call of the kubelet is for: the device-plugin API does not say.

The kubelet admits one pod at a time, its containers one after the other, and all resources of one
container before the next container (kubernetes 1.34.1, 1.36.3 and 1.37.1:
pkg/kubelet/cm/devicemanager/manager.go allocateContainerResources). Two sources answer in a call:

- The checkpoint of the device manager, which the kubelet writes once a container has everything:
  a container whose devices it lacks still asks. It names init containers, and pods by UID.
- PodResources ``List``: it shows the pod under admission already, and what its containers were
  given before (pkg/kubelet/kubelet.go HandlePodAdditions, apis/podresources/server_v1.go List). A
  pod that the last list lacked was added since, and the pods before it are admitted: it asks.
  Without a new pod, the pod that got the last grant is still being admitted.

A pod can come back under its name. It is another one if its containers lack devices that they had,
if the last grant is free again, or if the API server has another UID for it.

A list is only safe there while nothing is reserved (:mod:`nodetopo.probes.kubelet.gate`), which is
while ``must_include`` is empty. Where the pod stays unknown, callers guess as they did without it.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from threading import Event, Lock
from time import monotonic
from types import MappingProxyType
from typing import TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from nodetopo.deviceplugin.devices import PluginDevice
from nodetopo.deviceplugin.pb import deviceplugin_pb2 as pb
from nodetopo.deviceplugin.service import Answers, InformedPrefer, Prefer
from nodetopo.deviceplugin.settings import NumaReport
from nodetopo.errors import UnreadableError
from nodetopo.model.pod import Container, Pod
from nodetopo.probes.kubelet.gate import ADMISSIONS, AdmissionGate
from nodetopo.probes.kubelet.state import Record, Records

DEADLINE_S = 1.0
"""After a slower list, lookups pause for :data:`PAUSE` times as long. It is no timeout: a list that
was sent is waited for, because hanging up does not take it back."""

PAUSE = 10
"""Pause of lookups after a slow list, in durations of that list: admission becomes at most a tenth
slower."""

REMEMBERED = 512
"""Pods without a place in the last list whose devices are remembered: a kubelet that restarts lists
its pods one after the other again."""

WINDOW_S = 2.0
"""How long after a grant another request is taken for the same pod's where no device shows it: for
the next container's, an init container's, or where neither a list nor the checkpoint is read.

Between two calls of one admission the real kubelet takes 2 to 50 ms on two busy cores; a slow disk
makes that hundreds."""

PodName: TypeAlias = tuple[str, str]
"""Namespace and name."""

Held: TypeAlias = Mapping[str, frozenset[str]]
"""Device ids by resource."""

Containers: TypeAlias = Mapping[str, Held]
"""The containers of a pod in the order of its spec, and what each has."""

NOTHING: Held = MappingProxyType({})


class Requester(Struct, frozen=True, kw_only=True):
    """The container that asks for devices now."""

    pod: PodName | None = None  # ``None`` where several pods are possible
    # The only one that the kubelet lists and that can ask, unless an init container asks, which it
    # does not list; ``None`` where several can.
    container: str | None = None
    held: Held = field(default_factory=lambda: NOTHING)  # what the container has of other resources
    # What the pod's init containers left: the kubelet gives it before anything else.
    spare: Held = field(default_factory=lambda: NOTHING)
    # What the other containers of its pod have.
    beside: Held = field(default_factory=lambda: NOTHING)
    # The numbers of devices in its spec; ``None`` where that is not known.
    requests: Mapping[str, int] | None = None


class _Container(Struct, kw_only=True):
    """The container that was given devices last."""

    pod: PodName | None  # ``None`` where no call named it
    given: dict[str, frozenset[str]]  # what it was given, by resource
    spare: Held  # what its pod's init containers left before
    # What the kubelet had recorded as it was given the first; ``None``: not known.
    before: Records | None
    at_s: float  # when it was given the last
    # Whether the last was given in a call that was looked up: the pods that were listed then and
    # asked for nothing were admitted before.
    is_looked_up: bool = False
    uid: str | None = None  # of its pod, once the kubelet has recorded it
    is_complete: bool = False  # whether it asks for no more


class Requesters:
    """Finds the requester of each call; the kubelet's calls come one at a time, others may read."""

    def __init__(
        self,
        pods: Callable[[], Iterable[Pod]] | None = None,
        *,
        records: Callable[[], Records | None] = lambda: None,
        gate: AdmissionGate = ADMISSIONS,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """Ask nothing yet.

        Args:
            pods: lists the node's pods, or raises UnreadableError once no list is under way;
                ``None`` without a kubelet that can be asked.
            records: reads the kubelet's checkpoint; ``None`` where that cannot be read.
            gate: says whether a list is safe.
            clock: seconds.
        """
        # A pod and the name of its container → the numbers of devices in its spec, by resource;
        # ``None`` where that is not known. Set by whoever follows the pods.
        self.requests: Callable[[PodName, str], Mapping[str, int] | None] = lambda *_: None
        # A pod → its UID; ``None`` where that is not known. Set likewise.
        self.uid: Callable[[PodName], str | None] = lambda _: None
        self._pods = pods
        self._records = records
        self._gate = gate
        self._clock = clock
        self._users: frozenset[str] = frozenset()
        self._ours: frozenset[str] = frozenset()  # resources
        self._news = Event()
        self._lock = Lock()  # guards all below
        self._known: OrderedDict[PodName, Containers] = OrderedDict()
        self._uids: dict[PodName, str | None] = {}
        self._has_listed = False
        self._asking: frozenset[PodName] = frozenset()  # one of these is under admission
        self._last: _Container | None = None
        self._seen: Records | None = None
        self._current: tuple[str, Requester] | None = None
        # Every device that a container of the node is known to have, by resource. As of the last
        # list, with later grants.
        self.in_use: Held = NOTHING
        # How the lookups turned out since the start: the pod was found, ambiguous, or there was no
        # list in time.
        self.lookups = Counter(known=0, ambiguous=0, failed=0)
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

    def prime(self, pods: Callable[[], Iterable[Pod]]) -> None:
        """Learn which pods were admitted before this process began, in no call of the kubelet.

        *pods* lists them when nothing is being allocated, or raises UnreadableError.
        """
        if not self._users:
            return
        try:
            before = tuple(pods())
        except UnreadableError:
            return
        with self._lock:
            if not self._has_listed:
                self._take(before, _containers(before), self._records())

    def around(self, resource: str, prefer: Prefer, answers: Answers) -> tuple[Prefer, Answers]:
        """Return *prefer* and *answers* of *resource*, with a requester during each call."""

        def ask(available: Sequence[str], required: Sequence[str], size: int) -> None:
            self.look(resource, required, size, available)

        self._ours = self._ours | {resource}
        return InformedPrefer(ask, prefer), _RecordedAnswers(resource, answers, self)

    def look(
        self, resource: str, required: Sequence[str], size: int, available: Sequence[str] = ()
    ) -> Requester | None:
        """Find the container that asks for *size* devices of *resource*; called in that call.

        *required* are the devices that the kubelet has reserved for it, and *available* all that it
        offers. ``None`` if nobody needs requesters.
        """
        self._current = None
        if not self._users:
            return None
        with self._lock:
            records = self._settle()
        listed = None if required else self._listed()
        with self._lock:
            if listed is None:
                found = self._unlisted(resource, required, records)
                if records is not None and not required:
                    self.in_use = _held_in_all(records)
            else:
                pods = _containers(listed)
                found = self._found(pods, records, resource, size)
                if found.pod is not None:
                    self._asking = frozenset((found.pod,))
                self._take(listed, pods, records)
            if left := self.in_use.get(resource):
                self.in_use = {**self.in_use, resource: left.difference(available)}
            self._current = resource, found
        if listed is not None:
            self._count("ambiguous" if found.pod is None else "known")
        elif not required and self._pods is not None:
            self._count("failed")
        return found

    @property
    def asking(self) -> Requester | None:
        """The container of the call in progress, whatever it asks for; ``None``: unknown."""
        current = self._current
        return None if current is None else current[1]

    def current(self, resource: str) -> Requester | None:
        """Return the container that asks for *resource* now.

        Without a lookup it is the one that got the last grant, if that is recent and was of other
        resources; ``None``: unknown.
        """
        current, last = self._current, self._last
        if current is not None:
            return current[1] if current[0] == resource else None
        if last is None or not self._can_ask(last, resource) or not self._is_recent(last):
            return None
        return Requester(pod=last.pod, held=dict(last.given))

    def begin(self) -> None:
        """Learn, before an Allocate without a choice, whether the last container is complete."""
        with self._lock:
            if self._current is None:
                self._settle()

    def refused(self) -> None:
        """Note that the container was refused its devices, and its pod with it."""
        with self._lock:
            self._current = None
            if self._last is not None:
                self._last.is_complete = True

    def gave(self, resource: str, ids: Collection[str]) -> None:
        """Note that the container was given *ids*: the next call is another one's."""
        with self._lock:
            current, self._current = self._current, None
            records = self._settle() if current is None else self._seen
            last, given = self._last, frozenset(ids)
            if last is None or not self._can_ask(last, resource):
                asking = Requester() if current is None else current[1]
                if current is None and last is not None:
                    spare = _spare(last, self._known.get(last.pod or ("", ""), {}), records)
                    if not given.isdisjoint(spare.get(resource, ())):
                        asking = Requester(pod=last.pod, spare=spare)
                last = self._last = _Container(
                    pod=asking.pod, given={}, spare=asking.spare, before=records, at_s=0.0
                )
            last.given[resource], last.at_s = given, self._clock()
            last.is_looked_up = current is not None
            in_use = self.in_use.get(resource, frozenset()) | given
            self.in_use = {**self.in_use, resource: in_use}

    def _can_ask(self, last: _Container, resource: str) -> bool:
        """Return whether *last* can ask for *resource*: no container does twice."""
        return not last.is_complete and resource not in last.given

    def _is_recent(self, last: _Container) -> bool:
        return self._clock() - last.at_s <= WINDOW_S

    def _settle(self) -> Records | None:
        """Read the kubelet's records; learn from them whether the last container is complete.

        They are read while requesters are needed.
        """
        last, records = self._last, self._records() if self._users else None
        self._seen = records
        if last is None or last.uid is not None or records is None:
            return records
        for uid, container, kind, ids in records - (last.before or frozenset()):
            if last.given.get(kind) == ids:
                last.uid, last.is_complete = uid, True
                known = self._known.get(last.pod) if last.pod is not None else None
                if last.pod is not None and known is not None and container in known:
                    # As the next list will have it: a later pod of this name will lack it.
                    self._known[last.pod] = {**known, container: {**known[container], **last.given}}
                break
        return records

    def _listed(self) -> tuple[Pod, ...] | None:
        """Return the pods; ``None`` if the kubelet stalls, refuses, or a list is not safe."""
        began = self._clock()
        if self._pods is None or began < self._resumes_s:
            return None
        try:
            with self._gate.asking() as is_safe:
                return tuple(self._pods()) if is_safe else None
        except UnreadableError:
            return None
        finally:
            self.last_s = self._clock() - began
            if self.last_s > DEADLINE_S:
                self._resumes_s = self._clock() + PAUSE * self.last_s

    def _unlisted(
        self, resource: str, required: Collection[str], records: Records | None
    ) -> Requester:
        """Return the requester without a list: by the checkpoint, and by what was granted last."""
        last = self._last
        if last is None:
            return Requester()
        spare, held = last.spare, dict(last.given)
        if not self._can_ask(last, resource) or (records is None and not self._is_recent(last)):
            last.is_complete = True
            spare, held = _spare(last, self._known.get(last.pod or ("", ""), {}), records), {}
        if required and spare.get(resource, frozenset()).issuperset(required):
            return Requester(pod=last.pod, held=held, spare=spare)
        return Requester(held=held)  # the kubelet can have refused the pod

    def _found(
        self,
        pods: Mapping[PodName, Containers],
        records: Records | None,
        resource: str,
        size: int,
    ) -> Requester:
        """Return the requester by *pods*, a list, and by what was known before it."""
        last = self._last
        holder = None if last is None else self._holder(pods, last)
        new = {name for name, containers in pods.items() if self._is_new(name, containers)}
        if last and last.pod and last.pod in pods and holder is None and resource in last.given:
            new.add(last.pod)  # what its init containers left would be required
        elif last and last.pod is None and holder is None:
            # Its pod has ended, and could be any that has nothing.
            new.update(
                name for name, has in pods.items() if not self._ours & _union(has.values()).keys()
            )
        if new:
            self._asking = frozenset(new)
        elif holder is not None and holder.pod is not None and last and last.is_looked_up:
            self._asking = frozenset((holder.pod,))
        if last is not None and self._can_ask(last, resource):
            owner = last.pod if holder is None else holder.pod
            others = self._asking - {owner}
            if holder is not None and (records is not None or not others):
                if holder.requests is None or resource in holder.requests:
                    return holder
            elif holder is not None and owner in self._asking:
                return Requester()  # both were added since the last list
            elif holder is None and not self._is_recent(last):
                pass  # the kubelet has refused its pod
            elif holder is None and owner in pods and owner not in new and not others:
                return Requester(pod=owner, held=dict(last.given))
            elif holder is None and owner is None and records is not None and not others - new:
                only = next(iter(others)) if len(others) == 1 else None
                return Requester(pod=only, held=dict(last.given))
        if last is not None:
            last.is_complete = True
        if not self._asking:
            return self._unrecorded(pods, records, resource)
        is_recent = bool(new) or last is None or self._is_recent(last)
        found = self._fresh(pods, resource, size, is_recent=is_recent)
        if last is not None and found.pod is not None and found.pod == last.pod and not new:
            return replace(found, spare=_spare(last, pods[found.pod], records))
        return found

    def _fresh(
        self, pods: Mapping[PodName, Containers], resource: str, size: int, *, is_recent: bool
    ) -> Requester:
        """Return a container that has nothing of ours, of a pod that can be under admission.

        If nothing *is_recent*, only by its spec: a pod that leaves no trace can have come back.
        """
        known = list[Requester]()
        for name in sorted(self._asking & pods.keys()):
            order = list(pods[name])
            begun = [at for at, one in enumerate(order) if self._ours & pods[name][one].keys()]
            known += [
                self._requester(name, pods[name], container)
                for container in order[begun[-1] + 1 if begun else 0 :]
                if resource not in pods[name][container]
            ]
        certain = [one for one in known if one.requests and one.requests.get(resource) == size]
        candidates = certain or [one for one in known if one.requests is None and is_recent]
        if len({one.pod for one in candidates}) != 1:
            return Requester()
        first = candidates[0]
        is_one = bool(certain) or len(candidates) == 1
        return first if is_one else replace(first, container=None)

    def _unrecorded(
        self, pods: Mapping[PodName, Containers], records: Records | None, resource: str
    ) -> Requester:
        """Return the container that has a part of what it wants.

        The process began between two calls of one admission.
        """
        if not self._has_listed and records is None:
            return Requester()
        recorded = {(container, kind, ids) for _, container, kind, ids in records or ()}
        found = [
            self._requester(name, containers, container)
            for name, containers in pods.items()
            for container, held in containers.items()
            if resource not in held
            and any((container, kind, held[kind]) not in recorded for kind in self._ours & {*held})
        ]
        found = [one for one in found if one.requests is None or resource in one.requests]
        return found[0] if len(found) == 1 else Requester()

    def _holder(self, pods: Mapping[PodName, Containers], last: _Container) -> Requester | None:
        """Return the container that has what *last* was given; ``None``: none, or one of init."""
        for name, containers in pods.items():
            for container, held in containers.items():
                if all(held.get(kind) == ids for kind, ids in last.given.items()):
                    return self._requester(name, containers, container)
        return None

    def _requester(self, pod: PodName, containers: Containers, container: str) -> Requester:
        beside = _union(held for other, held in containers.items() if other != container)
        return Requester(
            pod=pod,
            container=container,
            held=containers[container],
            beside=beside,
            requests=self.requests(pod, container),
        )

    def _is_new(self, name: PodName, containers: Containers) -> bool:
        """Return whether the pod was not known, or another had its name."""
        if not self._has_listed:
            return False
        before = self._known.get(name)
        uids = self._uids.get(name), self.uid(name)
        return (
            before is None
            or not _devices(before) <= _devices(containers)
            or (None not in uids and uids[0] != uids[1])
        )

    def _take(
        self,
        listed: Sequence[Pod],
        pods: Mapping[PodName, Containers],
        records: Records | None,
    ) -> None:
        """Remember *pods*, the *listed* ones by name; of those they lack, the ones with devices."""
        for name in [name for name, has in self._known.items() if not _devices(has)]:
            del self._known[name]
        for name, containers in pods.items():
            self._known[name] = containers
            self._known.move_to_end(name)
        while len(self._known) > max(REMEMBERED, len(pods)):
            self._known.popitem(last=False)
        self._uids = {name: self.uid(name) or self._uids.get(name) for name in self._known}
        self._has_listed = True
        held = _union(_held(container) for pod in listed for container in pod.containers)
        # The kubelet records a container once it is complete: what has its devices before is over.
        last = self._last
        begun = NOTHING if last is None or last.is_complete else last.given
        recorded = {kind: ids - begun.get(kind, frozenset()) for kind, ids in held.items()}
        self.in_use = _union((held, *_of_init_containers(recorded, records or ())))

    def _count(self, outcome: str) -> None:
        self.lookups[outcome] += 1


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
        self._requesters.begin()
        try:
            response = self._answers.answer(devices)
        except Exception:
            self._requesters.refused()
            raise
        self._requesters.gave(self._resource, [device.id for device in devices])
        return response


def _containers(pods: Iterable[Pod]) -> dict[PodName, Containers]:
    """Return the containers by pod; of two pods of one name, the one that has no devices yet.

    The other is ending.
    """
    found: dict[PodName, Containers] = {}
    for pod in pods:
        name = pod.namespace, pod.name
        if name not in found or _devices(found[name]):
            found[name] = {container.name: _held(container) for container in pod.containers}
    return found


def _held(container: Container) -> Held:
    return {given.resource: frozenset(given.ids) for given in container.devices or ()}


def _devices(containers: Containers) -> frozenset[tuple[str, str, str]]:
    return frozenset(
        (container, resource, name)
        for container, held in containers.items()
        for resource, ids in held.items()
        for name in ids
    )


def _union(several: Iterable[Held]) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for held in several:
        for resource, ids in held.items():
            found[resource] = found.get(resource, frozenset()) | ids
    return found


def _held_in_all(records: Records) -> Held:
    return _union({resource: ids} for _, _, resource, ids in records)


def _of_init_containers(listed: Held, records: Collection[Record]) -> list[Held]:
    """Return what pods of *records* have that is not *listed*, of pods of which something is."""
    alive = {uid for uid, _, kind, ids in records if ids <= listed.get(kind, frozenset())}
    return [{kind: ids} for uid, _, kind, ids in records if uid in alive]


def _spare(last: _Container, containers: Containers, records: Records | None) -> Held:
    """Return what only init containers of the pod of *last* have; *containers* are the others."""
    own = [record for record in records or () if record[0] == last.uid]
    init = _union({kind: ids} for _, name, kind, ids in own if name not in containers)
    taken = _union({kind: ids} for _, name, kind, ids in own if name in containers)
    left = {kind: ids - taken.get(kind, frozenset()) for kind, ids in init.items()}
    return {kind: ids for kind, ids in left.items() if ids}
