"""GPUs that are missing from NVML or from the machine."""

from typing import Annotated

from msgspec import Struct

from nodetopo.model.limits import MAX_GPUS, Range
from nodetopo.model.pci import PciAddress


class UnlistedGpu(Struct, frozen=True, kw_only=True):
    """An NVIDIA GPU on the PCI bus that NVML does not list, though NVML answers."""

    pci: PciAddress
    driver: str | None = None  # bound kernel driver, such as vfio-pci; None for no driver


class ExpectedGpus(Struct, frozen=True, kw_only=True):
    """How many GPUs the machine should have."""

    count: Annotated[int, Range(0, MAX_GPUS)]  # whole GPUs; 0 expects none in particular
    source: str  # what says so, for a person
    is_set: bool = False  # by a setting, which decides alone
    doubt: str | None = None  # why a greater count can be lost, a clause; None if none can be
