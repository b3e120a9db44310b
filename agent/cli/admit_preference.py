"""What the device plugins of a node prefer: of GPUs, what our allocator would choose."""

from agent.admission.device_manager import Preference, lowest_first
from agent.allocation.allocator import Allocator
from agent.model.snapshot import Snapshot


def preference(snapshot: Snapshot) -> Preference:
    """Return what answers for the plugins; of devices other than whole GPUs, the lowest ids."""
    allocator = Allocator(snapshot) if snapshot.gpus else None

    def prefer(
        resource: str, available: frozenset[str], must_include: frozenset[str], size: int
    ) -> frozenset[str]:
        if allocator is None or not all(map(allocator.knows, available)):
            return lowest_first(resource, available, must_include, size)
        return frozenset(allocator.best(available, must_include, size))

    return prefer
