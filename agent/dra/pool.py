"""What our driver publishes for one node, and what is behind each device of it."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Self

from agent.allocation.allocator import Allocator
from agent.allocation.rules import DEFAULT, Rules
from agent.dra.devices import (
    MOST_GPUS,
    Conditions,
    Json,
    counter_sets,
    mig_devices,
    mig_name,
    set_devices,
)
from agent.dra.form import SETS, Form
from agent.dra.sets import GpuSet, gpu_sets, publishable, ranked
from agent.dra.slices import Group
from agent.model.gpu import Gpu
from agent.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class BackingDevices:
    """What a container gets for one published device.

    Attributes:
        uuids: of its GPUs or of the MIG device, by which containers are given them.
        gpus: ids of the GPUs behind them.
        is_part: whether it is a part of its GPU, beside which others may be in use.
    """

    uuids: tuple[str, ...]
    gpus: tuple[str, ...]
    is_part: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The devices of a node, for one state of its hardware; safe to share between threads."""

    snapshot: Snapshot
    allocator: Allocator
    sets: tuple[GpuSet, ...]
    mig_gpus: tuple[Gpu, ...]
    form: Form

    @classmethod
    def of(
        cls,
        snapshot: Snapshot,
        gpus: Iterable[Gpu],
        rules: Rules = DEFAULT,
        form: Form = SETS,
    ) -> Self:
        """Return the pool of *gpus*, a part of those of *snapshot*, lost ones included."""
        gpus = tuple(gpus)
        allocator = Allocator(snapshot, rules)
        whole = [gpu.id for gpu in gpus if publishable(gpu)]
        return cls(
            snapshot=snapshot,
            allocator=allocator,
            sets=gpu_sets(snapshot, allocator, whole),
            mig_gpus=tuple(gpu for gpu in gpus if gpu.mig is not None and gpu.mig.is_enabled),
            form=form,
        )

    @property
    def refusal(self) -> str | None:
        """Why the pool cannot be published; ``None`` if it can."""
        count = sum(each.is_single for each in self.sets)
        if count <= MOST_GPUS:
            return None
        return (
            f"{count} GPUs, and a set of shared counters takes {MOST_GPUS} — leave some out with "
            "exclude-gpus, or offer them by device plugin"
        )

    @property
    def counter_sets(self) -> list[Json]:
        """The shared counters of the pool."""
        return counter_sets(self.sets, self.snapshot)

    def groups(self, used: Collection[str], now: Conditions) -> tuple[Group, ...]:
        """Return the devices, by size, in the order for claims that come next.

        Args:
            used: ids of the GPUs that prepared claims have.
            now: health and other reasons not to allocate a GPU.
        """
        verdicts = now.health
        unsound = {gpu for gpu, verdict in verdicts.items() if not verdict.is_healthy}
        degraded = {gpu for gpu, verdict in verdicts.items() if verdict.is_degraded}
        ids = [each.gpus[0] for each in self.sets if each.is_single]
        free = {
            gpu
            for gpu in ids
            if gpu not in used
            and gpu not in unsound
            and gpu not in now.held
            and self.allocator.knows(gpu)
        }
        devices = set_devices(self.sets, self.snapshot, self.allocator, now)
        found = []
        order = ranked(self.sets, self.allocator, free, degraded & free)
        for name, alike in groupby(order, _group_name):
            members = tuple(alike)
            tried = sum(free.issuperset(each.gpus) for each in members)
            found.append(
                Group(
                    name=name,
                    devices=tuple(devices[each.name] for each in members),
                    tried=tried,
                )
            )
        if parts := tuple(mig_devices(self.snapshot, self.mig_gpus, now).values()):
            found.append(Group(name="mig", devices=parts, tried=len(parts)))
        return tuple(found)

    def backing(self, name: str) -> BackingDevices | None:
        """Return what is behind the device *name*; ``None`` where the node has no such device."""
        uuids = {gpu.id: gpu.uuid for gpu in self.snapshot.gpus}
        for each in self.sets:
            if each.name == name:
                known = tuple(uuid for it in each.gpus if (uuid := uuids[it]) is not None)
                return BackingDevices(uuids=known, gpus=each.gpus)
        for gpu in self.mig_gpus:
            for instance in gpu.mig.instances if gpu.mig else ():
                if mig_name(gpu, instance) == name:
                    return BackingDevices(uuids=(instance.uuid,), gpus=(gpu.id,), is_part=True)
        return None


def _group_name(each: GpuSet) -> str:
    """Return the name of the group of *each*; single GPUs sort before sets."""
    return "000-single" if each.is_single else f"{each.size:03d}-gpus"
