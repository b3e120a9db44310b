"""Whether GPUs can hold certain MIG devices together, wherever instances may be placed."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from agent.checks.mig_geometry import Geometry, Profile, profile

MOST_PROFILES = 4
"""Profiles of one demand that are looked at; beyond, nothing is said."""

MOST_GPUS = 32
"""GPUs that are looked at."""

MOST_STATES = 40
"""What may be left to place, in different ways, after any number of GPUs; beyond, nothing is
said. Demands of people stay far below: they name one profile or two."""

Counts = tuple[int, ...]
"""How many of each profile, in one order of profiles."""


def together(rooms: Sequence[Geometry], wanted: Mapping[str, int]) -> bool | None:
    """Return whether empty GPUs with *rooms* hold all of *wanted* (profile → count).

    ``None`` when the search would take too long to tell.
    """
    names = sorted(name for name, count in wanted.items() if count > 0)
    if len(names) > MOST_PROFILES or len(rooms) > MOST_GPUS:
        return None
    if _room_for(rooms, names, wanted) > sum(room.slices for room in rooms):
        return False
    left = {tuple(wanted[name] for name in names)}
    known = {room: fullest([profile(name, room) for name in names], room) for room in set(rooms)}
    for room in rooms:
        left = _least(_after(one, full) for one in left for full in known[room])
        if any(not any(one) for one in left):
            return True
        if len(left) > MOST_STATES:
            return None
    return not names


def _room_for(rooms: Sequence[Geometry], names: Sequence[str], wanted: Mapping[str, int]) -> int:
    """Return the memory slices that *wanted* takes at least; none for what no room has."""
    return sum(
        wanted[name]
        * min((one.shape.slices for room in rooms if (one := profile(name, room))), default=0)
        for name in names
    )


def _after(left: Counts, placed: Counts) -> Counts:
    return tuple(max(one - other, 0) for one, other in zip(left, placed, strict=True))


def _least(states: Iterable[Counts]) -> set[Counts]:
    """Return those of *states* that leave something less than every other one does."""
    kept: list[Counts] = []
    for state in sorted(set(states), key=sum):
        if not any(_covers(state, other) for other in kept):
            kept.append(state)
    return set(kept)


def _covers(more: Counts, less: Counts) -> bool:
    return all(one >= other for one, other in zip(more, less, strict=True))


def fullest(profiles: Sequence[Profile | None], room: Geometry) -> frozenset[Counts]:
    """Return how many of each of *profiles* an empty GPU holds, in every way that is full.

    Memory slices are filled from the first to the last: what begins at a slice, or nothing.
    """
    none: Counts = (0,) * len(profiles)
    ways: list[set[Counts]] = [set() for _ in range(room.slices + 1)]
    ways[0].add(none)
    for start in range(room.slices):
        for counts in ways[start]:
            ways[start + 1].add(counts)
            for position, one in enumerate(profiles):
                if one is not None and start in one.shape.starts and _may(one, counts[position]):
                    ways[start + one.shape.slices].add(_one_more(counts, position))
    return frozenset(one for one in ways[room.slices] if _is_full(one, ways[room.slices]))


def _may(one: Profile, count: int) -> bool:
    return one.most is None or count < one.most


def _is_full(counts: Counts, every: Collection[Counts]) -> bool:
    # Room may always stay empty, so that one more somewhere is in *every* too if it fits.
    return not any(_one_more(counts, position) in every for position in range(len(counts)))


def _one_more(counts: Counts, position: int) -> Counts:
    return (*counts[:position], counts[position] + 1, *counts[position + 1 :])
