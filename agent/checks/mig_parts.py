"""What the rules on MIG share: which GPUs are divided, and into what."""

from collections import Counter

from agent.checks.inputs import missing_of_gpus
from agent.checks.mig_geometry import is_capable
from agent.model.gpu import Gpu
from agent.model.snapshot import Snapshot

missing_modes = missing_of_gpus(
    "MIG mode",
    lambda gpu: gpu.mig is not None or is_capable(gpu) is False,
)
"""Need the MIG mode of every GPU that can have one."""

missing_profiles = missing_of_gpus(
    "MIG devices",
    lambda gpu: gpu.mig is None or all(one.profile is not None for one in gpu.mig.instances),
)
"""Need the profile of every MIG device."""


def divided(snapshot: Snapshot) -> tuple[Gpu, ...]:
    """Return the GPUs that are in MIG mode now, by index."""
    return tuple(gpu for gpu in snapshot.gpus if gpu.is_divided)


def existing(snapshot: Snapshot) -> Counter[str]:
    """Return profile → MIG devices of the node, spelled as resources are, ``1g.10gb.me``."""
    return Counter(
        one.profile.replace("+", ".")
        for gpu in snapshot.gpus
        for one in (gpu.mig.instances if gpu.mig is not None else ())
        if one.profile is not None
    )
