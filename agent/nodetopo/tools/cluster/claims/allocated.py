"""A claim that has its devices: which GPUs were free for it, and which set of them was the best."""

import re
from collections.abc import Collection, Iterator, Sequence

from msgspec.structs import replace

from nodetopo.allocation.allocator import Allocation, Allocator
from nodetopo.allocation.explain import compared, names
from nodetopo.allocation.requests import usable
from nodetopo.allocation.rules import Policy, terms_for
from nodetopo.formats.fields import Object, full_name, text
from nodetopo.model.dra import DRIVER, NVIDIA_DRIVER, PublishedDevice
from nodetopo.model.nvlink import Closeness
from nodetopo.model.snapshot import Snapshot
from nodetopo.tools.cluster.claims.claim import (
    EXPORT,
    Explained,
    Given,
    Request,
    Set,
    Verdict,
    equal_in,
    held_by,
    is_tainted,
    key_of,
    results_of,
)
from nodetopo.topology.affinity import hca_closeness
from nodetopo.topology.published import gpus_of, hca_of, is_admin, is_mig

_PARTITION = re.compile(r".*/partition[0-9]+")
"""An attribute with the partition of Fabric Manager that a GPU is in, by size."""


class Allocated:
    """A claim with the devices of its node."""

    def __init__(
        self,
        claim: Object,
        requests: tuple[Request, ...],
        published: Sequence[PublishedDevice],
        others: Sequence[Object],
        machine: Snapshot | None,
    ) -> None:
        self._claim = claim
        self._requests = requests
        self._published = published
        self._others = others
        self._machine = machine or Snapshot()
        self._devices = {device.key: device for device in published}
        self._behind = {device.key: gpus_of(device, self._machine) for device in published}
        self.given = tuple(map(self._given, results_of(claim)))
        # Positions of the GPUs behind its devices, ascending.
        self.gpus = tuple(sorted({gpu for each in self.given for gpu in each.gpus}))

    def explained(self, node: str | None) -> Explained:
        gone = ["/".join(each.key) for each in self.given if each.published is None]
        unknown = [f"{name} is in no slice of its node" for name in gone]
        explained = Explained(
            claim=full_name(self._claim),
            verdict=Verdict.NO_CHOICE,
            node=node,
            requests=self._requests,
            given=self.given,
            unknown=tuple(unknown),
        )
        if self._is_admin():
            admin = "it has admin access: it takes its devices from nobody, whoever has them"
            return replace(explained, why=(admin,))
        if any(each.key[0] in (NVIDIA_DRIVER, DRIVER) and not each.gpus for each in self.given):
            what = "the GPUs behind its devices: nothing that is known of its node has them"
            return replace(explained, verdict=Verdict.UNKNOWN, unknown=(*unknown, what))
        if not self.gpus:
            return replace(explained, why=("it has no GPUs to compare",))
        nearest = tuple(self._nearest())
        if (parts := self._parts()) is not None:
            return replace(explained, why=(parts,), nearest=nearest)
        free, by_time = self._free()
        if not by_time:
            unknown.append("when claims were allocated: all others count as allocated before it")
        allocator = Allocator(self._machine)
        ids = [gpu.id for gpu in self._machine.gpus]
        available = [ids[at] for at in free]
        if not {*self.gpus} <= {*free}:
            lost_now = (self._machine.gpus[at].index for at in self.gpus if at not in free)
            unknown.append(f"what {names(lost_now)} was worth: it is lost now")
            return replace(explained, verdict=Verdict.UNKNOWN, unknown=tuple(unknown))
        was = allocator.describe([ids[at] for at in self.gpus], available)
        best = self._best(allocator, available)
        terms = terms_for(Policy.BEST, len(self.gpus))
        # Terms after the remainder's value only order equally good sets.
        terms = terms[: terms.index("remainder_value") + 1]
        verdict = Verdict.BEST if was.score.lost_at(best.score, terms) is None else Verdict.WORSE
        if len(free) == len(self.gpus):
            verdict = Verdict.NO_CHOICE
        better = self._set(best)
        explained = replace(
            explained,
            verdict=verdict,
            free=free,
            was=self._set(was),
            best=better if verdict is Verdict.WORSE else self._set(was),
            nearest=nearest,
            unknown=tuple(unknown),
        )
        if verdict is Verdict.NO_CHOICE:
            return replace(explained, why=("no other GPUs were free",))
        steps = tuple(_taken(request) for request in self._asking() if request.matched is not None)
        if verdict is Verdict.BEST:
            return replace(explained, why=(*steps, "no set of GPUs that was free is better"))
        lost = f"the set {compared(best.score, was.score, terms)}"
        why = (lost, *self._why(better, free))
        return replace(explained, why=why, cures=tuple(dict.fromkeys(self._cures())))

    def _is_admin(self) -> bool:
        results = results_of(self._claim)
        return bool(results) and all(result.get("adminAccess") is True for result in results)

    def _parts(self) -> str | None:
        """Return why no sets are compared where the claim has parts of GPUs."""
        devices = [each.published for each in self.given if each.published is not None]
        if any(device.is_shared for device in devices):
            return "shares of GPUs are not compared: what others have of one does not keep it away"
        if any(map(is_mig, devices)):
            return "parts of GPUs are not compared: they do not disturb each other"
        return None

    def _best(self, allocator: Allocator, available: Sequence[str]) -> Allocation:
        """Return the best set of *available* GPUs that the claim could have."""
        size = len(self.gpus)
        attribute = self._partition()
        if attribute is None:
            return allocator.allocate(available=available, size=size)
        groups: dict[str, set[str]] = {}
        for device in self._published:
            for value in device.values(attribute):
                behind = {self._machine.gpus[at].id for at in self._behind[device.key]}
                groups.setdefault(value, set()).update(behind)
        own = [self._machine.gpus[at].id for at in self.gpus]
        sets = [own, *(sorted(ids) for ids in groups.values() if len(ids) == size)]
        possible = dict.fromkeys(frozenset(ids) for ids in sets if {*ids} <= {*available})
        best, *_ = allocator.sorted_sets(possible, available)
        return allocator.describe(best, available)

    def _partition(self) -> str | None:
        """Return the attribute that keeps the claim within a partition of Fabric Manager.

        Only the GPUs of a partition can be activated together (dra-driver-nvidia-gpu main, August
        2026, ``FabricManagerPartitioning``).
        """
        matched = (it for each in self._asking() for it in equal_in(self._claim, each.name))
        return next((attribute for attribute in matched if _PARTITION.fullmatch(attribute)), None)

    def _given(self, result: Object) -> Given:
        key = key_of(result)
        device = self._devices.get(key)
        return Given(
            request=(text(result, "request") or "").partition("/")[0],
            key=key,
            gpus=self._behind.get(key, ()),
            hca=None if device is None else hca_of(device, self._machine),
            published=device,
        )

    def _asking(self) -> list[Request]:
        own = {each.request for each in self.given if each.gpus}
        return [request for request in self._requests if request.name in own]

    def _set(self, found: Allocation) -> Set:
        chosen = {*found.chosen}
        gpus = tuple(at for at, gpu in enumerate(self._machine.gpus) if gpu.id in chosen)
        return Set(gpus=gpus, score=found.score)

    def _free(self) -> tuple[tuple[int, ...], bool]:
        """Return the GPUs that were free for the claim, and whether allocation times are known.

        GPUs of claims allocated in the same second count as taken before, because the order is
        unknown. A tainted device is only offered to claims that tolerate it.
        """
        own = _time(self._claim)
        is_known = own is not None
        taken: set[int] = set()
        for other in self._others:
            behind = {gpu for key in held_by(other) for gpu in self._behind.get(key, ())}
            if not behind:
                continue
            time = _time(other)
            is_known = is_known and time is not None
            if own is None or time is None or time <= own:
                taken |= behind
        offered = {
            gpu
            for device in self._published
            if not is_tainted(device) and not is_admin(device)
            for gpu in self._behind[device.key]
        }
        sound = {*usable(self._machine)}
        everyone = [at for at, gpu in enumerate(self._machine.gpus) if gpu.id in sound]
        free = (at for at in everyone if at in self.gpus or (at in offered and at not in taken))
        return tuple(free), is_known

    def _nearest(self) -> Iterator[tuple[int, int | None, Closeness | None]]:
        distances = hca_closeness(self._machine)
        for hca in sorted({each.hca for each in self.given if each.hca is not None}):
            known = [
                (distance, at)
                for at in self.gpus
                if (distance := distances.get((self._machine.gpus[at].index, hca))) is not None
            ]
            if known:
                distance, at = min(known)
                yield hca, at, distance
            else:
                yield hca, None, None

    def _why(self, better: Set, free: Sequence[int]) -> Iterator[str]:
        yield "the allocator compares no sets: it takes the first devices that meet the claim"
        for request in self._asking():
            path = request.name if request.matched is None else f"{request.name}/{request.matched}"
            if request.matched is not None:
                yield _taken(request)
            else:
                yield f"the request {request.name} has no alternatives to prefer some GPUs by"
            for attribute in equal_in(self._claim, path):
                if not self._is_equal(better.gpus, attribute):
                    yield f"its constraint on {attribute} leaves the better set out"
            if request.has_selectors and request.matched is None:
                yield f"the selectors of {request.name} may leave the better set out"
            elif self._is_first(request, free):
                yield "its devices are the first free ones in the order of the slices"
        if any(each.key[0] == NVIDIA_DRIVER for each in self.given):
            yield "NVIDIA's driver publishes no NVLinks, and its GPUs in no order"

    def _cures(self) -> Iterator[str]:
        if self._partition() is not None:
            yield "name the partition: other sets than Fabric Manager's cannot be activated"
            return
        for request in self._asking():
            if request.alternatives and request.matched != request.alternatives[-1]:
                yield f"its alternatives are not those of this machine: `{EXPORT}` again"
            else:
                yield f"claim by alternatives for this machine: `{EXPORT}`"
        if any(each.key[0] == NVIDIA_DRIVER for each in self.given):
            yield f"or let the driver {DRIVER} publish sets of GPUs, the best first"

    def _is_equal(self, gpus: Collection[int], attribute: str) -> bool:
        """Return whether the devices of *gpus* have a common value of *attribute*."""
        values = [
            {*device.values(attribute)}
            for device in self._published
            if {*self._behind[device.key]} & {*gpus} and not is_admin(device)
        ]
        return bool(values) and bool(set.intersection(*values))

    def _is_first(self, request: Request, free: Sequence[int]) -> bool:
        """Return whether *request* got the first devices of its pool that were free."""
        own = [each.key for each in self.given if each.request == request.name and each.gpus]
        pools = {key[:2] for key in own}
        order = [
            device.key
            for device in self._published
            if device.key[:2] in pools
            and not is_admin(device)
            and self._behind[device.key]
            and {*self._behind[device.key]} <= {*free}
        ]
        return {*order[: len(own)]} == {*own}


def _time(claim: Object) -> str | None:
    """Return when *claim* was allocated; RFC 3339 in UTC, which sorts as text."""
    return text(claim, "status", "allocation", "allocationTimestamp")


def _taken(request: Request) -> str:
    number = request.alternatives.index(request.matched or "") + 1
    count = len(request.alternatives)
    what = f"{request.name}: alternative {number} of {count}, {request.matched}, was taken"
    if number == 1:
        return what
    before = "the one before it" if number == 2 else f"the {number - 1} before it"
    return f"{what}: {before} could not be met by what was free"
