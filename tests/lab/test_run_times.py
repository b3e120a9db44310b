"""When pods of a real kubelet and API server are expected to end, with the deployed rights."""

from pathlib import Path

import pytest

from nodetopo.allocation.remainder import Ends
from nodetopo.components.gpus.run_times import ANNOTATION, RunTimesLoop
from nodetopo.formats.responses import moment
from tests.lab.audited import AuditedNode, account
from tests.lab.cluster import Cluster
from tests.lab.machine_node import Node
from tests.lab.pods import GPU, guaranteed
from tests.lab.test_rejections import running
from tests.lab.waiting import wait_for

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def kubeconfig(cluster: Cluster) -> Path:
    """Return the way in with the rights of the component."""
    return account(cluster, "run-times")


def test_gpus_are_free_when_the_pods_that_hold_them_are_expected_to_end(
    cluster: Cluster, h100: Node, kubeconfig: Path
) -> None:
    wanted: dict[str, str | int] = {"cpu": 1, "memory": "1Gi", GPU: 1}
    names = ("stated", "limited", "silent")
    stated, limited, silent = (guaranteed(name, h100.name, wanted) for name in names)
    stated["metadata"]["annotations"] = {ANNOTATION: "2h"}
    limited["spec"]["activeDeadlineSeconds"] = 3_600
    for pod in (stated, limited, silent):
        cluster.pods.create(pod)
    starts = {}
    for name in names:
        cluster.pods.wait_phase(name, "Running")
        starts[name] = moment(cluster.pods.get(name)["status"]["startTime"])

    got: list[Ends] = []
    settings = AuditedNode(cluster, h100, kubeconfig).settings
    loop = RunTimesLoop(settings, got.append)

    def ends() -> list[float]:
        loop.step()
        return sorted(end for end in got[-1].values() if end is not None)

    first, second = starts["limited"], starts["stated"]
    assert first is not None
    assert second is not None
    with running(loop.watch.run):
        wait_for("both ends are known", lambda: len(ends()) == 2, evidence=lambda: str(got[-1:]))
        assert ends() == [first.timestamp() + 3_600, second.timestamp() + 7_200]
        assert len(got[-1]) == 3
        assert loop.watch.problem is None
    loop.close()
