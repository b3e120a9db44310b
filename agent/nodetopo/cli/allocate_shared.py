"""The allocator of replicas and MIG devices, for ``nodetopo allocate --replicas`` and ``--mig``."""

from collections.abc import Mapping

from nodetopo.allocation.rules import Rules
from nodetopo.allocation.shared.allocator import SharedAllocator
from nodetopo.allocation.shared.terms import shared_terms
from nodetopo.model.snapshot import Snapshot


def shared_allocator(
    snapshot: Snapshot, devices: Mapping[str, str], rules: Rules, *, is_mig: bool
) -> tuple[SharedAllocator, tuple[str, ...]]:
    """Return the allocator of *devices*, and the terms of its decision.

    NVIDIA's plugin spreads replicas by default, to avoid contention. MIG instances do not disturb
    each other, and packing them keeps other GPUs whole.
    """
    allocator = SharedAllocator(snapshot, devices, rules, spread=not is_mig)
    return allocator, shared_terms(rules.policy, spread=not is_mig)
