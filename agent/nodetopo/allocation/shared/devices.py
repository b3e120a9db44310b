"""The devices of one resource, GPU by GPU, in the order in which they are taken."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from nodetopo.model.node import unshared
from nodetopo.model.snapshot import Snapshot

FAR = 1 << 30
"""Sorts a MIG device of unknown placement behind the others."""

_DIGITS = re.compile("([0-9]+)")

_Key = tuple[tuple[int, int, int], tuple[tuple[int, str], ...], str]


class Devices:
    """Find and count devices; those of GPUs that the snapshot does not have are left out."""

    def __init__(self, snapshot: Snapshot, devices: Mapping[str, str]) -> None:
        placement = {
            instance.uuid: (
                FAR if instance.placement is None else instance.placement.start,
                FAR if instance.gpu_instance is None else instance.gpu_instance,
                FAR if instance.compute_instance is None else instance.compute_instance,
            )
            for gpu in snapshot.gpus
            for instance in (gpu.mig.instances if gpu.mig else ())
        }

        def order(name: str) -> _Key:
            """Sort MIG devices by placement, the rest by the numbers within the text."""
            return placement.get(unshared(name), (FAR, FAR, FAR)), _natural(name), name

        by_gpu: dict[str, list[str]] = {gpu.id: [] for gpu in snapshot.gpus}
        for name, gpu_id in devices.items():
            if gpu_id in by_gpu:
                by_gpu[gpu_id].append(name)
        self.of_gpu = tuple(tuple(sorted(by_gpu[gpu.id], key=order)) for gpu in snapshot.gpus)
        self.gpu: Mapping[str, int] = {
            name: gpu for gpu, names in enumerate(self.of_gpu) for name in names
        }
        self._parts = tuple(len(set(map(unshared, names))) for names in self.of_gpu)
        self._rank = {name: rank for rank, name in enumerate(self.gpu)}

    def rank(self, name: str) -> tuple[int, str]:
        """Return a key that sorts ids in device order, unknown ones last."""
        return self._rank.get(name, len(self._rank)), name

    def counted(self, names: Iterable[str]) -> tuple[int, ...]:
        """Return how many different devices of each GPU are in *names*."""
        counts = [0] * len(self.of_gpu)
        for name in set(names):
            counts[self.gpu[name]] += 1
        return tuple(counts)

    def on_gpus(self, names: Iterable[str]) -> int:
        """Return the GPUs that *names* are devices of, as a mask; unknown names are left out."""
        return sum(1 << gpu for gpu in {self.gpu[name] for name in names if name in self.gpu})

    def lowest(
        self,
        taken: Sequence[int],
        available: Collection[str],
        required: Collection[str],
    ) -> tuple[str, ...]:
        """Return the first devices of each GPU as *taken* counts them, *required* ones kept.

        Replicas of a GPU's MIG devices are taken from the MIG devices with the fewest replicas
        in use.
        """
        chosen: list[str] = []
        for names, parts, count in zip(self.of_gpu, self._parts, taken, strict=True):
            if count:
                kept = [name for name in names if name in required]
                spare = [name for name in names if name in available and name not in required]
                if parts not in (1, len(names)):
                    spare = _evenly(names, spare)
                chosen += [*kept, *spare][:count]
        return tuple(sorted(chosen, key=self.rank))


def _evenly(names: Sequence[str], spare: Sequence[str]) -> list[str]:
    """Return *spare* in the order that loads the MIG devices of one GPU evenly.

    *names* are all devices of the GPU; the others are in use, or already taken.
    """
    free = set(spare)
    load = Counter(unshared(name) for name in names if name not in free)
    ranked: list[tuple[int, int, str]] = []
    for place, name in enumerate(spare):
        ranked.append((load[unshared(name)], place, name))
        load[unshared(name)] += 1
    return [name for _, _, name in sorted(ranked)]


def _natural(text: str) -> tuple[tuple[int, str], ...]:
    """Return a key by which ``a::2`` is less than ``a::10``: numbers compare by length first."""
    parts = _DIGITS.split(text)
    numbers = (part.lstrip("0") if at % 2 else part for at, part in enumerate(parts))
    return tuple((len(part) if at % 2 else 0, part) for at, part in enumerate(numbers))
