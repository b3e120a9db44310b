"""Which GPUs of the machine are missing: dead ones on the PCI bus, and those that left it."""

import re
from collections.abc import Mapping
from types import MappingProxyType

from nodetopo.model.operator_labels import INSTANCE_TYPE
from nodetopo.model.presence import ExpectedGpus, UnlistedGpu
from nodetopo.model.snapshot import Snapshot

NVIDIA = "nvidia"
"""The kernel driver of GPUs that NVML lists."""

EXCLUDED = "ExcludedGpus"
"""The driver's parameter that names GPUs to leave out, by UUID (``NVreg_ExcludedGpus``)."""

_INSTANCES: Mapping[str, int] = MappingProxyType(
    {
        # https://docs.aws.amazon.com/ec2/latest/instancetypes/ac.html
        **{f"p3.{size}xlarge": gpus for size, gpus in ((2, 1), (8, 4), (16, 8))},
        **dict.fromkeys(("p3dn.24xlarge", "p4d.24xlarge", "p4de.24xlarge"), 8),
        **dict.fromkeys(("p5.48xlarge", "p5e.48xlarge", "p5en.48xlarge"), 8),
        **dict.fromkeys(("p6-b200.48xlarge", "p6-b300.48xlarge"), 8),
        **{f"{family}.12xlarge": 4 for family in ("g5", "g6", "g6e")},
        **{f"{family}.24xlarge": 4 for family in ("g5", "g6", "g6e")},
        **{f"{family}.48xlarge": 8 for family in ("g5", "g6", "g6e")},
        # https://learn.microsoft.com/azure/virtual-machines/sizes/overview
        **dict.fromkeys(("Standard_ND96asr_v4", "Standard_ND96amsr_A100_v4"), 8),
        **dict.fromkeys(("Standard_ND96isr_H100_v5", "Standard_ND96isr_H200_v5"), 8),
        "Standard_NC24ads_A100_v4": 1,
        "Standard_NC48ads_A100_v4": 2,
        "Standard_NC96ads_A100_v4": 4,
        "Standard_NC40ads_H100_v5": 1,
        "Standard_NC80adis_H100_v5": 2,
    },
)
"""GPUs by instance type, as the providers publish them."""

_GOOGLE = re.compile(r"a[234]x?-(?:high|mega|ultra|edge)gpu-([0-9]{1,2})g")
"""Machine types whose name ends in the number of GPUs, such as ``a3-highgpu-8g``
(https://cloud.google.com/compute/docs/gpus)."""


def dead_gpus(snapshot: Snapshot) -> tuple[UnlistedGpu, ...]:
    """Return the GPUs on PCI that NVML should list and does not.

    They are bound to the driver, or to no driver while others are bound. A GPU of another driver,
    such as ``vfio-pci``, is meant for something else.
    """
    unlisted = snapshot.unlisted_gpus
    is_bound = bool(snapshot.gpus) or any(gpu.driver == NVIDIA for gpu in unlisted)
    if excludes_gpus(snapshot):
        return ()
    return tuple(
        gpu for gpu in unlisted if gpu.driver == NVIDIA or (gpu.driver is None and is_bound)
    )


def meant_gpus(snapshot: Snapshot) -> tuple[UnlistedGpu, ...]:
    """Return the GPUs on PCI that another driver has."""
    return tuple(gpu for gpu in snapshot.unlisted_gpus if gpu.driver not in (None, NVIDIA))


def excludes_gpus(snapshot: Snapshot) -> bool:
    """Return whether a parameter has the driver leave out GPUs."""
    parameters = None if snapshot.nvidia is None else snapshot.nvidia.parameters
    return bool(((parameters or {}).get(EXCLUDED) or "").strip('" '))


def present_gpus(snapshot: Snapshot) -> int | None:
    """Return how many GPUs the machine has, whatever their driver; ``None`` where PCI is unread."""
    if snapshot.pci_gpus is None:
        return None
    listed = {gpu.pci for gpu in snapshot.gpus if gpu.pci is not None and not gpu.is_lost}
    return len({*snapshot.pci_gpus, *listed})


def expected_gpus(snapshot: Snapshot) -> ExpectedGpus | None:
    """Return how many GPUs the machine should have; ``None`` where nothing says so.

    A setting decides; otherwise the greatest of what the instance type has and what the machine
    has had, or what is certain if both have as many.
    """
    known = snapshot.expected_gpus
    if known is not None and known.is_set:
        return known if known.count else None
    node = snapshot.node_status
    labels = (None if node is None else node.labels) or {}
    named = (snapshot.product_name, labels.get(INSTANCE_TYPE))
    return greatest(known, *(gpus_of_type(name) for name in named))


def greatest(*counts: ExpectedGpus | None) -> ExpectedGpus | None:
    """Return the greatest of *counts*, a certain one of equals; ``None`` of none."""
    known = (count for count in counts if count is not None)
    return max(known, key=lambda it: (it.count, it.doubt is None), default=None)


def absent_gpus(snapshot: Snapshot) -> int | None:
    """Return how many GPUs are not even on PCI; ``None`` if unknown."""
    expected, present = expected_gpus(snapshot), present_gpus(snapshot)
    if expected is None or present is None:
        return None
    return max(0, expected.count - present)


def missing_text(snapshot: Snapshot) -> str | None:
    """Return which GPUs are missing, a sentence without its full stop; ``None`` for none."""
    parts = []
    if dead := dead_gpus(snapshot):
        names = ", ".join(str(gpu.pci) for gpu in dead)
        parts.append(f"{names} on the PCI bus, and not listed by NVML")
    expected = expected_gpus(snapshot)
    if expected is not None and absent_gpus(snapshot):
        present = present_gpus(snapshot)
        parts.append(f"{present} of {expected.count} on the PCI bus ({expected.source})")
    return f"GPUs are missing: {'; '.join(parts)}" if parts else None


def gpus_of_type(name: str | None) -> ExpectedGpus | None:
    """Return how many GPUs a machine of the provider's type *name* has; ``None``: not known."""
    if name is None:
        return None
    google = _GOOGLE.fullmatch(name)
    count = int(google[1]) if google else _INSTANCES.get(name)
    return (
        None if count is None else ExpectedGpus(count=count, source=f"the instance type is {name}")
    )
