"""Requests for GPUs: resolve names, check counts, and put degraded devices last."""

from collections.abc import Collection

from nodetopo.errors import InputError, closest
from nodetopo.model.gpu import Gpu
from nodetopo.model.pci import PciAddress
from nodetopo.model.snapshot import Snapshot


def resolve(snapshot: Snapshot, text: str) -> Gpu:
    """Return the GPU that *text* names: a UUID, ``GPU3``, ``3`` or a PCI address."""
    wanted = text.strip().lower()
    address = PciAddress.as_written(wanted)
    for gpu in snapshot.gpus:
        names = {gpu.id.lower(), gpu.name.lower(), str(gpu.index)}
        if wanted in names or (gpu.pci is not None and gpu.pci == address):
            return gpu
    raise unknown_gpu(snapshot, text)


def unknown_gpu(snapshot: Snapshot, text: str) -> InputError:
    """Return the error for a name that no GPU of *snapshot* has."""
    if not snapshot.gpus:
        return InputError(f"unknown GPU {text!r}", "this node has no GPUs")
    names = {name: gpu for gpu in snapshot.gpus for name in (gpu.id, gpu.name, str(gpu.pci))}
    close = closest(text.strip(), names)
    hint = f"did you mean {close!r}? " if close else ""
    first, last = snapshot.gpus[0].name, snapshot.gpus[-1].name
    known = first if first == last else f"{first} to {last}"
    return InputError(f"unknown GPU {text!r}", f"{hint}this node has {known}")


def usable(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the ids of the GPUs that are not lost, in device order."""
    return tuple(gpu.id for gpu in snapshot.gpus if not gpu.is_lost)


def check_counts(free: int, required: int, size: int, what: str) -> None:
    """Check the counts of a request; *what* is the name of a device in messages."""
    if size < 1:
        raise InputError(f"cannot allocate {size} {what}s", "ask for at least 1")
    wanted = f"{size} {what}{'' if size == 1 else 's'}"
    if not free:
        raise InputError(f"cannot allocate {wanted}: none is available", f"free a {what} first")
    if size > free:
        raise InputError(
            f"cannot allocate {wanted}: only {free} {'is' if free == 1 else 'are'} available",
            f"ask for at most {free}",
        )
    if required > size:
        raise InputError(
            f"cannot allocate {wanted} that contain{'s' if size == 1 else ''} {required} required",
            f"ask for at least {required}",
        )


def sound_first(
    available: Collection[str], required: Collection[str], size: int, degraded: Collection[str]
) -> tuple[Collection[str], Collection[str]]:
    """Return *available* and *required* narrowed so that the fewest *degraded* ids are chosen.

    It is the first term of every policy. If the healthy ids suffice, degraded ids that are not
    required are not available. Otherwise every healthy id is required, and the rest is chosen among
    the degraded ones. An answer to the narrowed request is one to the original, too.
    """
    if not degraded:
        return available, required
    kept = set(required)
    sound = [name for name in dict.fromkeys(available) if name in kept or name not in degraded]
    if len(sound) >= size:
        return sound, required
    return available, (*required, *(name for name in sound if name not in kept))
