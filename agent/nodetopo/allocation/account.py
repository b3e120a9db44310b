"""An allocation as the keys of one log line, and as one sentence."""

from nodetopo.allocation.allocator import Allocation
from nodetopo.allocation.explain import Explanation, names
from nodetopo.allocation.shared.explain import SharedExplanation


def account(
    allocation: Allocation, explanation: Explanation, left: int | None
) -> dict[str, object]:
    """Return the log keys of *allocation* as JSON types; ``None`` is unknown.

    *left* are the remaining GPUs, as a mask of positions; ``None`` where it is not known what
    was available. ``next_best`` and ``lost_at`` are then unknown as well; they are also ``None``
    where no other set was possible. ``said`` is the whole as one sentence.
    """
    score = allocation.score
    chosen = explanation.members(score)
    nodes = explanation.numa_nodes(chosen)
    other = allocation.alternatives[0] if allocation.alternatives else None
    return {
        "bandwidth_gb_s": score.bandwidth_gb_s,
        "model": explanation.model(score.order).value,
        "links": explanation.links(chosen) or None,
        "numa_nodes": None if nodes is None else list(nodes),
        "hcas": list(explanation.hca_names(chosen)),
        "next_best": list(other.chosen) if other else None,
        "lost_at": other.lost_at if other else None,
        "leaves": None if left is None else explanation.leaves(left, score.remainder_value),
        "said": f"{names(score.order)}: {'; '.join(allocation.reasons)}",
    }


def shared_account(
    allocation: Allocation, explanation: SharedExplanation, *, is_pool_known: bool
) -> dict[str, object]:
    """Return the same for an allocation of MIG devices or replicas, of the GPUs touched.

    ``links`` is ``None`` for MIG devices, which have none. ``leaves`` is ``None`` unless
    *is_pool_known*, that is, unless it is known what else was available.
    """
    machine = explanation.machine
    links = explanation.links(machine.members(allocation.score))
    leaves = allocation.reasons[-1] if is_pool_known else None  # the last sentence is about that
    return account(allocation, machine, None) | {"links": links or None, "leaves": leaves}
