"""The devices that our driver publishes for one node, and the hardware behind each."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import groupby
from types import MappingProxyType
from typing import Self

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.allocation.allocator import Allocator
from nodetopo.allocation.rules import DEFAULT, Rules
from nodetopo.components.dra.attributes import Attributes, Json
from nodetopo.components.dra.choice import chain_sizes
from nodetopo.components.dra.devices import (
    MOST_GPUS,
    MOST_MARKS,
    Conditions,
    admin_device,
    claimed_device,
    counter_sets,
    marked,
    mig_device,
    set_device,
    tainted,
)
from nodetopo.components.dra.form import SETS, Form
from nodetopo.components.dra.sets import GpuSet, best_of, gpu_sets, publishable, ranked, singles_of
from nodetopo.components.dra.slices import MOST_DEVICES, Group
from nodetopo.model.gpu import Gpu
from nodetopo.model.snapshot import Snapshot

NOTHING: Mapping[str, Collection[str]] = MappingProxyType({})
"""No prepared claims."""


class BackingDevices(Struct, frozen=True, kw_only=True):
    """The hardware that a container gets for a published device."""

    uuids: tuple[str, ...]  # of its GPUs or of the MIG device, used to hand them over
    gpus: tuple[str, ...]  # ids of the GPUs behind them
    is_part: bool = False  # a part of its GPU, whose other parts can be in use
    needs_admin: bool = False  # only claims with admin access can get it


class Pool(Struct, frozen=True, kw_only=True):
    """The devices of a node, for one state of its hardware; safe to share between threads."""

    snapshot: Snapshot
    allocator: Allocator
    sets: tuple[GpuSet, ...]  # single GPUs, then sets of GPUs
    form: Form
    # Devices of prepared claims that the pool lacks, with the ids of their GPUs.
    kept: Mapping[str, tuple[str, ...]]
    bodies: Mapping[str, Json]  # devices without taints, by name
    backings: Mapping[str, BackingDevices]  # by name of the device

    @classmethod
    def of(
        cls,
        snapshot: Snapshot,
        gpus: Iterable[Gpu],
        rules: Rules = DEFAULT,
        form: Form = SETS,
        kept: Mapping[str, Collection[str]] = NOTHING,
    ) -> Self:
        """Return the pool of *gpus*, a subset of the GPUs of *snapshot*, lost ones included.

        Args:
            form: how they are published. A node with more GPUs than a set of counters takes has no
                sets.
            kept: ids of the GPUs of each device that prepared claims have, by the device's name,
                without those for administration. Where the pool has no such device (its GPU is
                gone, or an earlier form published it), the other GPUs behind it stay out of reach:
                see :meth:`holds`.
        """
        gpus = tuple(gpus)
        allocator = Allocator(snapshot, rules)
        whole = [gpu.id for gpu in gpus if publishable(gpu)]
        if len(whole) > MOST_GPUS:
            form = replace(form, has_sets=False)
        sets = singles_of(snapshot, whole)
        if form.has_sets:
            taken = len(sets) + (len(gpus) if form.has_admin else 0)
            room = max(0, MOST_DEVICES - taken)
            machine = _as_if_whole(snapshot)  # a GPU that is lost has no links to compare
            able = allocator if machine is snapshot else Allocator(machine, rules)
            sets += gpu_sets(snapshot, able, whole, wanted=form.sizes, room=room)
        attributes = Attributes(snapshot, allocator, has_lists=form.has_lists)
        built = dict(_built(snapshot, gpus, sets, attributes, form))
        return cls(
            snapshot=snapshot,
            allocator=allocator,
            sets=sets,
            form=form,
            kept=_unknown(kept, built),
            bodies={name: body for name, (body, _) in built.items()},
            backings={name: backing for name, (_, backing) in built.items()},
        )

    @property
    def counter_sets(self) -> list[Json]:
        return counter_sets(self._singles.values()) if self.form.has_sets else []

    @property
    def _singles(self) -> Mapping[str, Gpu]:
        """The GPUs that are devices themselves, by id."""
        by_id = {gpu.id: gpu for gpu in self.snapshot.gpus}
        return {each.gpus[0]: by_id[each.gpus[0]] for each in self.sets if each.is_single}

    def holds(self, prepared: Mapping[str, Collection[str]]) -> bool:
        """Return whether *prepared* leads to this pool; if not, the caller makes another.

        Args:
            prepared: the same as *kept* of :meth:`of`.
        """
        return _unknown(prepared, self.bodies) == self.kept

    def groups(
        self, used: Collection[str], now: Conditions, claimed: Collection[str] | None = None
    ) -> tuple[Group, ...]:
        """Return the devices, by kind and size, in the order for claims that come next.

        Args:
            used: ids of the GPUs that prepared claims have.
            now: health and other reasons not to allocate a GPU.
            claimed: names of the devices that they have. With it, devices that share a GPU with one
                of these are left out: none could be allocated, and the scheduler would evaluate
                selectors on each of them for every pod. Single GPUs with a taint stay: their slice
                is where its time is kept. ``None`` keeps all.
        """
        barred, wanted = now.barred, self.form.sizes
        taken = {gpu for ids in self.kept.values() for gpu in ids}
        free = {
            gpu
            for gpu in self._singles
            if gpu not in used and gpu not in barred and self.allocator.knows(gpu)
        } - taken
        degraded = {gpu for gpu in free if gpu in now.health and now.health[gpu].is_degraded}
        hidden = self._hidden(used, barred)
        shown = [
            each
            for each in self.sets
            if hidden.isdisjoint(each.gpus) and not _is_in_the_way(each, used, claimed, barred)
        ]
        order = ranked(shown, self.allocator, free, degraded, wanted)
        best = best_of(self.allocator, free, self._marked, degraded)
        groups = []
        for name, alike in groupby(sorted(order, key=_group_name), _group_name):
            members = tuple(alike)
            heads = chain_sizes(len(members), wanted) if members[0].is_single else (1,)
            devices = tuple(
                marked(self._device(each.name, now), best.get(each.gpus, ())) for each in members
            )
            tried = sum(free.issuperset(each.gpus) for each in members)
            groups.append(Group(name=name, devices=devices, tried=tried, heads=heads))
        rest = (
            ("claimed", self._claimed(now)),
            ("mig", self._parts(now)),
            ("admin", self._admin()),
        )
        for name, devices in rest:
            if devices:
                groups.append(Group(name=name, devices=devices, tried=len(devices)))
        return tuple(groups)

    @property
    def _marked(self) -> tuple[int, ...]:
        """The sizes for which single GPUs show that they are the best: those without sets."""
        count = len(self._singles)
        of_sets = {each.size for each in self.sets if not each.is_single}
        open_sizes = {*chain_sizes(count, self.form.sizes)}.difference(of_sets, {count})
        return tuple(sorted(open_sizes))[:MOST_MARKS]

    def backing(self, name: str) -> BackingDevices | None:
        """Return the hardware behind the device *name*; ``None`` for an unknown device."""
        return self.backings.get(name)

    def _hidden(self, used: Collection[str], barred: Collection[str]) -> set[str]:
        """Return the GPUs whose devices are left out.

        Without taints these are the *barred* GPUs; without counters, also the GPUs of claimed
        devices that the pool lacks. With counters a device in use is never left out.
        """
        hidden: set[str] = set()
        if not self.form.has_taints:
            lost = (gpu for gpu in self._singles if not self.allocator.knows(gpu))
            hidden = {*barred, *lost}
        if self.form.has_sets:
            return hidden.difference(used)
        return hidden.union(*self.kept.values())

    def _device(self, name: str, now: Conditions) -> Json:
        return tainted(self.bodies[name], self.backings[name].gpus, self._shown(now))

    def _shown(self, now: Conditions) -> Conditions:
        """Return the conditions that become taints."""
        return now if self.form.has_taints else Conditions()

    def _claimed(self, now: Conditions) -> tuple[Json, ...]:
        """Return the devices that hold the counters of claims for devices that are gone."""
        singles = self._singles
        return tuple(
            tainted(claimed_device(name, present), ids, self._shown(now))
            for name, ids in self.kept.items()
            if self.form.has_sets and (present := [singles[gpu] for gpu in ids if gpu in singles])
        )

    def _parts(self, now: Conditions) -> tuple[Json, ...]:
        hidden = set() if self.form.has_taints else now.barred
        return tuple(
            self._device(name, now)
            for name, it in self.backings.items()
            if it.is_part and hidden.isdisjoint(it.gpus)
        )

    def _admin(self) -> tuple[Json, ...]:
        """Return the devices for administration, which no condition but loss keeps away."""
        return tuple(
            self.bodies[name]
            for name, it in self.backings.items()
            if it.needs_admin and all(map(self.allocator.knows, it.gpus))
        )


def _as_if_whole(snapshot: Snapshot) -> Snapshot:
    """Return *snapshot* without losses, so that the same sets are published after one."""
    if not any(gpu.is_lost for gpu in snapshot.gpus):
        return snapshot
    return replace(snapshot, gpus=tuple(replace(gpu, is_lost=False) for gpu in snapshot.gpus))


def _built(
    snapshot: Snapshot,
    gpus: Iterable[Gpu],
    sets: Iterable[GpuSet],
    attributes: Attributes,
    form: Form,
) -> Iterator[tuple[str, tuple[Json, BackingDevices]]]:
    """Yield each device's name, the device without taints, and the hardware behind it."""
    by_id = {gpu.id: gpu for gpu in snapshot.gpus}
    for each in sets:
        uuids = tuple(uuid for gpu in each.gpus if (uuid := by_id[gpu].uuid) is not None)
        body = set_device(each, by_id, attributes, is_counted=form.has_sets)
        yield each.name, (body, BackingDevices(uuids=uuids, gpus=each.gpus))
    for gpu in gpus:
        if gpu.pci is None or gpu.uuid is None:
            continue
        for part in gpu.mig.instances if gpu.mig and gpu.mig.is_enabled else ():
            if None not in (part.gpu_instance, part.compute_instance):
                body = mig_device(gpu, part, attributes)
                yield (
                    body["name"],
                    (
                        body,
                        BackingDevices(uuids=(part.uuid,), gpus=(gpu.id,), is_part=True),
                    ),
                )
        if not form.has_admin:
            continue
        body = admin_device(gpu, attributes)
        yield (
            body["name"],
            (
                body,
                BackingDevices(uuids=(gpu.uuid,), gpus=(gpu.id,), needs_admin=True),
            ),
        )


def _is_in_the_way(
    each: GpuSet,
    used: Collection[str],
    claimed: Collection[str] | None,
    barred: Collection[str],
) -> bool:
    """Return whether *each* cannot be allocated because of a prepared claim for another device."""
    if claimed is None or each.name in claimed or set(used).isdisjoint(each.gpus):
        return False
    return not (each.is_single and each.gpus[0] in barred)


def _unknown(
    prepared: Mapping[str, Collection[str]], known: Collection[str]
) -> Mapping[str, tuple[str, ...]]:
    """Return the *prepared* devices whose names are not *known*."""
    return {name: tuple(sorted(ids)) for name, ids in prepared.items() if name not in known}


def _group_name(each: GpuSet) -> str:
    """Return the name of the group of *each*; it sorts by how frequent claims for it are."""
    return f"{each.size:03d}-gpus"


_SET, _SINGLE = "gpus-", "gpu-"
"""Prefixes of names that list the buses of their GPUs (:mod:`nodetopo.components.dra.sets`)."""


def named_set(name: str, pool: Pool) -> BackingDevices | None:
    """Return the GPUs of *pool* that the *name* of a set lists, published or not.

    A claim can have been allocated before other sets were published. ``None`` where the name lists
    GPUs of another pool, or is a digest. A bus in another PCI domain than 0 has two parts, such as
    ``0001-1b``.
    """
    if not name.startswith(_SET):
        return None
    single = {each.name.removeprefix(_SINGLE): each.gpus[0] for each in pool.sets if each.is_single}
    parts, found = name.removeprefix(_SET).split("-"), []
    while parts:
        gpu = single.get(parts[0])
        taken = 1 if gpu is not None else 2
        gpu = gpu or single.get("-".join(parts[:2]))
        if gpu is None:
            return None
        found.append(gpu)
        parts = parts[taken:]
    uuids = {gpu.id: gpu.uuid for gpu in pool.snapshot.gpus}
    known = tuple(uuid for gpu in found if (uuid := uuids[gpu]) is not None)
    is_whole = len(known) == len(found) == len(set(found))
    return BackingDevices(uuids=known, gpus=tuple(found)) if is_whole else None
