"""Sets of GPUs as devices, single GPUs, and their order for the scheduler.

The scheduler's allocator takes the first device that fits, in the order of the slices; that order
is a driver's only influence (k8s.io/dynamic-resource-allocation v0.36 ``structured``;
``resourceslice``: "preferred devices should be listed first"). A claim for four single GPUs gets
the first four free ones, wherever they are. So useful sets of GPUs
(:mod:`nodetopo.components.dra.choice`) are published as one device each, and sets of one size are
listed in the order preferred by :meth:`Allocator.allocate`. Shared counters keep two devices with a
GPU in common from being allocated at once.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import sha256

from msgspec import Struct

from nodetopo.allocation.allocator import Allocator, preferred
from nodetopo.components.dra.choice import chain_sizes, chosen_sets
from nodetopo.model.gpu import Gpu
from nodetopo.model.pci import PciAddress
from nodetopo.model.snapshot import Snapshot

LONGEST_NAME = 63
"""Characters of a device's name, which is a DNS label (k8s.io/api ``resource/v1`` Device.Name)."""


class GpuSet(Struct, frozen=True, kw_only=True):
    """One GPU, or GPUs that are allocated together, as one device."""

    name: str  # of the device, the same as long as its GPUs sit where they do
    gpus: tuple[str, ...]  # ids, in device order

    @property
    def size(self) -> int:
        return len(self.gpus)

    @property
    def is_single(self) -> bool:
        """Whether it is one GPU, of which claims take several by count."""
        return self.size == 1


def publishable(gpu: Gpu) -> bool:
    """Return whether *gpu* can be a device, alone and in sets: it has UUID, address and no MIG."""
    return gpu.uuid is not None and gpu.pci is not None and not (gpu.mig and gpu.mig.is_enabled)


def singles_of(snapshot: Snapshot, gpus: Collection[str]) -> tuple[GpuSet, ...]:
    """Return the single GPUs of *gpus*, ids of GPUs that are :func:`publishable`."""
    return tuple(
        GpuSet(name=_name("gpu", [address]), gpus=(name,))
        for name, address in _addresses(snapshot, gpus).items()
    )


def gpu_sets(
    snapshot: Snapshot,
    allocator: Allocator,
    gpus: Collection[str],
    *,
    wanted: Collection[int] = (),
    room: int,
) -> tuple[GpuSet, ...]:
    """Return the sets of *gpus* to publish, by size and in device order.

    Sets are the same whichever GPUs are free: a set that is allocated must stay published, because
    the counters that it consumes are read from the slices.

    Args:
        snapshot: with lost GPUs, too.
        gpus: ids of GPUs that are :func:`publishable`.
        wanted: sizes; empty for the usual ones.
    """
    addresses = _addresses(snapshot, gpus)
    members = {gpu.id: gpu.numa_node for gpu in snapshot.gpus if gpu.id in addresses}
    chosen = chosen_sets(allocator, members, wanted, room)
    return tuple(
        GpuSet(name=_name("gpus", [addresses[gpu] for gpu in ids]), gpus=ids) for ids in chosen
    )


def ranked(
    sets: Iterable[GpuSet],
    allocator: Allocator,
    free: Collection[str],
    degraded: Collection[str] = (),
    wanted: Collection[int] = (),
) -> tuple[GpuSet, ...]:
    """Return *sets* in the order in which the scheduler should try them.

    Single GPUs come first, then sets by size. In each group, sets whose GPUs are all in *free* come
    first, best first; the others keep the order of *sets*. Single GPUs are ordered so that a claim
    for several of them (``nvidia.com/gpu: 4``) gets as good a set as one order allows: see
    :func:`_chain`. So the first need not be the best single GPU. *wanted* adds sizes for which the
    order of single GPUs is optimised.
    """
    kinds: dict[int, list[GpuSet]] = {}
    for each in sets:
        kinds.setdefault(each.size, []).append(each)
    left = {name for name in free if allocator.knows(name)}
    found: list[GpuSet] = []
    for size in sorted(kinds):
        of_gpus = {each.gpus: each for each in kinds[size]}
        able = [gpus for gpus in of_gpus if left.issuperset(gpus)]
        first: tuple[tuple[str, ...], ...]
        if size > 1:
            first = allocator.sorted_sets(able, left, degraded)
        else:
            names = [gpus[0] for gpus in able]
            first = tuple((name,) for name in _chain(allocator, names, degraded, wanted))
        placed = set(first)
        rest = [gpus for gpus in of_gpus if gpus not in placed]
        found += [of_gpus[gpus] for gpus in (*first, *rest)]
    return tuple(found)


def best_of(
    allocator: Allocator,
    free: Collection[str],
    sizes: Iterable[int],
    degraded: Collection[str] = (),
) -> Mapping[tuple[str, ...], tuple[int, ...]]:
    """Return those of *sizes* for which :meth:`Allocator.allocate` chooses each single GPU *free*.

    Claims select by it: no order makes the first 1, 2 and 4 GPUs the best sets of these sizes,
    because the best single GPU need not be part of the best pair. With GPU 0 of two sockets in use,
    the best GPU is the next one, and the best four are the other socket.
    """
    found: dict[tuple[str, ...], tuple[int, ...]] = {}
    for size in sizes:
        for name in preferred(allocator, free, (), size, degraded) if size <= len(free) else ():
            found[name,] = (*found.get((name,), ()), size)
    return found


def _chain(
    allocator: Allocator,
    free: Collection[str],
    degraded: Collection[str],
    wanted: Collection[int],
) -> tuple[str, ...]:
    """Return the ids *free* so that the first 1, 2, 4, 8 … are good sets, the larger the surer.

    One order serves all sizes, so these sets lie within each other: the best of four within the
    best of eight, the best pair within that. The first of these is what :meth:`Allocator.allocate`
    chooses; a job of two can be given GPUs that another pair would leave whole. A set device has
    no such limit.
    """
    inner: tuple[str, ...] = tuple(free)
    rings: list[tuple[str, ...]] = []
    for size in reversed(chain_sizes(len(inner), wanted)):
        if size < len(inner):
            chosen = allocator.allocate(available=inner, size=size, degraded=degraded).chosen
            rings.append(tuple(name for name in inner if name not in chosen))
            inner = chosen
    in_order = [inner, *reversed(rings)]
    return tuple(name for ring in in_order for name in sorted(ring, key=allocator.rank))


def _addresses(snapshot: Snapshot, gpus: Collection[str]) -> Mapping[str, PciAddress]:
    """Return the address of each of *gpus* by id, in device order."""
    wanted = set(gpus)
    return {gpu.id: gpu.pci for gpu in snapshot.gpus if gpu.id in wanted and gpu.pci is not None}


def _name(stem: str, addresses: Sequence[PciAddress]) -> str:
    """Return a name for the GPUs at *addresses*: their buses, and domains other than 0.

    If that exceeds a name's limit, or two GPUs share a bus, it is a digest.
    """
    parts = [
        f"{address.bus:02x}" if not address.domain else f"{address.domain:04x}-{address.bus:02x}"
        for address in addresses
    ]
    name = "-".join((stem, *parts))
    is_plain = all(not address.device and not address.function for address in addresses)
    if is_plain and len(name) <= LONGEST_NAME:
        return name
    digest = sha256(" ".join(map(str, addresses)).encode("ascii")).hexdigest()[:16]
    return f"{stem}-{len(addresses)}x-{digest}"
