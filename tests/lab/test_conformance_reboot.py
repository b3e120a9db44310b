"""A reboot with pods on the node, and a plugin that is later than they are.

The cases are those of Kubernetes' own end-to-end tests (v1.36.3, test/e2e_node/
device_plugin_test.go and device_manager_test.go), told anew about our daemon; see
``docs/internals/conformance.md``. A pod that the kubelet admits before a plugin has registered
fails, and no plugin can help that; ours promises what comes after.
"""

import pytest

from tests.lab.cluster import Cluster
from tests.lab.machine_node import Node
from tests.lab.pods import GPU, guaranteed
from tests.lab.waiting import wait_for

pytestmark = pytest.mark.lab


def test_a_pod_admitted_after_a_reboot_before_the_plugin_fails_and_holds_no_gpu(
    cluster: Cluster, v100: Node
) -> None:
    """It "Does not keep device plugin assignments across node reboots if fails admission …"."""
    cluster.pods.run(guaranteed("job", v100.name, {GPU: 4}))

    v100.reboot()

    status = cluster.pods.wait_phase("job", "Failed")["status"]
    assert status["reason"] == "UnexpectedAdmissionError"
    wait_for("the kubelet lists the pod no more", lambda: not v100.given("job"))
    v100.agent.start()
    v100.wait_allocatable(GPU, 8)
    cluster.pods.run(guaranteed("next", v100.name, {GPU: 8}))


def test_a_plugin_that_lives_but_does_not_register_fails_the_pod_and_then_serves_the_next(
    cluster: Cluster, v100: Node
) -> None:
    """It "should deploy pod consuming devices first but fail with admission error after …"."""
    cluster.pods.run(guaranteed("job", v100.name, {GPU: 2}))

    with v100.agent.frozen():
        v100.kill_kubelet()
        v100.runtime.kill()
        v100.runtime.start()
        v100.start_kubelet()

        v100.wait_allocatable(GPU, 0)
        status = cluster.pods.wait_phase("job", "Failed")["status"]
        assert status["reason"] == "UnexpectedAdmissionError"

    v100.wait_allocatable(GPU, 8)
    cluster.pods.run(guaranteed("next", v100.name, {GPU: 8}))
