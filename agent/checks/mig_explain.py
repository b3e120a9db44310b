"""Why GPUs can never hold certain MIG devices, with the sums that show it."""

from collections.abc import Mapping, Sequence

from agent.checks.mig_geometry import Geometry, Profile, profile
from agent.checks.mig_packing import fullest, together
from agent.checks.pods.inputs import listed


def impossible(rooms: Sequence[Geometry], wanted: Mapping[str, int]) -> str | None:
    """Say what GPUs with *rooms* can hold instead of *wanted* (profile → count, some).

    ``None`` when they can hold it, and when that would take too long to tell.
    """
    if not rooms:
        return "GPUs that can be divided"
    products = listed(sorted({room.product for room in rooms}))
    strange = [name for name in wanted if all(profile(name, room) is None for room in rooms)]
    if strange:
        return f"profiles of {products}, of which {listed(strange)} is none"
    if together(rooms, wanted) is not False:
        return None
    if len(wanted) == 1:
        return _of_one(rooms, *wanted)
    return _of_several(rooms, wanted)


def _of_one(rooms: Sequence[Geometry], name: str) -> str:
    total = sum(_most(room, name) for room in rooms)
    each, room = next((found, room) for room in rooms if (found := profile(name, room)))
    return (
        f"at most {total} of {name} on {_gpus(len(rooms))}: "
        f"{_most(room, name)} on each, as one takes {_part(each, room)}"
    )


def _most(room: Geometry, name: str) -> int:
    return max(counts[0] for counts in fullest([profile(name, room)], room))


def _part(one: Profile, room: Geometry) -> str:
    starts = ", ".join(map(str, one.shape.starts))
    slices = f"{one.shape.slices} of {room.slices} memory slices, from {starts} on"
    return slices if one.most is None else f"{slices}, and the GPU's only media engines"


def _of_several(rooms: Sequence[Geometry], wanted: Mapping[str, int]) -> str:
    found = {name: _anywhere(rooms, name) for name in wanted}
    terms = [f"{count} * {found[name].shape.slices}" for name, count in wanted.items()]
    need = sum(count * found[name].shape.slices for name, count in wanted.items())
    have = sum(room.slices for room in rooms)
    where = f"what {_gpus(len(rooms))} can hold together"
    if need > have:
        return f"{where}: this is {' + '.join(terms)} = {need} of {have} memory slices"
    starts = "; ".join(
        f"{name} begins at slice {', '.join(map(str, one.shape.starts))}"
        for name, one in found.items()
    )
    return f"{where}: this is {need} of {have} memory slices, but {starts}"


def _anywhere(rooms: Sequence[Geometry], name: str) -> Profile:
    return next(found for room in rooms if (found := profile(name, room)) is not None)


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"
