"""Sets of GPUs by name, for claims that were allocated before other sets were published."""

from nodetopo.components.dra.pool import BackingDevices, Pool

_SET, _SINGLE = "gpus-", "gpu-"
"""How names begin that list the buses of their GPUs (:mod:`nodetopo.components.dra.sets`)."""


def named_set(name: str, pool: Pool) -> BackingDevices | None:
    """Return the GPUs of *pool* that the *name* of a set lists.

    ``None`` where it lists others, or is a digest. A bus in another PCI domain than 0 has two
    parts, such as ``0001-1b``.
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
