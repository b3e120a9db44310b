"""Random requests to random machines of 10 and of 16 GPUs get the best set; 10,000 by night."""

from random import Random

import pytest

from nodetopo.allocation.rules import Policy, Rules
from tests.allocation.brute_proof import Proof, random_requests
from tests.allocation.large_machines import SIXTEEN, TEN, Kind, nvswitch, pcie
from tests.bench.irregular import MACHINES
from tests.budget import cases

TEN_SEEDS, TEN_REQUESTS = cases(2, 5), cases(50, 250)
"""Machines of each kind, and requests to each: by night 8 kinds x 5 x 250 = 10,000."""

OF_SIXTEEN = [(kind, 0) for kind in SIXTEEN]
OF_SIXTEEN += [(kind, 1) for kind in (pcie, nvswitch)[: cases(0, 2)]]
IRREGULAR = (
    "DGX-2, two links down, a GPU dead",
    "PCIe, odd switches, bridges",
    "PCIe, and odd lanes",
)

SIXTEEN_REQUESTS = cases(12, 1120)
"""By night 9 machines x 1,120 = 10,080; the 65,536 sets of each machine cost most of the time."""

RANKED_EVERY = cases(6, 50)
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


@pytest.mark.parametrize("name", IRREGULAR)
def test_the_answer_is_the_best_of_an_irregular_sixteen(name: str) -> None:
    for policy in Policy:
        proof = Proof(MACHINES[name](), Rules(policy=policy))
        asked = random_requests(range(16), Random(name), cases(4, 200))
        assert proof.wrong(asked, ranked_every=RANKED_EVERY) == []


@pytest.mark.parametrize("policy", [policy for policy in Policy if policy is not Policy.BEST])
@pytest.mark.parametrize("kind", TEN, ids=lambda kind: kind.__name__)
def test_the_answer_is_the_best_of_ten_in_the_order_of_every_policy(
    kind: Kind, policy: Policy
) -> None:
    assert wrong(kind, 10, 5, cases(12, 50), policy) == []
