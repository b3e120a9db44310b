"""Requests to machines of 32 and of 72 GPUs get the best set by definition; 1,000 by night.

At most eleven GPUs are free in each, so that all their sets can be looked at.
"""

from random import Random

import pytest

from nodetopo.allocation.rules import Policy, Rules
from nodetopo.model.snapshot import Snapshot
from tests.allocation.brute_proof import Proof, random_requests
from tests.allocation.large_machines import REGULAR, Kind
from tests.budget import cases

SEEDS, UNIVERSES, REQUESTS = cases(2, 5), cases(4, 10), 10
"""By night 2 kinds x 5 machines x 10 choices of eleven GPUs x 10 requests = 1,000."""

FREE = 11
"""2,048 sets, whose figures the requests of one choice share."""


def universe(snapshot: Snapshot, random: Random) -> list[int]:
    """Eleven GPUs: anywhere, or all of some NUMA nodes and then others."""
    indices = [gpu.index for gpu in snapshot.gpus]
    random.shuffle(indices)
    if random.random() < 0.5:
        node = {gpu.index: gpu.numa_node for gpu in snapshot.gpus}
        order = random.sample(sorted({*node.values()}, key=str), len({*node.values()}))
        indices.sort(key=lambda index: order.index(node[index]))
    return sorted(indices[:FREE])


def wrong(kind: Kind, count: int, seed: int, policy: Policy = Policy.BEST) -> list[str]:
    """Ask one random machine."""
    random = Random(f"{kind.__name__} {count} {seed}")
    snapshot = kind(random, count)
    proof = Proof(snapshot, Rules(policy=policy))
    found = [] if proof.is_exact else ["the engine does not claim to be exact"]
    for _ in range(UNIVERSES):
        gpus = universe(snapshot, random)
        proof.look_at(gpus)
        found += proof.wrong(random_requests(gpus, random, REQUESTS), ranked_every=5)
    return found


@pytest.mark.parametrize("count", [32, 72])
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("kind", REGULAR, ids=lambda kind: kind.__name__)
def test_the_answer_is_the_best_of_a_large_machine(kind: Kind, seed: int, count: int) -> None:
    assert wrong(kind, count, seed) == []


@pytest.mark.parametrize("policy", [policy for policy in Policy if policy is not Policy.BEST])
@pytest.mark.parametrize("kind", REGULAR, ids=lambda kind: kind.__name__)
def test_the_answer_is_the_best_of_32_in_the_order_of_every_policy(
    kind: Kind, policy: Policy
) -> None:
    assert wrong(kind, 32, 5, policy) == []
