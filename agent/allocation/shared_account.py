"""An allocation of MIG instances or replicas as the keys of one log line."""

from agent.allocation.account import account
from agent.allocation.allocator import Allocation
from agent.allocation.shared.explain import SharedExplanation


def shared_account(
    found: Allocation, explanation: SharedExplanation, *, is_pool_known: bool
) -> dict[str, object]:
    """Return what :func:`agent.allocation.account.account` does for GPUs, of the GPUs touched.

    ``links`` is ``None`` for MIG instances, which have none. ``leaves`` is ``None`` unless
    *is_pool_known*: *found* was judged by what else was available.
    """
    machine = explanation.machine
    links = explanation.links(machine.members(found.score))
    leaves = found.reasons[-1] if is_pool_known else None  # the last sentence is about that
    return account(found, machine, None) | {"links": links or None, "leaves": leaves}
