"""Kubernetes issue 129078: which running pods a restart of the kubelet rejects, up to 1.36.

A restarted kubelet admits its pods again, with their CPUs in the state: so does a pod that is
admitted twice here.
"""

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from nodetopo.components.audit.rules.kubelet.known_bugs import BUGS
from nodetopo.model.gpu import Gpu
from nodetopo.model.numa import CpuSet, NumaNode
from nodetopo.model.pod import Container, Pod
from tests.lab.admission_case import Case
from tests.lab.admission_kubelet import outcomes, snapshot
from tests.lab.admission_machine import GIB, Core, Machine
from tests.lab.release import chosen

pytestmark = pytest.mark.lab

CORES = 8
MACHINE = Machine(
    nodes=(
        NumaNode(
            id=0, cpus=CpuSet.of(range(2 * CORES)), memory_mib=65536, distances=(10,), hugepages=()
        ),
    ),
    cores=tuple(Core(node=0, socket=0, threads=(i, i + CORES), cache=0) for i in range(CORES)),
)
(BUG,) = (bug for bug in BUGS if bug.issue == 129078)


def pod(name: str, cpus: int) -> Pod:
    amounts = {"cpu": cpus * 1000, "memory": GIB}
    container = Container(name="c", requests=amounts, limits=amounts)
    return Pod(namespace="ml", name=name, uid=name, containers=(container,))


def case(options: Mapping[str, str], sizes: tuple[int, ...]) -> Case:
    """Return a node on which pods of *sizes* start, and that restarts then."""
    pods = [pod(f"pod-{number}", size) for number, size in enumerate(sizes)]
    return Case(
        machine=MACHINE,
        cpu="static",
        cpu_options=options,
        reserved_cpus="0",
        steps=(*pods, *pods),
    )


@pytest.mark.usefixtures("namespaces")
def test_a_restart_rejects_the_pods_that_the_check_names() -> None:
    sizes = [(size,) for size in range(2, 15, 2)] + [(2, 8), (4, 4), (4, 4, 4), (2, 2, 2)]
    only = {"full-pcpus-only": "true"}
    cases = [case(options, size) for size in sizes for options in ({}, only)]
    has_bug = BUG.has(chosen().kubelet, None)
    rejected = []
    for played, outcome in zip(cases, outcomes(cases), strict=True):
        assert outcome.ended == ""
        count = len(played.steps) // 2
        first, again = outcome.verdicts[:count], outcome.verdicts[count:]
        assert all(verdict["admit"] for verdict in first)
        reasons = {verdict["reason"] for verdict in again if not verdict["admit"]}
        pods = [one for one in played.steps[:count] if isinstance(one, Pod)]
        found = replace(
            snapshot(played, outcome.states[count], pods), gpus=(Gpu(index=0, uuid="GPU-0"),)
        )
        expected = has_bug and BUG.strikes(found) and BUG.evidence(found) is not None
        assert (reasons == {"SMTAlignmentError"}) == expected, played.steps
        rejected.append(expected)
    assert (0 < sum(rejected) < len(sizes)) == has_bug
