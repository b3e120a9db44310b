"""Which devices the kubelet would give out, asked of it (PodResources API, v1)."""

from pathlib import Path

import grpc

from agent.probes.pb import podresources_pb2 as pb

_METHOD = "/v1.PodResourcesLister/GetAllocatableResources"


def healthy(socket: Path, resource: str) -> frozenset[str]:
    """Return the ids of *resource* that are healthy, whether a pod has them or not.

    The kubelet answers from its memory, while a Node object may be seconds old.
    """
    options = (("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1))
    with grpc.insecure_channel(f"unix:{socket}", options=options) as channel:
        call = channel.unary_unary(
            _METHOD,
            request_serializer=pb.AllocatableResourcesRequest.SerializeToString,
            response_deserializer=pb.AllocatableResourcesResponse.FromString,
        )
        answer = call(pb.AllocatableResourcesRequest(), timeout=10)
    return frozenset(
        name
        for devices in answer.devices
        if devices.resource_name == resource
        for name in devices.device_ids
    )
