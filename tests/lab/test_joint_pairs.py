"""GPUs and HCAs of one pod are near each other, whichever the kubelet's managers ask for first."""

import pytest

from agent.rdmaplugin.joint import Kind
from tests.lab.joint_pairs import POLICIES, Run, machine, play

pytestmark = pytest.mark.lab

_PODS, _SEED = 500, 1


@pytest.fixture(scope="module", params=POLICIES)
def runs(request: pytest.FixtureRequest, namespaces: None) -> tuple[Run, Run]:
    """Return what pods got from plugins that know of each other, and from such as do not."""
    del namespaces
    snapshot = machine()
    joint, apart = (
        play(snapshot, request.param, _PODS, _SEED, is_joint=is_joint) for is_joint in (True, False)
    )
    return joint, apart


def test_every_pair_that_could_be_near_is_near(runs: tuple[Run, Run]) -> None:
    joint, _ = runs
    assert (len(joint.pods), joint.rejected) == (_PODS, 0)
    for kind in Kind:
        assert sum(pod.first is kind for pod in joint.pods) > _PODS / 25
        assert joint.share(kind) == 1.0
    assert joint.best() == 1.0


def test_plugins_apart_leave_pairs_far(runs: tuple[Run, Run]) -> None:
    _, apart = runs
    assert len(apart.pods) == _PODS
    assert apart.share() < min(0.95, apart.best())


def test_pods_that_want_one_kind_alone_make_guesses_wrong_but_cost_less_than_none() -> None:
    """The worst case: a third of the pods, and no time between any two."""
    joint, apart = (
        play(machine(), "none", 200, _SEED, is_joint=is_joint, alone=1 / 3)
        for is_joint in (True, False)
    )
    assert joint.rejected == apart.rejected == 0
    assert apart.share() < joint.share() < 1.0
