"""Guesses about GPUs and HCAs that the kubelet cannot be asked about yet."""

from pathlib import Path

from structlog.testing import capture_logs

from nodetopo.components.rdma.joint import Tally
from nodetopo.components.rdma.joint_loop import INTERVAL_S, JointLoop
from nodetopo.kernel.settings.declare import Settings
from tests.components.rdma.test_joint import Admissions


def test_a_kubelet_that_does_not_answer_is_reported_once_and_asked_again(tmp_path: Path) -> None:
    node = Admissions()
    settings = Settings(node_name="n", pod_resources_socket=tmp_path / "kubelet.sock")
    loop = JointLoop(settings, node.joint)
    with capture_logs() as lines:
        assert loop.step() == INTERVAL_S  # nothing to ask
        node.gpus(1)
        node.hcas(1)
        assert (loop.step(), loop.step()) == (INTERVAL_S, INTERVAL_S)
    loop.close()
    assert [line["event"] for line in lines] == ["joint placement not verified"]
    assert "kubelet.sock" in lines[0]["problem"]
    assert (len(node.joint.guesses), node.joint.tally) == (1, Tally())
