"""The bench of claims under churn, in small: what it must find whatever the seed."""

import pytest

from nodetopo.machines.bundled import machine
from tests.bench import dra_churn
from tests.lab.dra_allocator import AllocatorError, DraAllocator

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def found(namespaces: None) -> dict[str, dra_churn.Count]:
    """Return the counts of each way for one seed on a machine whose GPUs are joined by a mesh."""
    del namespaces
    snapshot = machine("dgx-1v")
    with DraAllocator() as allocator:
        return {
            way.name: dra_churn.run(way, snapshot, 1, 80, allocator)
            for way in dra_churn.ways(snapshot, 1)
        }


def test_our_sets_are_never_worse_than_the_best_free_set(found: dict[str, dra_churn.Count]) -> None:
    ours = found["our driver, sets, exported claims"]
    assert ours.worse == dict.fromkeys(dra_churn.SIZES, 0)
    assert ours.split == ours.unavoidable


def test_the_order_of_nvidias_driver_is(found: dict[str, dra_churn.Count]) -> None:
    theirs = found["NVIDIA's order"]
    assert theirs.worse[2] > 0
    assert theirs.split > found["our driver, sets, exported claims"].split


def test_exported_claims_are_nearly_as_good_as_sets(found: dict[str, dra_churn.Count]) -> None:
    exported, theirs = found["exported claims"], found["NVIDIA's order"]
    assert exported.worse[4] * 10 < theirs.worse[4]


def test_all_ways_have_the_same_jobs(found: dict[str, dra_churn.Count]) -> None:
    assert len({tuple(count.jobs.items()) for count in found.values()}) == 1


def test_a_claim_that_the_allocator_refuses_is_an_error(namespaces: None) -> None:
    del namespaces
    ask = {"deviceClassName": "none", "count": 1}
    spec = {"devices": {"requests": [{"name": "gpus", "exactly": ask}]}}
    with DraAllocator() as allocator, pytest.raises(AllocatorError, match="no class none"):
        allocator.allocate("c", spec, "n")
