"""Joint placement: the HCAs of a pod follow its GPUs, and its GPUs its HCAs.

The kubelet allocates one resource of one container at a time, in random order, and does not name
the pod (kubelet 1.36 pkg/kubelet/cm/devicemanager/manager.go, allocateContainerResources: a loop
over a Go map, under the lock of one admission). :class:`~nodetopo.kernel.requester.Requesters`
finds the container all the same: a choice follows the devices of the other kind that it has.
Chosen devices are always available, and the kubelet's NUMA nodes come first.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from nodetopo.components.rdma.resources import RdmaResource, key_of, token_of
from nodetopo.deviceplugin.service import Prefer
from nodetopo.kernel.offers import Choice
from nodetopo.kernel.requester import Held, Requester, Requesters
from nodetopo.nccl.job import JobVariable, container_variables
from nodetopo.rdma.pairing import Pairing
from nodetopo.rdma.pools import SharingMode

ANSWERS = 32
"""Choices of HCAs whose GPUs are remembered until their line is written, as many as the log
remembers."""

NEEDED = 1 << 20
"""Counts as this many users of an HCA: a free GPU would be left without one near it."""


class _Places(Struct, frozen=True, kw_only=True):
    """Where the GPUs and HCAs of the last snapshot are, by id and by key."""

    pairing: Pairing
    gpus: Mapping[str, int]
    hcas: Mapping[str, int]
    variables: tuple[JobVariable, ...] = ()


class JointPlacement:
    """Coordinates the GPU and HCA choices for one container; any thread can call it."""

    def __init__(self, requesters: Requesters) -> None:
        self._requesters = requesters
        self._places: _Places | None = None  # replaced as a whole
        self._pools: Mapping[str, RdmaResource] = {}  # that are not shared; replaced as a whole
        self._gpu_of: dict[str, Callable[[], Mapping[str, str]]] = {}  # by resource
        self._next: tuple[Sequence[str], Choice | None] = (), None  # replaced as a whole
        self._followed: OrderedDict[frozenset[str], tuple[int, ...]] = OrderedDict()

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
        self._requesters.need("joint placement", is_needed=bool(chosen))

    def rest(self) -> None:
        """Follow nothing while no HCAs are offered."""
        self.offer(())
        self._places = None

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

    def gpus(self, resource: str) -> tuple[str, ...]:
        """Return the GPUs of the container that asks now for HCAs of *resource*."""
        return tuple(self._gpus_in(self._asking(resource).held))

    def followed(self, devices: Iterable[str]) -> tuple[int, ...]:
        """Return the positions of the GPUs that the choice of HCAs *devices* has followed."""
        return self._followed.get(frozenset(devices), ())

    def hcas_for(
        self, resource: RdmaResource, available: Sequence[str], required: Sequence[str], size: int
    ) -> tuple[str, ...]:
        """Return the devices of *resource* that the kubelet should take.

        Near the GPUs that the container has just been given. Where it has none yet, near those that
        it would be given next: as many free GPUs as its spec has, or as requested HCAs. A container
        that asks for no GPUs gets HCAs that no free GPU is nearest to.
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
        gpus: Sequence[str] = self.gpus(resource.name)
        given = positions = [places.gpus[gpu] for gpu in gpus if gpu in places.gpus]
        if not given:
            kept_hcas = [places.hcas[key] for key in held if key in places.hcas]
            gpus = self._next_gpus(places, tokens, kept_hcas, size, resource.name)
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
            if not positions:
                left_gpus = self._free_gpus(places, self._spare_gpus(places, resource.name))
                free = [places.gpus[gpu] for gpu in left_gpus]
                for pair in places.pairing.matched(free, sorted(fresh)):
                    users[pair.hca] += NEEDED
            best = places.pairing.hcas_for(positions, sorted(fresh), size - len(chosen), users)
            if not best:
                break
            for at in best:
                chosen.append(tokens[fresh[at]].pop(0))
                held[fresh[at]] = None
        self._followed[frozenset(chosen)] = tuple(given)
        if len(self._followed) > ANSWERS:
            self._followed.popitem(last=False)
        return tuple(chosen)

    def following(
        self, resource: str, gpu_of: Callable[[], Mapping[str, str]], prefer: Choice
    ) -> Prefer:
        """Return the choice among the devices of a GPU resource that follows a container's HCAs.

        It is the choice of *prefer*, unless the container has HCAs with other GPUs nearer to them;
        then *prefer* chooses among these. A container without HCAs can ask for some next: *prefer*
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
        asking = self._asking(resource)
        keys = list(self._hcas_in(asking.held)) or list(self._hcas_in(asking.spare))
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
        self,
        places: _Places,
        tokens: Mapping[str, Sequence[str]],
        kept: Sequence[int],
        size: int,
        resource: str,
    ) -> Sequence[str]:
        """Return the GPUs for a container that now requests as many GPUs as HCAs.

        Only GPUs whose nearest HCAs are offered count: if the kubelet chose a NUMA node, it applies
        to GPUs too. Those that the pod's init containers left come first, then those nearest to the
        HCAs that are *kept*.
        """
        prefer = self._next[1]
        if prefer is None:
            return ()
        spare = self._spare_gpus(places, resource)
        free = self._free_gpus(places, spare)
        hcas = [places.hcas[key] for key, left in tokens.items() if left and key in places.hcas]
        hcas += kept
        everywhere = list(places.hcas.values())
        near = [
            gpu
            for gpu in free
            if places.pairing.distance([places.gpus[gpu]], hcas)
            <= places.pairing.distance([places.gpus[gpu]], everywhere)
        ]
        among = near if len(near) >= size else free
        first = [gpu for gpu in spare if gpu in among]
        if kept and not first:
            at = {places.gpus[gpu]: gpu for gpu in among}
            first = [at[gpu] for gpu in places.pairing.gpus_for(kept, list(at), len(kept))]
        requests = self._asking(resource).requests
        if requests is not None:
            size = sum(requests.get(name, 0) for name in self._gpu_of)
        size = min(size, len(among))
        if not size:
            return ()
        return prefer(among, first[:size], size, taken_hcas=self._taken(resource))

    def _spare_gpus(self, places: _Places, resource: str) -> list[str]:
        spare = self._gpus_in(self._asking(resource).spare)
        return [gpu for gpu in spare if gpu in places.gpus]

    def _free_gpus(self, places: _Places, spare: Collection[str]) -> list[str]:
        busy = set(self._gpus_in(self._requesters.in_use)).difference(spare)
        return [gpu for gpu in self._next[0] if gpu not in busy and gpu in places.gpus]

    def _taken(self, resource: str) -> frozenset[str] | None:
        """Return the names of HCAs that no pool can give any more to who asks for *resource*.

        ``None`` for a container that asks for no HCAs.
        """
        if not self._pools:
            return None
        in_use, requests = self._requesters.in_use, self._asking(resource).requests
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

    def _asking(self, resource: str) -> Requester:
        return self._requesters.current(resource) or Requester()

    def _gpus_in(self, held: Held) -> Iterator[str]:
        for resource, ids in sorted(held.items()):
            if gpu_of := self._gpu_of.get(resource):
                of = gpu_of()
                yield from dict.fromkeys(of[name] for name in sorted(ids) if name in of)

    def _hcas_in(self, held: Held) -> Iterator[str]:
        for resource, ids in sorted(held.items()):
            if resource in self._pools:
                yield from dict.fromkeys(map(key_of, sorted(ids)))


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
