"""The order of the terms: of each policy, for one GPU, and for containers that may get HCAs."""

import pytest

from nodetopo.allocation.allocator import Allocator
from nodetopo.allocation.rules import HCAS_OF_ONE, TERMS, Policy, Rules, terms_for
from tests.allocation.test_terms import FAR_AND_NEAR

HCAS = ("hca_far", "rail_loss", "hca_distance")


@pytest.mark.parametrize("policy", Policy)
def test_hcas_come_before_what_is_left_for_a_container_that_may_get_some(policy: Policy) -> None:
    order = terms_for(policy, 4, with_hcas=True)
    assert order.index(HCAS[-1]) < order.index("remainder_value")
    assert sorted(order) == sorted(TERMS[policy])
    others = [name for name in TERMS[policy] if name not in HCAS]
    assert [name for name in order if name not in HCAS] == others


@pytest.mark.parametrize("policy", [Policy.DISTRIBUTED, Policy.NIC_REQUIRED])
def test_where_hcas_come_first_already_nothing_changes(policy: Policy) -> None:
    assert terms_for(policy, 4, with_hcas=True) == TERMS[policy]


@pytest.mark.parametrize("policy", Policy)
def test_one_gpu_with_an_hca_is_a_rank_and_without_one_leaves_them_free(policy: Policy) -> None:
    rank = terms_for(policy, 1, with_hcas=True)
    assert [name for name in rank if name in (*HCAS, *HCAS_OF_ONE)] == list(HCAS)
    assert rank.index(HCAS[-1]) < rank.index("remainder_value")
    assert (terms_for(policy, 1) == rank) == (policy is Policy.NIC_REQUIRED)
    assert (HCAS_OF_ONE[0] in terms_for(policy, 1)) == (policy is not Policy.NIC_REQUIRED)


def test_the_rules_say_which_terms_count() -> None:
    assert Rules().terms(4) == TERMS[Policy.BEST]
    assert Rules(with_hcas=True).terms(4) == terms_for(Policy.BEST, 4, with_hcas=True)


def test_a_gpu_with_an_hca_is_near_it() -> None:
    ids = [gpu.id for gpu in FAR_AND_NEAR.gpus]
    for with_hcas, gpus in ((False, (0,)), (True, (4,))):
        allocator = Allocator(FAR_AND_NEAR, Rules(with_hcas=with_hcas))
        answer = allocator.allocate(available=ids, size=1)
        assert answer.indices == gpus
        assert with_hcas == ("hca_far" in answer.rules.terms(1))
