"""GPUs that an operator keeps from pods, by any of the names that a GPU has."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from agent.model.gpu import Gpu
from agent.model.pci import PciAddress

UUID_START = "gpu-"
"""How a GPU's UUID begins, in lower case."""

SHORTEST_START = len(UUID_START) + 1
"""Characters that the beginning of a UUID must have: with fewer it would be every GPU's."""


def is_excluded(gpu: Gpu, patterns: Sequence[str]) -> bool:
    """Tell whether one of *patterns* names *gpu*."""
    return any(matches(gpu, pattern) for pattern in patterns)


def unused(gpus: Sequence[Gpu], patterns: Sequence[str]) -> tuple[str, ...]:
    """Return those of *patterns* that name none of *gpus*."""
    return tuple(one for one in patterns if not any(matches(gpu, one) for gpu in gpus))


def matches(gpu: Gpu, pattern: str) -> bool:
    """Tell whether *pattern* names *gpu*, whatever the case of its letters.

    It is an index (``3``), a name (``GPU3``), a UUID or its beginning, a PCI address as sysfs,
    NVML, lspci or nvidia-smi write it, or a product, in which ``*`` stands for anything.
    Indices count as NVML counts, and move when a GPU goes away.
    """
    wanted = pattern.strip().lower()
    if wanted in (str(gpu.index), gpu.name.lower()):
        return True
    if gpu.uuid is not None and _begins(gpu.uuid.lower(), wanted):
        return True
    address = PciAddress.as_written(wanted)
    if address is not None:
        return gpu.pci == address
    return gpu.product is not None and fnmatchcase(gpu.product.lower(), _literal(wanted))


def _begins(uuid: str, wanted: str) -> bool:
    is_long_enough = len(wanted) >= SHORTEST_START and wanted.startswith(UUID_START)
    return wanted == uuid or (is_long_enough and uuid.startswith(wanted))


def _literal(pattern: str) -> str:
    """Return *pattern* with ``*`` alone as a wildcard."""
    return pattern.replace("[", "[[]").replace("?", "[?]")
