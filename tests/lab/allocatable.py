"""What the kubelet gives and gave out, asked of it until it answers (PodResources API, v1).

It does not for a while after a start, nor if it is asked more than 100 times a second.
"""

from contextlib import closing
from functools import partial
from pathlib import Path

import grpc

from nodetopo.errors import UnreadableError
from nodetopo.model.pod import Pod
from nodetopo.probes.kubelet.pb import podresources_pb2 as pb
from nodetopo.probes.kubelet.podresources import PodResources
from tests.lab.waiting import wait_for

_METHOD = "/v1.PodResourcesLister/GetAllocatableResources"


def healthy(socket: Path, resource: str) -> frozenset[str]:
    """Return the ids of *resource* that are healthy, whether a pod has them or not.

    The kubelet answers from its memory, while a Node object may be seconds old.
    """
    answer = wait_for("the kubelet tells what it can give", partial(_allocatable, socket))
    return frozenset(
        name
        for devices in answer.devices
        if devices.resource_name == resource
        for name in devices.device_ids
    )


def assigned(socket: Path) -> tuple[Pod, ...]:
    """Return what each pod was given."""
    (pods,) = wait_for("the kubelet tells what pods have", partial(_assigned, socket))
    return pods


def _allocatable(socket: Path) -> pb.AllocatableResourcesResponse | None:
    options = (("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1))
    with grpc.insecure_channel(f"unix:{socket}", options=options) as channel:
        call = channel.unary_unary(
            _METHOD,
            request_serializer=pb.AllocatableResourcesRequest.SerializeToString,
            response_deserializer=pb.AllocatableResourcesResponse.FromString,
        )
        try:
            answer: pb.AllocatableResourcesResponse = call(
                pb.AllocatableResourcesRequest(), timeout=10
            )
        except grpc.RpcError:
            return None
    return answer


def _assigned(socket: Path) -> tuple[tuple[Pod, ...]] | None:
    with closing(PodResources(socket)) as kubelet:
        try:
            return (kubelet.assigned(),)
        except UnreadableError:
            return None
