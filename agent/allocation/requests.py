"""GPUs as people and other programs name them."""

from difflib import get_close_matches

from agent.errors import InputError
from agent.model.gpu import Gpu
from agent.model.pci import PciAddress
from agent.model.snapshot import Snapshot


def resolve(snapshot: Snapshot, text: str) -> Gpu:
    """Return the GPU that *text* names: a UUID, ``GPU3``, ``3`` or a PCI address.

    Raises:
        InputError: there is none of that name.
    """
    wanted = text.strip().lower()
    address = PciAddress.as_written(wanted)
    for gpu in snapshot.gpus:
        if wanted in _names(gpu) or (gpu.pci is not None and gpu.pci == address):
            return gpu
    raise unknown_gpu(snapshot, text)


def unknown_gpu(snapshot: Snapshot, text: str) -> InputError:
    """Return the error for a name that no GPU of *snapshot* has."""
    if not snapshot.gpus:
        return InputError(f"unknown GPU {text!r}", "this node has no GPUs")
    names = {name: gpu for gpu in snapshot.gpus for name in (gpu.id, gpu.name, str(gpu.pci))}
    close = get_close_matches(text.strip(), names, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    first, last = snapshot.gpus[0].name, snapshot.gpus[-1].name
    known = first if first == last else f"{first} to {last}"
    return InputError(f"unknown GPU {text!r}", f"{hint}this node has {known}")


def usable(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the ids of the GPUs that are not lost, in device order."""
    return tuple(gpu.id for gpu in snapshot.gpus if not gpu.is_lost)


def _names(gpu: Gpu) -> set[str]:
    return {gpu.id.lower(), gpu.name.lower(), str(gpu.index)}
