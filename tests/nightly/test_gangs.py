"""Gangs under KAI and Kueue, which place them by our labels and our exported topologies."""

import pytest

from tests.lab.schedulers import fabric
from tests.nightly.cluster import CLIQUES, NightlyCluster
from tests.nightly.gang import Gang
from tests.nightly.trial import Scheduler, place, placed, refusal

pytestmark = pytest.mark.nightly


@pytest.fixture(params=["kai", "kueue"])
def scheduler(request: pytest.FixtureRequest, nightly: NightlyCluster) -> Scheduler:
    """Return each scheduler in turn."""
    return nightly.schedulers[str(request.param)]


@pytest.mark.parametrize("run", range(3))
def test_a_gang_that_must_share_a_clique_lands_on_one(
    nightly: NightlyCluster, scheduler: Scheduler, run: int
) -> None:
    gang = Gang(name=f"clique-{run}", size=4, level=fabric.PARTITION)
    found = place(nightly.api, scheduler, gang)
    assert len(set(found.nodes)) == 4
    assert list(found.domains(CLIQUES).values()) == [4]


def test_two_gangs_at_once_get_a_clique_each(nightly: NightlyCluster, scheduler: Scheduler) -> None:
    first, second = (Gang(name=f"pair-{n}", size=4, level=fabric.PARTITION) for n in range(2))
    with placed(nightly.api, scheduler, first) as one:
        other = place(nightly.api, scheduler, second)
    assert one.domains(CLIQUES) | other.domains(CLIQUES) == {
        CLIQUES["n00"]: 4,
        CLIQUES["n01"]: 4,
    }


def test_the_same_gang_without_a_topology_is_spread_over_cliques(
    nightly: NightlyCluster, scheduler: Scheduler
) -> None:
    found = place(nightly.api, scheduler, Gang(name="anywhere", size=4))
    assert len(found.domains(CLIQUES)) > 1


def test_a_gang_that_must_share_a_rack_fills_both_of_its_cliques(
    nightly: NightlyCluster, scheduler: Scheduler
) -> None:
    gang = Gang(name="rack", size=8, level=fabric.DOMAIN)
    found = place(nightly.api, scheduler, gang)
    assert found.domains(CLIQUES) == {
        CLIQUES["n00"]: 4,
        CLIQUES["n01"]: 4,
    }


def test_a_gang_larger_than_any_clique_is_refused_with_the_size_that_would_fit(
    nightly: NightlyCluster, scheduler: Scheduler
) -> None:
    why = refusal(nightly.api, scheduler, Gang(name="five", size=5, level=fabric.PARTITION))
    assert "only 4 " in why


def test_one_topology_keeps_a_gang_of_whole_dgx_machines_off_two_of_them(
    nightly: NightlyCluster, scheduler: Scheduler
) -> None:
    one = Gang(name="dgx", size=1, gpus=8, level=fabric.PARTITION)
    assert place(nightly.api, scheduler, one).nodes[0] in {"n02", "n06"}
    two = Gang(name="two-dgx", size=2, gpus=8, level=fabric.PARTITION)
    assert "only 1 " in refusal(nightly.api, scheduler, two)


def test_without_our_labels_the_gang_waits_and_with_them_again_it_lands(
    nightly: NightlyCluster, scheduler: Scheduler
) -> None:
    with nightly.unlabelled():
        refusal(nightly.api, scheduler, Gang(name="bare", size=4, level=fabric.PARTITION))
    gang = Gang(name="again", size=4, level=fabric.PARTITION)
    found = place(nightly.api, scheduler, gang)
    assert list(found.domains(CLIQUES).values()) == [4]
