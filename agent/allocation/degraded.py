"""Degraded devices come last: how a request is narrowed before anything is chosen."""

from collections.abc import Collection, Sequence


def sound_first(
    available: Sequence[str], required: Sequence[str], size: int, degraded: Collection[str]
) -> tuple[Sequence[str], Sequence[str]]:
    """Return *available* and *required* narrowed so that the fewest *degraded* ids are chosen.

    Where the sound ids suffice, degraded ones that are not required are not available. Where
    they do not, every sound id is required, and what is missing is chosen among the others.
    An answer to the narrowed request is one to the request that was asked.
    """
    if not degraded:
        return available, required
    kept = set(required)
    sound = [name for name in dict.fromkeys(available) if name in kept or name not in degraded]
    if len(sound) >= size:
        return sound, required
    return available, (*required, *(name for name in sound if name not in kept))
