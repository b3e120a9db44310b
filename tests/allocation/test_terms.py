"""What the terms of a request prefer: requests whose answer is plain to see."""

from collections.abc import Collection
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nodetopo.allocation.allocator import Allocation, Allocator
from nodetopo.allocation.rules import Policy, Rules
from nodetopo.machines.bundled import machine
from nodetopo.model.nvlink import Closeness
from nodetopo.model.snapshot import Snapshot
from tests.allocation.brute_force import BruteForce
from tests.budget import cases
from tests.strategies import machines, node, requests

H100 = machine("dgx-h100")
FAR_AND_NEAR = node(
    numa=[0, 0, 0, 0, 1, 1, 1, 1],
    sockets={0: 0, 1: 1},
    hcas=[{gpu: Closeness.SYS if gpu < 4 else Closeness.NODE for gpu in range(8)}],
    hca_numa=[1],
)
"""Four GPUs on a socket without an HCA, and four on the socket of the only one."""


def allocate(
    snapshot: Snapshot,
    size: int,
    policy: Policy = Policy.BEST,
    free: Collection[int] | None = None,
    degraded: Collection[int] = (),
) -> Allocation:
    ids = [gpu.id for gpu in snapshot.gpus]
    return Allocator(snapshot, Rules(policy=policy)).allocate(
        available=ids if free is None else [ids[gpu] for gpu in free],
        size=size,
        degraded=[ids[gpu] for gpu in degraded],
    )


def with_links_down(snapshot: Snapshot, gpu: int, count: int) -> Snapshot:
    """Take down the first *count* NVLinks of a GPU."""
    links = snapshot.nvlinks or ()
    own = [link for link in links if link.gpu == gpu][:count]
    return replace(
        snapshot, nvlinks=tuple(replace(k, is_active=False) if k in own else k for k in links)
    )


@pytest.mark.parametrize("policy", [Policy.BEST, Policy.NUMA_FIRST, Policy.PACKED])
def test_a_job_of_one_gpu_leaves_the_gpus_near_an_hca_free(policy: Policy) -> None:
    answer = allocate(FAR_AND_NEAR, 1, policy)
    assert answer.indices == (0,)
    assert answer.alternatives[-1].indices == (3,)


def test_a_rank_with_one_gpu_is_near_an_hca() -> None:
    assert allocate(FAR_AND_NEAR, 1, Policy.NIC_REQUIRED).indices == (4,)


def test_a_job_of_several_gpus_is_near_the_hca() -> None:
    assert allocate(FAR_AND_NEAR, 2).indices == (4, 5)


def test_why_not_a_gpu_near_the_hca() -> None:
    ids = [gpu.id for gpu in FAR_AND_NEAR.gpus]
    answer = allocate(FAR_AND_NEAR, 1, free=[0, 4])
    assert (answer.indices, answer.alternatives[0].lost_at) == ((0,), "hca_nearness")
    assert any(
        "next best GPU4: loses on nearness to an HCA, 2 against 0" in line
        for line in answer.reasons
    )
    other = Allocator(FAR_AND_NEAR).describe([ids[4]], [ids[0], ids[4]])
    assert other.score.hca_nearness == 2


def test_the_best_connected_gpus_stay_free() -> None:
    """GPU3 has no NVLink: the job of one GPU gets it, and the job of seven all of NVSwitch."""
    broken = with_links_down(H100, 3, 18)
    one = allocate(broken, 1)
    assert (one.indices, one.alternatives[0].lost_at) == ((3,), "reach_gb_s")
    assert "GPU3 has 0 of 18 NVLinks" in one.reasons
    seven = allocate(broken, 7, free=[gpu for gpu in range(8) if gpu not in one.indices])
    assert seven.score.bandwidth_gb_s == 450


def test_one_nvlink_down_does_not_send_a_job_over_two_sockets() -> None:
    answer = allocate(with_links_down(H100, 1, 1), 4, free=[0, 1, 2, 3, 4])
    score = answer.score
    assert (answer.indices, score.numa_nodes) == ((0, 1, 2, 3), 1)
    assert (score.bandwidth_gb_s, score.counts_as_gb_s) == (425, 450)
    assert answer.alternatives[0].lost_at == "numa_nodes"
    assert answer.engine == "table"


def test_two_nvlinks_down_do() -> None:
    answer = allocate(with_links_down(H100, 1, 2), 4, free=[0, 1, 2, 3, 4])
    assert (answer.indices, answer.alternatives[0].lost_at) == ((0, 2, 3, 4), "bandwidth_gb_s")


def test_degraded_gpus_are_the_first_term_of_every_policy() -> None:
    for policy in Policy:
        answer = allocate(H100, 4, policy, free=[0, 1, 2, 3, 4], degraded=[2])
        assert (answer.indices, answer.score.degraded) == ((0, 1, 3, 4), 0)
        ids = [gpu.id for gpu in H100.gpus]
        allocator = Allocator(H100, Rules(policy=policy))
        other = allocator.describe(ids[:4], ids[:5], degraded=[ids[2]])
        assert (other.score.degraded, other.alternatives[0].lost_at) == (1, "degraded")
        assert not other.is_optimal


def test_a_degraded_gpu_is_taken_where_nothing_else_is_left() -> None:
    answer = allocate(H100, 3, free=[0, 1, 4], degraded=[1, 4])
    assert (answer.indices, answer.score.degraded) == ((0, 1, 4), 2)
    assert allocate(H100, 2, free=[0, 1, 4], degraded=[1, 4]).indices == (0, 1)


def test_a_degraded_gpu_is_worth_nothing_to_later_jobs_while_others_are_left() -> None:
    """GPU0 is degraded, so GPU1 has no partner among the sound GPUs and is taken first."""
    answer = allocate(H100, 1, free=[0, 1, 4, 5], degraded=[0])
    assert answer.indices == (1,)
    assert answer.score.remainder_value == 450
    assert allocate(H100, 1, free=[0, 1], degraded=[0, 1]).indices == (0,)


@settings(max_examples=cases(60, 300), deadline=None)
@given(data=st.data())
def test_with_degraded_gpus_too_the_answer_is_the_best_of_all_sets(data: st.DataObject) -> None:
    snapshot = data.draw(machines(max_gpus=6))
    available, required, size = data.draw(requests(snapshot))
    degraded = data.draw(st.sets(st.sampled_from([gpu.id for gpu in snapshot.gpus])))
    rules = Rules(policy=data.draw(st.sampled_from(Policy)))
    answer = Allocator(snapshot, rules).allocate(
        available=available, required=required, size=size, degraded=degraded
    )
    truth = BruteForce(snapshot, rules)
    index = {gpu.id: gpu.index for gpu in snapshot.gpus}
    bad, free = (truth.mask(index[name] for name in names) for names in (degraded, set(available)))

    def mask(chosen: Collection[str]) -> int:
        return truth.mask(index[name] for name in chosen)

    sets = [some for some in combinations(sorted(set(available)), size) if {*required} <= {*some}]
    fewest = min((mask(some) & bad).bit_count() for some in sets)
    able = [mask(some) for some in sets if (mask(some) & bad).bit_count() == fewest]
    # Where healthy GPUs and those required suffice, others that are degraded are in use.
    pool = free & (mask(required) | ~bad)
    best, _ = truth.best_of(able, pool if pool.bit_count() >= size else free)
    assert mask(answer.chosen) == best
