"""An XID, from the driver to everybody who asks: the node, the pod, an Event, the metrics."""

import re
import urllib.request

import pytest

from tests.lab.api import Object
from tests.lab.cluster import Cluster
from tests.lab.machine_node import Node
from tests.lab.pods import GPU, guaranteed
from tests.lab.waiting import wait_for

pytestmark = pytest.mark.lab

_NOTICED_S = 300.0
"""For the verdict, its end by evidence, and the loops of kubelet and Events in between."""

_RECOVERY_ACTION = "nvmlDeviceGetFieldValue 4 230"


def test_an_xid_reaches_the_node_the_pod_an_event_and_the_metrics_and_so_does_its_end(
    cluster: Cluster, v100: Node
) -> None:
    cluster.pods.run(guaranteed("job", "v100", {"cpu": 2, "memory": "64Mi", GPU: 8}))

    v100.agent.xid(5, 79)  # which only a reboot ends

    v100.wait_allocatable(GPU, 7, timeout_s=_NOTICED_S)
    _wait_status(cluster, {"Healthy": 7, "Unhealthy": 1})
    (line,) = (one for one in _metrics(v100, "nodetopo_gpu_healthy{") if one.endswith(" 0.0"))
    (uuid,) = re.findall(r'uuid="([^"]+)"', line)
    (counter,) = _metrics(v100, "nodetopo_xid_events_total{")
    told = _wait_event(cluster, v100, "GpuUnhealthy", f"{uuid}): XID 79")
    assert (cluster.pods.phase("job"), told["type"]) == ("Running", "Warning")
    assert (uuid in counter, counter.rsplit(" ", 1)[1]) == (True, "1.0")


def test_a_gpu_that_was_reset_comes_back_and_that_is_told(cluster: Cluster, v100: Node) -> None:
    v100.agent.change_answer(_RECOVERY_ACTION, "0 1")  # the driver asks for a reset
    v100.agent.xid(4, 62)
    v100.wait_allocatable(GPU, 7, timeout_s=_NOTICED_S)

    v100.agent.change_answer(_RECOVERY_ACTION, "0 0")  # and after it for nothing

    v100.wait_allocatable(GPU, 8, timeout_s=_NOTICED_S)

    assert _wait_event(cluster, v100, "GpuRecovered", "GPU4 ")["type"] == "Normal"


def _wait_event(cluster: Cluster, node: Node, reason: str, words: str) -> Object:
    """Return an Event about *node* whose message has *words*; other tests leave Events, too."""
    query = f"involvedObject.kind=Node,involvedObject.name={node.name},reason={reason}"
    path = f"/api/v1/namespaces/default/events?fieldSelector={query}"

    def found() -> Object | None:
        events = cluster.control_plane.api.get(path)["items"]
        return next((event for event in events if words in event["message"]), None)

    return wait_for(
        f"an Event {reason} with {words!r} about node {node.name}",
        found,
        timeout_s=_NOTICED_S,
        evidence=node.logs,
    )


def _wait_status(cluster: Cluster, expected: dict[str, int]) -> None:
    def counts() -> dict[str, int]:
        (container,) = cluster.pods.get("job")["status"]["containerStatuses"]
        resources = (
            device["health"]
            for status in container.get("allocatedResourcesStatus", ())
            for device in status["resources"]
        )
        found = list(resources)
        return {health: found.count(health) for health in set(found)}

    wait_for(
        f"the pod's status says {expected}",
        lambda: counts() == expected,
        timeout_s=_NOTICED_S,
        evidence=lambda: str(counts()),
    )


def _metrics(node: Node, beginning: str) -> list[str]:
    (url,) = re.findall(r'"url": "([^"]+)"', node.agent.log_since_start())
    with urllib.request.urlopen(url, timeout=10) as answer:
        text: str = answer.read().decode()
    return [line for line in text.splitlines() if line.startswith(beginning)]
