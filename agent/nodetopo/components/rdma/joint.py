"""Joint placement: the HCAs of a pod follow its GPUs, and its GPUs its HCAs.

The kubelet allocates one resource of one container at a time, in random order, and does not name
the pod (kubelet 1.36 pkg/kubelet/cm/devicemanager/manager.go, allocateContainerResources: a loop
over a Go map, under the lock of one admission). :class:`~nodetopo.kernel.requester.Requesters`
finds the container all the same: a choice follows the devices of the other kind that it has.

Where the container is unknown, a choice follows the latest allocation of the other kind, if it was
made within :data:`WINDOW_S`. That is a guess, which is wrong if a pod that requests only GPUs is
admitted shortly before a pod that requests only HCAs. A wrong guess costs nearness, never a device:
chosen devices are always available, and the kubelet's NUMA nodes come first.

Devices that followed each other are kept until the kubelet lists what pods have, and are then
counted as right or wrong.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from threading import Lock
from time import monotonic

from nodetopo.components.rdma.resources import RdmaResource, key_of, token_of
from nodetopo.deviceplugin.service import Prefer
from nodetopo.kernel.offers import Choice
from nodetopo.kernel.requester import Held, Requesters
from nodetopo.nccl.job import JobVariable, container_variables
from nodetopo.rdma.pairing import Pairing
from nodetopo.rdma.pools import SharingMode

WINDOW_S = 2.0
"""How long after an allocation a request of the other kind is taken for the same container's.

Between two calls of one admission the real kubelet takes 2 to 50 ms on two busy cores, most of it
for the checkpoint that it writes after each allocation; a slow disk makes that hundreds. Pods that
come together are admitted as close to each other, which a shorter window would not tell apart."""

MOST_GUESSES = 64
"""Guesses that wait for the kubelet's word; a node admits fewer pods between two looks."""

MOST_GRANTS = 32
"""Most remembered allocations: one container's, and some more."""


class Kind(StrEnum):
    """The kind of a resource's parts."""

    GPU = "gpu"
    HCA = "hca"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """An allocation to one container.

    Attributes:
        devices: ids known to the kubelet.
        parts: ids of GPUs or keys of HCAs.
        at_s: when, by the monotonic clock.
        followed_by: resources of the other kind already allocated to the same container.
    """

    kind: Kind
    resource: str
    devices: frozenset[str]
    parts: tuple[str, ...]
    at_s: float
    followed_by: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Guess:
    """Two grants that were taken for one container's, and when."""

    first: Grant
    second: Grant


@dataclass(frozen=True, slots=True)
class Tally:
    """How many guesses were right, wrong, and never found out about."""

    right: int = 0
    wrong: int = 0
    unknown: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Places:
    """Where the GPUs and HCAs of the last snapshot are, by id and by key."""

    pairing: Pairing
    gpus: Mapping[str, int]
    hcas: Mapping[str, int]
    variables: tuple[JobVariable, ...] = ()


class JointPlacement:
    """Coordinates the GPU and HCA choices for one container; any thread can call it.

    Args:
        clock: returns seconds.
        requesters: find the container of a call; ``None`` where it is always guessed.
    """

    def __init__(
        self, clock: Callable[[], float] = monotonic, requesters: Requesters | None = None
    ) -> None:
        self._clock = clock
        self._requesters = requesters
        self._window_s = WINDOW_S
        self._lock = Lock()  # guards all below but the places
        self._places: _Places | None = None  # replaced as a whole
        self._grants: deque[Grant] = deque(maxlen=MOST_GRANTS)
        self._guesses: deque[Guess] = deque()
        self._busy: set[str] = set()  # GPUs that containers have
        self._pools: Mapping[str, RdmaResource] = {}  # that are not shared; replaced as a whole
        self._tally = Tally()
        self._gpu_of: dict[str, Callable[[], Mapping[str, str]]] = {}  # by resource
        self._next: tuple[Sequence[str], Choice | None] = (), None  # replaced as a whole

    @property
    def tally(self) -> Tally:
        """How what followed each other turned out."""
        with self._lock:
            return self._tally

    @property
    def guesses(self) -> tuple[Guess, ...]:
        """Those that wait to be verified, the oldest first."""
        with self._lock:
            return tuple(self._guesses)

    def take(
        self,
        pairing: Pairing,
        gpus: Mapping[str, int],
        hcas: Mapping[str, int],
        variables: Collection[JobVariable] = (),
    ) -> None:
        """Place the devices of *pairing* from now on: positions of GPUs by id, of HCAs by key.

        *variables* are set in containers.
        """
        assert pairing.closeness is not None  # computed now, and not during a call
        self._places = _Places(pairing=pairing, gpus=gpus, hcas=hcas, variables=tuple(variables))

    def offer(self, pools: Iterable[RdmaResource]) -> None:
        """Place the devices of *pools* from now on; a shared pool leaves nothing to choose."""
        chosen = [pool for pool in pools if pool.pool.mode is not SharingMode.SHARED]
        self._pools = {pool.name: pool for pool in chosen}
        if self._requesters is not None:
            self._requesters.need("joint placement", is_needed=bool(chosen))

    def rest(self) -> None:
        """Follow nothing while no HCAs are offered."""
        self.offer(())
        self._places = None
        with self._lock:
            self._grants.clear()
            self._guesses.clear()

    def variables(
        self, gpus: Sequence[str], hcas: Sequence[str], *, are_gpus_certain: bool
    ) -> Mapping[str, str]:
        """Return the variables of a container with *gpus* and *hcas*, by id and by key.

        Without variables if an HCA is unknown, since a list excludes whatever it omits. *gpus* are
        certain if they are in the same answer; without any, the nearest GPUs are the guess.
        """
        places = self._places
        if places is None or not places.variables or not all(key in places.hcas for key in hcas):
            return {}
        pairing, snapshot = places.pairing, places.pairing.snapshot
        own = [places.hcas[key] for key in hcas]
        positions = [places.gpus[gpu] for gpu in gpus if gpu in places.gpus]
        if not positions and not are_gpus_certain:
            positions = list(pairing.gpus_for(own, range(len(snapshot.gpus)), len(own)))
        return container_variables(
            snapshot,
            [snapshot.gpus[at] for at in positions],
            [(snapshot.hcas or ())[at] for at in own],
            places.variables,
            pairing=pairing,
            are_gpus_certain=are_gpus_certain,
        )

    def expect(self, gpus: Sequence[str], prefer: Choice | None) -> None:
        """Expect a container that gets HCAs first to be given some of *gpus*, by *prefer*."""
        self._next = tuple(gpus), prefer

    def gave(self, kind: Kind, resource: str, devices: Iterable[str], parts: Iterable[str]) -> None:
        """Remember that the kubelet gave *devices* of *resource*, made of *parts*."""
        if self._places is None:
            return
        grant = Grant(
            kind=kind,
            resource=resource,
            devices=frozenset(devices),
            parts=tuple(dict.fromkeys(parts)),
            at_s=self._clock(),
        )
        with self._lock:
            if kind is Kind.GPU:
                self._busy.update(grant.parts)
            for partner in self._followed(kind, resource):
                self._guesses.append(Guess(first=partner, second=grant))
                at = self._grants.index(partner)
                self._grants[at] = replace(partner, followed_by=partner.followed_by | {resource})
                grant = replace(grant, followed_by=grant.followed_by | {partner.resource})
            self._grants.append(grant)
            while len(self._guesses) > MOST_GUESSES:
                self._guesses.popleft()
                self._tally = replace(self._tally, unknown=self._tally.unknown + 1)

    def partners(self, kind: Kind, resource: str) -> tuple[str, ...]:
        """Return the GPUs or HCAs of the container that asks now for *resource*, of *kind*.

        Those of the other kind alone.
        """
        if (held := self._held(resource)) is not None:
            return tuple(dict.fromkeys(self._parts(kind, held)))
        with self._lock:
            partners = self._partners(kind, resource)
            return tuple(dict.fromkeys(part for grant in partners for part in grant.parts))

    def partner_positions(self, devices: Iterable[str]) -> tuple[int, ...]:
        """Return the positions of the container's other parts, given before *devices*."""
        places, wanted = self._places, frozenset(devices)
        if places is None:
            return ()
        with self._lock:
            firsts = [guess.first for guess in self._guesses if guess.second.devices == wanted]
        return tuple(
            of[part]
            for first in firsts
            for of in (places.gpus if first.kind is Kind.GPU else places.hcas,)
            for part in first.parts
            if part in of
        )

    def verify(self, held: Iterable[Collection[tuple[str, str]]], settled_s: float) -> None:
        """Decide the guesses by the devices that containers hold: resource and id of each.

        A guess stays open for *settled_s* seconds after the grant, until the kubelet lists its
        container; if no container holds its devices any longer, it stays unknown. The held devices
        also correct the set of GPUs in use.
        """
        owners = {device: number for number, devices in enumerate(held) for device in devices}
        before = self._clock() - settled_s
        with self._lock:
            waiting, self._guesses = self._guesses, deque()
            for guess in waiting:
                if guess.second.at_s > before:
                    self._guesses.append(guess)
                    continue
                first, second = (
                    {owners.get((grant.resource, device)) for device in grant.devices}
                    for grant in (guess.first, guess.second)
                )
                if None in first or None in second:
                    self._tally = replace(self._tally, unknown=self._tally.unknown + 1)
                elif first == second:
                    self._tally = replace(self._tally, right=self._tally.right + 1)
                else:
                    self._tally = replace(self._tally, wrong=self._tally.wrong + 1)
            busy = set[str]()
            for resource, device in owners:
                if (gpu_of := self._gpu_of.get(resource)) and (gpu := gpu_of().get(device)):
                    busy.add(gpu)
            for grant in self._grants:
                if grant.kind is Kind.GPU and grant.at_s > before:
                    busy.update(grant.parts)
            self._busy = busy

    def hcas_for(
        self, resource: RdmaResource, available: Sequence[str], required: Sequence[str], size: int
    ) -> tuple[str, ...]:
        """Return the devices of *resource* that the kubelet should take.

        Near the GPUs that the container has just been given. Where it has none yet, near those that
        it would be given next: as many free GPUs as requested HCAs.
        """
        places = self._places
        if resource.pool.mode is SharingMode.SHARED or places is None:
            return tuple(available[:size])  # a container gets all HCAs anyway
        offered = set(available)
        tokens = _by_hca(resource, offered)
        kept = [device for device in required if device in offered]
        held = dict.fromkeys(key_of(device) for device in kept)
        for device in kept:
            tokens[key_of(device)].remove(device)
        self._correct()
        gpus: Sequence[str] = self.partners(Kind.HCA, resource.name)
        gpus = gpus or self._next_gpus(places, tokens, size, resource.name)
        positions = [places.gpus[gpu] for gpu in gpus if gpu in places.gpus]
        chosen = list(kept)
        while len(chosen) < size:
            # One device of each HCA before a second one of any.
            left = {places.hcas[key]: key for key in tokens if tokens[key] and key in places.hcas}
            fresh = {at: key for at, key in left.items() if key not in held}
            if left and not fresh:
                held.clear()
                continue
            users = {
                at: len(resource.tokens.get(key, ())) - len(tokens[key])
                for at, key in fresh.items()
            }
            best = places.pairing.hcas_for(positions, sorted(fresh), size - len(chosen), users)
            if not best:
                break
            for at in best:
                chosen.append(tokens[fresh[at]].pop(0))
                held[fresh[at]] = None
        return tuple(chosen)

    def following(
        self, resource: str, gpu_of: Callable[[], Mapping[str, str]], prefer: Choice
    ) -> Prefer:
        """Return the choice among the devices of a GPU resource that follows a container's HCAs.

        It is the choice of *prefer*, unless the container has HCAs with other GPUs nearer to them;
        then *prefer* chooses among these. A container without HCAs may ask for some next: *prefer*
        is told which ones are taken. *gpu_of* returns the GPU of each device.
        """
        self._gpu_of[resource] = gpu_of

        def choose(available: Sequence[str], required: Sequence[str], size: int) -> Sequence[str]:
            return self._gpus_for(
                prefer, available, required, size, resource=resource, gpu_of=gpu_of()
            )

        return choose

    def _gpus_for(
        self,
        prefer: Choice,
        available: Sequence[str],
        required: Sequence[str],
        size: int,
        *,
        resource: str,
        gpu_of: Mapping[str, str],
    ) -> Sequence[str]:
        places = self._places
        with self._lock:
            self._busy.difference_update(gpu_of.get(device, device) for device in available)
        self._correct()
        keys = self.partners(Kind.GPU, resource)
        hcas = [] if places is None else [places.hcas[key] for key in keys if key in places.hcas]
        if places is None or not hcas:
            return prefer(available, required, size, taken_hcas=self._taken(resource))
        usual = prefer(available, required, size)
        at = {
            device: places.gpus[gpu_of[device]]
            for device in (*available, *required)
            if gpu_of.get(device) in places.gpus
        }
        offered = list(dict.fromkeys(at[device] for device in available if device in at))

        def distance(devices: Iterable[str]) -> int:
            gpus = dict.fromkeys(at[device] for device in devices if device in at)
            return places.pairing.distance(list(gpus), hcas)

        nearest = places.pairing.gpus_for(hcas, offered, min(size, len(offered)))
        least = places.pairing.distance(nearest, hcas)
        if distance(usual) <= least:
            return usual
        near = set(places.pairing.within(offered, hcas, nearest))
        among = [device for device in available if at.get(device) in near or device in required]
        if len(among) >= size:
            best = prefer(among, required, size)
            if distance(best) <= least or not _is_whole(gpu_of):
                return best
        matched = [device for device in available if at.get(device) in nearest]
        return tuple(dict.fromkeys((*required, *matched)))[:size]

    def _next_gpus(
        self, places: _Places, tokens: Mapping[str, Sequence[str]], size: int, resource: str
    ) -> Sequence[str]:
        """Return the GPUs for a container that now requests as many GPUs as HCAs.

        Only GPUs whose nearest HCAs are offered count: if the kubelet chose a NUMA node, it applies
        to GPUs too.
        """
        usable, prefer = self._next
        if prefer is None:
            return ()
        with self._lock:
            busy = set(self._busy)
        free = [gpu for gpu in usable if gpu not in busy and gpu in places.gpus]
        hcas = [places.hcas[key] for key, left in tokens.items() if left and key in places.hcas]
        everywhere = list(places.hcas.values())
        near = [
            gpu
            for gpu in free
            if places.pairing.distance([places.gpus[gpu]], hcas)
            <= places.pairing.distance([places.gpus[gpu]], everywhere)
        ]
        among = near if len(near) >= size else free
        if not among:
            return ()
        return prefer(among, (), min(size, len(among)), taken_hcas=self._taken(resource))

    def _taken(self, resource: str) -> frozenset[str] | None:
        """Return the names of HCAs that no pool can give any more to who asks for *resource*.

        ``None`` for a container that asks for no HCAs, or where the kubelet's list is missing.
        """
        in_use = None if self._requesters is None else self._requesters.in_use
        requester = None if self._requesters is None else self._requesters.current(resource)
        if in_use is None or not self._pools:
            return None
        requests = None if requester is None else requester.requests
        if requests is not None and not self._pools.keys() & requests.keys():
            return None
        left: dict[str, int] = {}
        names: dict[str, str] = {}
        for pool in self._pools.values():
            for key, tokens in pool.tokens.items():
                left[key] = left.get(key, 0) + len(tokens)
                names[key] = pool.hcas[key].name
            for device in in_use.get(pool.name, ()):
                if (key := key_of(device)) in left:
                    left[key] -= 1
        return frozenset(names[key] for key, count in left.items() if count <= 0)

    def _held(self, resource: str) -> Held | None:
        """Return what the container has that asks now for *resource*; ``None``: unknown."""
        requester = None if self._requesters is None else self._requesters.current(resource)
        return None if requester is None else requester.held

    def _parts(self, kind: Kind, held: Held) -> Iterator[str]:
        """Yield the GPUs among the devices *held* where *kind* is HCAs, and the HCAs for GPUs."""
        for resource, ids in sorted(held.items()):
            if kind is Kind.GPU and resource in self._pools:
                yield from map(key_of, sorted(ids))
            elif kind is Kind.HCA and (gpu_of := self._gpu_of.get(resource)):
                of = gpu_of()
                yield from (of[name] for name in sorted(ids) if name in of)

    def _correct(self) -> None:
        """Take the GPUs in use from the kubelet's list, if this call has one."""
        in_use = None if self._requesters is None else self._requesters.in_use
        if in_use is not None:
            with self._lock:
                self._busy = set(self._parts(Kind.HCA, in_use))

    def _followed(self, kind: Kind, resource: str) -> list[Grant]:
        """Return the grants of the other kind that an allocation of *resource* has followed."""
        held = self._held(resource)
        if held is None:
            return self._partners(kind, resource)
        return [
            grant
            for grant in self._grants
            if grant.kind is not kind and grant.devices <= held.get(grant.resource, frozenset())
        ]

    def _partners(self, kind: Kind, resource: str) -> list[Grant]:
        """Return the grants of the other kind that the current container is guessed to have.

        Only the latest grant of each resource can: earlier ones went to other containers.
        """
        since = self._clock() - self._window_s
        latest = {grant.resource: grant for grant in self._grants if grant.kind is not kind}
        return [
            grant
            for grant in latest.values()
            if grant.at_s >= since and resource not in grant.followed_by
        ]


def _is_whole(gpu_of: Mapping[str, str]) -> bool:
    """Return whether each device of a resource is a whole GPU, not a part of one."""
    return all(device == gpu for device, gpu in gpu_of.items())


def _by_hca(resource: RdmaResource, offered: set[str]) -> dict[str, list[str]]:
    """Return the devices *offered* by the key of their HCA, the lowest tokens first.

    The resource has them in that order; only devices that it does not have, which the kubelet still
    has from an earlier list, are sorted.
    """
    tokens = {key: list(filter(offered.__contains__, own)) for key, own in resource.tokens.items()}
    if sum(map(len, tokens.values())) < len(offered):
        for device in sorted(offered.difference(*resource.tokens.values()), key=token_of):
            tokens.setdefault(key_of(device), []).append(device)
    return tokens
