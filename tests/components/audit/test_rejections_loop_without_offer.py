"""Rejected pods where the kubelet tells what its pods hold, and not what it offers."""

from msgspec.structs import replace
from structlog.testing import capture_logs

from nodetopo.components.audit.rejections_loop import ATTEMPTS, GAP_S
from tests.components.audit.test_rejections_loop import H100, Played, rejected

UNTOLD = replace(H100, offer=None)


def test_a_pod_that_wants_no_device_is_explained_at_once() -> None:
    agent = Played(node=UNTOLD)
    resources = {"limits": {"cpu": "2", "memory": "1Gi"}}
    spec = {"nodeName": "gpu-1", "containers": [{"name": "c", "resources": resources}]}
    agent.rejections.take(rejected(spec=spec))
    agent.run(1)
    assert (agent.reads, agent.counts) == (1, (1, 0))


def test_what_it_offers_is_asked_for_again_where_the_answer_depends_on_it() -> None:
    agent = Played(node=UNTOLD)
    agent.rejections.take(rejected())
    agent.run(GAP_S)
    assert agent.counts == (0, 0)
    agent.node = H100
    agent.run(GAP_S)
    assert (agent.reads, agent.counts) == (2, (1, 0))


def test_it_is_not_asked_for_ever() -> None:
    agent = Played(node=UNTOLD)
    agent.rejections.take(rejected())
    with capture_logs() as lines:
        agent.run(GAP_S * 10)
    assert (agent.reads, agent.counts) == (ATTEMPTS, (0, 1))
    (line,) = lines
    assert line["missing"] == ["the devices and their NUMA nodes, by PodResources"]
