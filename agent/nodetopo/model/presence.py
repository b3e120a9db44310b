"""GPUs that are missing from NVML or from the machine."""

from dataclasses import dataclass
from typing import Annotated

from nodetopo.model.limits import MAX_GPUS, Range
from nodetopo.model.pci import PciAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class UnlistedGpu:
    """An NVIDIA GPU on the PCI bus that NVML does not list, though NVML answers.

    Attributes:
        driver: the kernel driver that is bound to it, e.g. ``vfio-pci``; ``None`` for no driver.
    """

    pci: PciAddress
    driver: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedGpus:
    """How many GPUs the machine should have.

    Attributes:
        count: whole GPUs; 0 expects none in particular.
        source: what says so, for a person.
        is_set: whether a setting says so, which decides alone.
        doubt: why a greater count can be lost, a clause; ``None`` if none can be.
    """

    count: Annotated[int, Range(0, MAX_GPUS)]
    source: str
    is_set: bool = False
    doubt: str | None = None
