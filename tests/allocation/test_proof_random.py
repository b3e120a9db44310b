"""10,000 random requests each to random machines of 10 and of 16 GPUs get the best set."""

from random import Random

import pytest

from agent.allocation.rules import Policy, Rules
from tests.allocation.brute_proof import Proof, random_requests
from tests.allocation.large_machines import SIXTEEN, TEN, Kind, nvswitch, pcie

TEN_SEEDS, TEN_REQUESTS = 5, 250
"""Machines of each kind, and requests to each: 8 kinds x 5 x 250 = 10,000."""

OF_SIXTEEN = [
    (kind, seed) for kind in SIXTEEN for seed in range(2 if kind in (pcie, nvswitch) else 1)
]
SIXTEEN_REQUESTS = 1120
"""9 machines x 1,120 = 10,080. Fewer, since the 65,536 sets of each cost most of the time."""

RANKED_EVERY = 50
"""Of so many answers one has its next best sets compared as well."""


def wrong(
    kind: Kind, count: int, seed: int, number: int, policy: Policy = Policy.BEST
) -> list[str]:
    """Ask one random machine so many random requests."""
    random = Random(f"{kind.__name__} {count} {seed}")
    proof = Proof(kind(random, count), Rules(policy=policy))
    assert proof.is_exact
    return proof.wrong(random_requests(range(count), random, number), ranked_every=RANKED_EVERY)


@pytest.mark.parametrize("seed", range(TEN_SEEDS))
@pytest.mark.parametrize("kind", TEN, ids=lambda kind: kind.__name__)
def test_the_answer_is_the_best_of_ten(kind: Kind, seed: int) -> None:
    assert wrong(kind, 10, seed, TEN_REQUESTS) == []


@pytest.mark.parametrize(
    ("kind", "seed"), OF_SIXTEEN, ids=lambda part: getattr(part, "__name__", part)
)
def test_the_answer_is_the_best_of_sixteen(kind: Kind, seed: int) -> None:
    assert wrong(kind, 16, seed, SIXTEEN_REQUESTS) == []


@pytest.mark.parametrize("policy", [policy for policy in Policy if policy is not Policy.BEST])
@pytest.mark.parametrize("kind", TEN, ids=lambda kind: kind.__name__)
def test_the_answer_is_the_best_of_ten_in_the_order_of_every_policy(
    kind: Kind, policy: Policy
) -> None:
    assert wrong(kind, 10, TEN_SEEDS, 50, policy) == []


def test_as_many_requests_are_asked_as_is_said() -> None:
    assert len(TEN) * TEN_SEEDS * TEN_REQUESTS >= 10_000
    assert len(OF_SIXTEEN) * SIXTEEN_REQUESTS >= 10_000
