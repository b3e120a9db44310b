"""``admit`` against the kubelet's own managers, on made-up machines of every shape.

``NODETOPO_ADMISSION_SEED`` begins the random cases elsewhere, for runs of more of them.
"""

import os
from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest
from msgspec.structs import replace

from tests.lab.admission_assigned import is_told, told
from tests.lab.admission_case import Case
from tests.lab.admission_compare import admissions, differences, smallest
from tests.lab.admission_kubelet import Outcome, outcomes
from tests.lab.admission_random import random_case, wide_case
from tests.lab.build import OLD_VERSION, old_managers

pytestmark = pytest.mark.lab

_CASES, _WIDE_CASES = 300, 100
_SEED = int(os.environ.get("NODETOPO_ADMISSION_SEED", "1"))


@pytest.fixture(scope="module")
def played(namespaces: None) -> list[tuple[Case, Outcome]]:
    """Return random cases, each with what the real managers made of it."""
    del namespaces
    cases = [random_case(Random(_SEED + number)) for number in range(_CASES)]
    found = zip(cases, outcomes(cases), strict=True)
    return [(case, outcome) for case, outcome in found if not outcome.ended]


def test_every_pod_becomes_what_the_managers_make_of_it(
    played: Sequence[tuple[Case, Outcome]],
) -> None:
    for case, outcome in played:
        for difference in differences(case, outcome):
            pytest.fail(str(smallest(difference)))


def test_more_numa_nodes_than_are_usual_become_the_same(namespaces: None) -> None:
    """Up to 64 of them, as far as the kubelet comes to an end with their sets."""
    del namespaces
    cases = [wide_case(Random(_SEED + number)) for number in range(_WIDE_CASES)]
    for case, outcome in zip(cases, outcomes(cases), strict=True):
        for difference in differences(case, outcome):
            pytest.fail(str(smallest(difference)))
    assert {9, 10, 18, 34, 64} <= {len(case.machine.nodes) for case in cases}
    assert {case.memory for case in cases} == {"Static", "None"}


def test_kubelets_up_to_1_35_go_through_all_numa_nodes(namespaces: None) -> None:
    """So a merged hint of theirs can be of other nodes than the same pod's on 1.36."""
    del namespaces
    cases = [random_case(Random(_SEED + number)) for number in range(_CASES)]
    old = [replace(case, version=OLD_VERSION) for case in cases]
    newer = 0
    for case, outcome in zip(old, outcomes(old, old_managers()), strict=True):
        for difference in differences(case, outcome):
            pytest.fail(str(difference))
        newer += any(differences(replace(case, version="v1.36.0"), outcome))
    assert newer > 0


def test_podresources_tells_as_much_as_the_state_files(
    played: Sequence[tuple[Case, Outcome]],
) -> None:
    """What it says nothing of is left out: init containers, and what rejected pods left behind."""
    for case, outcome in played:
        for difference in differences(case, outcome, told, is_told):
            pytest.fail(str(difference))


def test_the_cases_reach_every_verdict_and_setting(
    played: Sequence[tuple[Case, Outcome]],
) -> None:
    assert sum(admissions(case) for case, _ in played) >= 1000
    reasons = Counter(verdict["reason"] for _, it in played for verdict in it.verdicts)
    assert reasons.keys() == {
        "",
        "TopologyAffinityError",
        "UnexpectedAdmissionError",
        "SMTAlignmentError",
    }
    assert len({(case.topology, case.scope, case.cpu, case.memory) for case, _ in played}) >= 24
    assert len({option for case, _ in played for option in case.cpu_options}) == 6


def test_a_difference_is_told_by_the_smallest_case_that_has_it(
    played: Sequence[tuple[Case, Outcome]],
) -> None:
    """A kubelet that rejects each pod with whole GPUs differs from ours in one small pod."""
    case, outcome = next(
        (case, it) for case, it in played if all(verdict["admit"] for verdict in it.verdicts)
    )
    lied = _lie([case], [outcome])[0]
    found = smallest(next(differences(case, lied)), lambda cases: _lie(cases, outcomes(cases)))

    (pod,) = found.case.steps
    assert not isinstance(pod, str)
    assert len(pod.containers) == 1
    assert "a lie" in found.theirs


def _lie(cases: Sequence[Case], found: Sequence[Outcome]) -> list[Outcome]:
    """Return outcomes in which the last pod is rejected, whatever it asks for."""
    lies = []
    for case, outcome in zip(cases, found, strict=True):
        verdicts = list(outcome.verdicts)
        if verdicts and not isinstance(case.steps[-1], str):
            verdicts[-1] = {"admit": False, "reason": "a lie", "message": ""}
        lies.append(Outcome(outcome.ended, verdicts, outcome.states))
    return lies
