"""GPUs and HCAs of one pod are near each other, whichever the kubelet's managers ask for first."""

import pytest

from nodetopo.model.numa import CpuSet, NumaNode
from nodetopo.model.pod import Container, ContainerKind, Pod
from tests.lab.admission_case import GPU, NIC, Case, Device
from tests.lab.admission_kubelet import outcomes
from tests.lab.admission_machine import Core, Machine
from tests.lab.joint_pairs import POLICIES, Kind, Run, machine, play

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


def test_pods_that_want_one_kind_alone_mislead_guesses_and_not_the_kubelets_list() -> None:
    """The worst case: a third of the pods, and no time between any two.

    So many that the random order of requests does not decide: of a third as many, six runs had
    0.95 to 0.97 near, with 0.03 to 0.04 across sockets; guesses 0.57 to 0.68, and plugins apart
    0.39 to 0.47.
    """
    joint, guessed, apart = (
        play(
            machine(),
            "none",
            2 * _PODS,
            _SEED,
            is_joint=is_joint,
            alone=1 / 3,
            is_listed=is_listed,
        )
        for is_joint, is_listed in ((True, True), (True, False), (False, False))
    )
    assert joint.rejected == guessed.rejected == apart.rejected == 0
    assert apart.share() < guessed.share() < joint.share()
    assert joint.share() >= 0.88
    assert joint.across() <= 0.06


def test_pods_of_several_containers_get_near_pairs_in_each(namespaces: None) -> None:
    """Of what is possible: 0.96 to 0.97 in four runs; 0.91 to 0.92 without the checkpoint."""
    del namespaces
    run = play(machine(), "none", 2 * _PODS, _SEED, is_joint=True, is_mixed=True)
    assert run.rejected == 0
    assert run.share() / run.best() >= 0.94


@pytest.mark.parametrize(("nodes", "is_admitted"), [((0,), False), ((0, 1), False), (None, True)])
def test_a_shared_pool_must_not_report_nodes_of_hcas_on_several(
    namespaces: None, nodes: tuple[int, ...] | None, is_admitted: bool
) -> None:
    """A pod with GPUs of both nodes and one device of the pool, under ``restricted``."""
    del namespaces
    machine_ = Machine(
        nodes=tuple(
            NumaNode(
                id=number,
                cpus=CpuSet.of(range(8 * number, 8 * number + 8)),
                memory_mib=64 * 1024,
                distances=(21, 10) if number else (10, 21),
            )
            for number in (0, 1)
        ),
        cores=tuple(
            Core(node=number, socket=number, threads=(8 * number + at,), cache=number)
            for number in (0, 1)
            for at in range(8)
        ),
    )
    limits = {GPU: 8, NIC: 1}
    work = Container(name="work", kind=ContainerKind.APP, requests=limits, limits=limits)
    case = Case(
        machine=machine_,
        topology="restricted",
        devices=(
            *(Device(GPU, f"gpu-{number}", (number // 4,)) for number in range(8)),
            *(Device(NIC, f"token-{number}", nodes) for number in range(4)),
        ),
        steps=(Pod(namespace="default", name="pod", uid="pod", containers=(work,)),),
    )
    (outcome,) = outcomes([case])
    assert [verdict["admit"] for verdict in outcome.verdicts] == [is_admitted]
