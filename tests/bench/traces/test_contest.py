"""All policies on the same jobs."""

from random import Random

import pytest
from msgspec.structs import asdict

from nodetopo.allocation.rules import Model
from nodetopo.machines.bundled import machine
from tests.bench.traces.contest import OURS, POLICIES, Contest, obstacle
from tests.bench.traces.jobs import WORKLOADS, Step, poisson, schedule
from tests.bench.traces.outcome import Outcome
from tests.strategies import node

MACHINES = {
    "mesh": machine("dgx-1v"),
    "switched": machine("dgx-h100"),
    "PCIe": machine("l40s-pcie-4"),
    "bridged": node(
        numa=(0, 0, 0, 0, 1, 1, 1, 1), links={(0, 4): 4, (1, 5): 4, (2, 6): 4, (3, 7): 4}
    ),
    "unknown": node(numa=(None, 0, 0, None, 1, 1), links={(0, 1): 2}),
}


def _steps(gpus: int) -> tuple[Step, ...]:
    found = WORKLOADS["mixed"].fitting(gpus)
    assert found is not None
    return schedule(
        poisson(found[0], count=300, gpus=gpus, load=0.7, source=Random(1)),
        gpus,
    )


def _outcomes(shape: str, policies: tuple[str, ...]) -> dict[str, Outcome]:
    contest = Contest(MACHINES[shape], policies, Model.RING)
    steps = _steps(contest.yardstick.gpus)
    return {policy: contest.run(policy, steps, Random(policy)) for policy in policies}


@pytest.mark.parametrize("shape", MACHINES)
def test_every_policy_serves_every_job_and_no_share_leaves_its_range(shape: str) -> None:
    for outcome in _outcomes(shape, POLICIES).values():
        assert outcome.decisions == 300
        assert outcome.measured > 0
        shares = {
            name: value
            for name, value in asdict(outcome).items()
            if name not in {"decisions", "measured", "crashes", "mean_gb_s", "harmonic_gb_s"}
        }
        assert {name: v for name, v in shares.items() if v is not None and not 0 <= v <= 1} == {}


@pytest.mark.parametrize("shape", MACHINES)
def test_the_best_policy_takes_the_best_set_that_is_free(shape: str) -> None:
    outcome = _outcomes(shape, ("best",))["best"]
    assert outcome.reached == 1
    assert outcome.mean_of_best == outcome.offline_of_best


def test_a_further_policy_changes_nothing_for_the_others() -> None:
    alone = _outcomes("mesh", ("nvidia", "random"))
    assert alone.items() <= _outcomes("mesh", ("best", "random", "hami", "nvidia")).items()


def test_a_second_run_of_a_policy_is_the_first_again() -> None:
    contest = Contest(MACHINES["mesh"], POLICIES, Model.RING)
    steps = _steps(8)
    for policy in POLICIES:
        first, second = (contest.run(policy, steps, Random(1)) for _ in range(2))
        assert first == second


def test_our_policies_do_what_their_names_say() -> None:
    outcomes = _outcomes("bridged", ("best", "numa-first", "distributed"))
    split = {policy: outcome.numa_split or 0 for policy, outcome in outcomes.items()}
    assert split["numa-first"] < split["best"]
    assert split["numa-first"] < split["distributed"]
    assert (outcomes["numa-first"].reached or 1) < (outcomes["best"].reached or 0)


def test_a_rule_that_cannot_be_asked_says_why() -> None:
    def source() -> Random:
        return Random(0)

    assert "16 GPUs" in (obstacle("nvidia", machine("dgx-2"), source) or "")
    assert obstacle("nvidia", machine("dgx-1v"), source) is None
    assert [obstacle(name, machine("dgx-2"), source) for name in OURS] == [None] * len(OURS)
