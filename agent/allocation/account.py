"""An allocation as the keys of one log line, and as one sentence."""

from agent.allocation.allocator import Allocation
from agent.allocation.explain import Explanation, names
from agent.allocation.shared.explain import SharedExplanation


def account(found: Allocation, explanation: Explanation, left: int | None) -> dict[str, object]:
    """Return what there is to say of *found*, in JSON's own types; unknown is ``None``.

    *left* are the GPUs it leaves, as a mask of positions; ``None`` where it is not known what
    was available. ``next_best`` and ``lost_at`` are then unknown as well, and ``None`` also
    where no other set was possible. ``said`` is all of it as a person would say it.
    """
    score = found.score
    chosen = explanation.members(score)
    nodes = explanation.numa_nodes(chosen)
    other = found.alternatives[0] if found.alternatives else None
    return {
        "bandwidth_gb_s": score.bandwidth_gb_s,
        "model": explanation.model(score.order).value,
        "links": explanation.links(chosen) or None,
        "numa_nodes": None if nodes is None else list(nodes),
        "hcas": list(explanation.hca_names(chosen)),
        "next_best": list(other.chosen) if other else None,
        "lost_at": other.lost_at if other else None,
        "leaves": None if left is None else explanation.leaves(left, score.remainder_value),
        "said": f"{names(score.order)}: {'; '.join(found.reasons)}",
    }


# An allocation of MIG instances or replicas as the keys of one log line.


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
