"""The packing of MIG devices onto GPUs, over all possible placements of instances.

NVIDIA MIG User Guide, "Supported MIG Profiles": A100, H100, H200, B200 and their kin divide their
memory in eight slices and their processors in seven; A30 and RTX PRO 6000 Blackwell in four. A
profile is named after processors and memory, ``2g.20gb``, and its memory after the GPU's: names
differ between products and drivers, shapes do not.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from nodetopo.components.audit.rules.pods.inputs import listed
from nodetopo.model.gpu import Gpu, Virtualization

MIB_PER_GIB = 1024
"""MiB in a GiB; profiles are named in GiB, though they say GB."""

TOLERANCE = 0.1
"""Tolerance between the memory in a name and its share of the GPU's: drivers round, and differ in
their reserved memory (GB200: 1g.23gb or 1g.24gb).
"""

SLACK_GIB = 1
"""The same for small profiles, such as 1g.5gb."""

MOST_PROFILES = 4
"""Most profiles of one demand that are searched; beyond, the answer is unknown."""

MOST_GPUS = 32
"""GPUs that are looked at."""

MOST_STATES = 40
"""Most distinct remainders after any number of GPUs; beyond, the answer is unknown. Real demands
stay far below: they name one profile or two.
"""

Counts = tuple[int, ...]
"""How many of each profile, in one order of profiles."""

_NAME = re.compile(r"([1-9])g\.([1-9][0-9]{0,3})gb(?:[.+](me|me\.all|gfx)|(-me))?")
_MEDIA = ("me", "me.all")

_EIGHTHS = frozenset({(8, 0), (9, 0), (10, 0), (10, 3)})
"""Compute capabilities of the GPUs that divide their memory in eight slices."""

_QUARTERS = re.compile(r"\b(A30X?|RTX PRO 6000 Blackwell)\b")
"""The products that divide it in four."""

_OTHERS = re.compile(r"\b(RTX PRO 5000 Blackwell|RTX PRO 4500 Blackwell|Thor)\b")
"""Products that can be divided in a way that is not known."""


class Shape(Struct, frozen=True):
    """The room of a GPU instance: memory slices, and the slices at which it can begin."""

    slices: int
    starts: tuple[int, ...]


_OF_EIGHT: tuple[tuple[int, Shape], ...] = (
    (1, Shape(1, (0, 1, 2, 3, 4, 5, 6))),
    (1, Shape(2, (0, 2, 4, 6))),
    (2, Shape(2, (0, 2, 4))),
    (3, Shape(4, (0, 4))),
    (4, Shape(4, (0,))),
    (7, Shape(8, (0,))),
)

_OF_FOUR: tuple[tuple[int, Shape], ...] = (
    (1, Shape(1, (0, 1, 2, 3))),
    (2, Shape(2, (0, 2))),
    (4, Shape(4, (0,))),
)


class Geometry(Struct, frozen=True):
    """How a GPU can be divided.

    Attributes:
        slices: of its memory.
        memory_gib: all of it.
    """

    product: str
    slices: int
    memory_gib: float


class Profile(Struct, frozen=True):
    """A profile as a GPU has it.

    Attributes:
        most: how many of it a GPU holds at most, whatever room there is; ``None``: as many as
            there is room for. There is one set of media engines for profiles with them.
    """

    name: str
    shape: Shape
    most: int | None = None


def is_capable(gpu: Gpu) -> bool | None:
    """Return whether *gpu* can be divided; ``None`` where its kind is not known well enough."""
    if gpu.mig is not None:
        return True
    if gpu.compute_capability is None or gpu.product is None:
        return None
    is_named = _QUARTERS.search(gpu.product) or _OTHERS.search(gpu.product)
    may_be = is_named or gpu.compute_capability in _EIGHTHS
    return None if may_be and gpu.virtualization is not Virtualization.VGPU else False


def geometry(gpu: Gpu) -> Geometry | None:
    """Return how *gpu* can be divided; ``None`` where that is not known."""
    if gpu.product is None or gpu.memory_mib is None or gpu.mig is None:
        return None
    size = gpu.memory_mib / MIB_PER_GIB
    if _QUARTERS.search(gpu.product):
        return Geometry(gpu.product, 4, size)
    return Geometry(gpu.product, 8, size) if gpu.compute_capability in _EIGHTHS else None


def is_name(text: str) -> bool:
    """Return whether *text* is spelled as a profile of one compute instance, ``1g.10gb.me``."""
    return _NAME.fullmatch(text) is not None


def profile(text: str, room: Geometry) -> Profile | None:
    """Return the profile *text* of a GPU; ``None`` when it has none of that size."""
    match = _NAME.fullmatch(text)
    if match is None:
        return None
    compute, memory = int(match[1]), int(match[2])
    for count, shape in _OF_EIGHT if room.slices == 8 else _OF_FOUR:
        share = room.memory_gib * shape.slices / room.slices
        if count == compute and abs(memory - share) <= max(SLACK_GIB, share * TOLERANCE):
            return Profile(text, shape, 1 if match[3] in _MEDIA else None)
    return None


def impossible(rooms: Sequence[Geometry], wanted: Mapping[str, int]) -> str | None:
    """Return the capacity of GPUs with *rooms* if they cannot hold *wanted* (profile → count).

    ``None`` if they can, and if the search would take too long. The answer includes the sums that
    show why.
    """
    if not rooms:
        return "GPUs that can be divided"
    homes = {
        name: next(((p, room) for room in rooms if (p := profile(name, room))), None)
        for name in wanted
    }
    if strange := [name for name, home in homes.items() if home is None]:
        products = listed(sorted({room.product for room in rooms}))
        return f"profiles of {products}, of which {listed(strange)} is none"
    if together(rooms, wanted) is not False:
        return None
    shapes = {name: (home[0], home[1]) for name, home in homes.items() if home is not None}
    gpus = "1 GPU" if len(rooms) == 1 else f"{len(rooms)} GPUs"
    if len(wanted) == 1:
        ((name, (one, room)),) = shapes.items()
        total = sum(_most(name, other) for other in rooms)
        starts = ", ".join(map(str, one.shape.starts))
        part = f"{one.shape.slices} of {room.slices} memory slices, from {starts} on"
        media = "" if one.most is None else ", and the GPU's only media engines"
        each = f"{_most(name, room)} on each, as one takes {part}{media}"
        return f"at most {total} of {name} on {gpus}: {each}"
    terms = {name: one.shape for name, (one, _) in shapes.items()}
    need = sum(count * terms[name].slices for name, count in wanted.items())
    have = sum(room.slices for room in rooms)
    where = f"what {gpus} can hold together"
    if need > have:
        products = " + ".join(f"{count} * {terms[name].slices}" for name, count in wanted.items())
        return f"{where}: this is {products} = {need} of {have} memory slices"
    begins = "; ".join(
        f"{name} begins at slice {', '.join(map(str, shape.starts))}"
        for name, shape in terms.items()
    )
    return f"{where}: this is {need} of {have} memory slices, but {begins}"


def _most(name: str, room: Geometry) -> int:
    """Return how many of one profile an empty GPU holds."""
    return max(counts[0] for counts in fullest([profile(name, room)], room))


def together(rooms: Sequence[Geometry], wanted: Mapping[str, int]) -> bool | None:
    """Return whether empty GPUs with *rooms* hold all of *wanted* (profile → count).

    ``None`` if the search would take too long.
    """
    names = sorted(name for name, count in wanted.items() if count > 0)
    if len(names) > MOST_PROFILES or len(rooms) > MOST_GPUS:
        return None
    # The memory slices that *wanted* takes at least; none for a profile that no GPU has.
    sizes = {
        name: [p.shape.slices for room in rooms if (p := profile(name, room))] for name in names
    }
    least = sum(wanted[name] * min(sizes[name], default=0) for name in names)
    if least > sum(room.slices for room in rooms):
        return False
    left = {tuple(wanted[name] for name in names)}
    full = {room: fullest([profile(name, room) for name in names], room) for room in set(rooms)}
    for room in rooms:
        left = _least(
            tuple(max(count - placed, 0) for count, placed in zip(state, counts, strict=True))
            for state in left
            for counts in full[room]
        )
        if any(not any(state) for state in left):
            return True
        if len(left) > MOST_STATES:
            return None
    return not names


def fullest(profiles: Sequence[Profile | None], room: Geometry) -> frozenset[Counts]:
    """Return the counts of *profiles* on a full GPU, for every full layout.

    Memory slices are filled from the first to the last: an instance begins at a slice, or it stays
    empty.
    """
    none: Counts = (0,) * len(profiles)
    ways: list[set[Counts]] = [set() for _ in range(room.slices + 1)]
    ways[0].add(none)
    for start in range(room.slices):
        for counts in ways[start]:
            ways[start + 1].add(counts)
            for position, each in enumerate(profiles):
                if each is None or start not in each.shape.starts:
                    continue
                if each.most is None or counts[position] < each.most:
                    ways[start + each.shape.slices].add(_one_more(counts, position))
    # Room can always stay empty, so that one more instance is in *every* too if it fits.
    every = ways[room.slices]
    return frozenset(
        counts
        for counts in every
        if not any(_one_more(counts, position) in every for position in range(len(counts)))
    )


def _least(states: Iterable[Counts]) -> set[Counts]:
    """Return the *states* that are not dominated: no other one leaves less of everything."""
    kept: list[Counts] = []
    for state in sorted(set(states), key=sum):
        if not any(
            all(count >= other for count, other in zip(state, less, strict=True)) for less in kept
        ):
            kept.append(state)
    return set(kept)


def _one_more(counts: Counts, position: int) -> Counts:
    return (*counts[:position], counts[position] + 1, *counts[position + 1 :])
