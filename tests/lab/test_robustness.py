"""What the plugin answers when the request or the driver is out of order."""

import grpc
import pytest

from nodetopo.deviceplugin.pb import deviceplugin_pb2 as pb
from nodetopo.deviceplugin.pb import deviceplugin_pb2_grpc as service
from nodetopo.machines.bundled import machine
from tests.lab.cluster import Cluster
from tests.lab.machine_node import Node
from tests.lab.pods import GPU, guaranteed
from tests.lab.waiting import wait_for

pytestmark = pytest.mark.lab

_IDS = [gpu.id for gpu in machine("dgx-h100").gpus]
_INT32 = 2**31


@pytest.mark.parametrize(
    ("available", "required", "size"),
    [
        ([], [], 0),
        ([], [], 4),
        ([], _IDS[:2], 2),
        (_IDS, [], 0),
        (_IDS, [], -1),
        (_IDS, [], 9),
        (_IDS, [], _INT32 - 1),
        (_IDS, [], -_INT32),
        (_IDS, _IDS, 2),
        (_IDS[:4], _IDS[4:], 2),
        (_IDS * 3, _IDS[:1] * 5, 4),
        (["", " ", "GPU", "\0", "💥", "x" * 100_000], ["nothing"], 3),
        (["MIG-1", *_IDS[:3]], ["MIG-1"], 3),
    ],
)
def test_any_preference_request_gets_as_many_of_the_available_ids_as_it_asks_for(
    h100: Node, available: list[str], required: list[str], size: int
) -> None:
    chosen = _preferred(h100, available, required, size)

    assert len(set(chosen)) == len(chosen) == max(0, min(size, len(set(available))))
    assert set(chosen) <= set(available)


def test_a_preference_request_for_no_container_gets_an_empty_answer(h100: Node) -> None:
    with _plugin(h100) as channel:
        stub = service.DevicePluginStub(channel)
        answer = stub.GetPreferredAllocation(pb.PreferredAllocationRequest(), timeout=60)

    assert answer == pb.PreferredAllocationResponse()


def test_pods_get_gpus_while_a_call_into_the_driver_hangs(cluster: Cluster, h100: Node) -> None:
    h100.agent.fail("hang nvmlDeviceGetCount_v2")
    wait_for(
        "a scan noticed that NVML hangs",
        lambda: "did not answer" in h100.agent.log_since_start() or None,
        evidence=h100.logs,
    )

    cluster.pods.run(guaranteed("job", "h100", {"cpu": 2, "memory": "64Mi", GPU: 2}))

    assert h100.allocatable(GPU) == 8
    assert len(_preferred(h100, _IDS, [], 4)) == 4


def _plugin(node: Node) -> grpc.Channel:
    return grpc.insecure_channel(
        f"unix:{node.agent.plugin_socket()}", [("grpc.default_authority", "localhost")]
    )


def _preferred(node: Node, available: list[str], required: list[str], size: int) -> list[str]:
    """Ask the agent itself; an RPC error fails the test."""
    asked = pb.ContainerPreferredAllocationRequest(
        available_deviceIDs=available, must_include_deviceIDs=required, allocation_size=size
    )
    request = pb.PreferredAllocationRequest(container_requests=[asked])
    with _plugin(node) as channel:
        answer = service.DevicePluginStub(channel).GetPreferredAllocation(request, timeout=60)
    (container,) = answer.container_responses
    return list(container.deviceIDs)
