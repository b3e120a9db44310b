"""How many devices to take from which GPU, apart from bandwidth."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from nodetopo.allocation.masks import bits, positions

Load = tuple[int, int]
"""The two terms of ``distributed`` that come first: load, then doubled."""


class Pool(Struct, frozen=True, kw_only=True):
    """A request and the state of the devices; tuples are by position of the GPU."""

    used: tuple[int, ...]  # devices in use
    free: tuple[int, ...]  # devices that can be taken, `required` ones included
    required: tuple[int, ...]  # devices that must be taken
    size: int  # devices requested

    @property
    def open(self) -> int:
        """The GPUs with free devices, as a mask."""
        return _mask(self.free)

    @property
    def kept(self) -> int:
        """The GPUs with required devices, as a mask."""
        return _mask(self.required)

    @property
    def idle(self) -> int:
        """The GPUs of which nothing is in use, as a mask."""
        return self.open & ~_mask(self.used)


class Choice(Struct, frozen=True, kw_only=True):
    """GPU sets that are equal in the terms that sharing compares first; the best is wanted."""

    base: int  # GPUs of every one of the sets; masks of positions
    others: int  # GPUs that a set can also have
    count: int  # GPUs of each set
    needed: int  # free devices that a set must have altogether
    free: tuple[int, ...]  # by GPU; zeros where room does not matter
    idle: int  # GPUs that should stay idle

    @property
    def only(self) -> int | None:
        """The only set, ``None`` where there are several."""
        missing = self.count - self.base.bit_count()
        if not missing:
            return self.base
        return self.base | self.others if missing == self.others.bit_count() else None

    def room(self, mask: int) -> int:
        """Return the devices beyond those needed on the GPUs of *mask*; negative is a lack."""
        return sum(self.free[gpu] for gpu in positions(mask)) - self.needed


def packed(pool: Pool) -> Iterator[Choice]:
    """Yield the sets of the fewest GPUs that can serve the request, then of one more, and so on."""
    others = pool.open & ~pool.kept
    fewest = pool.kept.bit_count()
    room = sum(pool.free[gpu] for gpu in positions(pool.kept))
    for free in sorted((pool.free[gpu] for gpu in positions(others)), reverse=True):
        if room >= pool.size:
            break
        room, fewest = room + free, fewest + 1
    # Required devices that share a GPU leave fewer picks than the size says.
    most = pool.kept.bit_count() + pool.size - sum(pool.required)
    for count in range(fewest, min(most, pool.open.bit_count()) + 1):
        yield Choice(
            base=pool.kept,
            others=others,
            count=count,
            needed=pool.size,
            free=pool.free,
            idle=pool.idle,
        )


def distributed(pool: Pool) -> Choice:
    """Return the sets that load the GPUs least.

    Every device is taken where it joins the fewest, then where the request has the fewest; as
    the cost of one more grows with every device taken from a GPU, no other way is better. Left
    open is which of the GPUs that are equal in both get the last devices.
    """
    taken, ties, missing = _filled(pool)
    base = _mask(taken)
    if ties & base or not missing:  # the last ones go to GPUs that are touched anyway
        ties = missing = 0
    return Choice(
        base=base,
        others=ties,
        count=base.bit_count() + missing,
        needed=0,
        free=(0,) * len(taken),
        idle=0,
    )


def taken_in_order(pool: Pool, mask: int) -> tuple[int, ...]:
    """Return the devices to take from each GPU of *mask*: as many as possible from the first."""
    taken = [max(need, mask >> gpu & 1) for gpu, need in enumerate(pool.required)]
    missing = pool.size - sum(taken)
    for gpu in positions(mask):
        more = min(missing, pool.free[gpu] - taken[gpu])
        taken[gpu], missing = taken[gpu] + more, missing - more
    return tuple(taken)


def taken_evenly(pool: Pool, mask: int) -> tuple[int, ...]:
    """Return the devices to take from each GPU of *mask* so that these are loaded least."""
    required = tuple(max(need, mask >> gpu & 1) for gpu, need in enumerate(pool.required))
    free = tuple(free if mask >> gpu & 1 else 0 for gpu, free in enumerate(pool.free))
    inside = Pool(used=pool.used, free=free, required=required, size=pool.size)
    taken, ties, missing = _filled(inside)
    for gpu in positions(ties)[:missing]:
        taken[gpu] += 1
    return tuple(taken)


def neighbours(pool: Pool, mask: int) -> Iterator[int]:
    """Yield the GPU sets that serve the request and have one GPU more, less or another.

    The next best of ``distributed`` after all sets of equal load is among them: the costs are
    convex by GPU, and of such the next best way is one exchange away (Murota 2003, M-convexity).
    """
    inner, outer = mask & ~pool.kept, pool.open & ~mask
    outs, ins = (0, *bits(inner)), (0, *bits(outer))
    for other in {mask & ~out | into for out in outs for into in ins} - {mask}:
        if 0 < other.bit_count() <= pool.size and other & pool.kept == pool.kept:
            least = sum(max(need, other >> gpu & 1) for gpu, need in enumerate(pool.required))
            room = sum(pool.free[gpu] for gpu in positions(other))
            if least <= pool.size <= room:
                yield other


def _filled(pool: Pool) -> tuple[list[int], int, int]:
    """Take devices level by level.

    Return the devices taken, the GPUs of the last level as a mask, and how many it still lacks.
    """
    taken = list(pool.required)
    missing = pool.size - sum(taken)
    while missing:
        able = [gpu for gpu, free in enumerate(pool.free) if taken[gpu] < free]
        cost = min(_next(pool, taken, gpu) for gpu in able)
        level = [gpu for gpu in able if _next(pool, taken, gpu) == cost]
        if len(level) > missing:
            return taken, sum(1 << gpu for gpu in level), missing
        for gpu in level:
            taken[gpu] += 1
        missing -= len(level)
    return taken, 0, 0


def _next(pool: Pool, taken: Sequence[int], gpu: int) -> Load:
    return pool.used[gpu] + taken[gpu], taken[gpu]


def _mask(counts: Sequence[int]) -> int:
    return sum(1 << gpu for gpu, count in enumerate(counts) if count)
