"""What running containers were given, asked of the kubelet (PodResources API, v1)."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from agent.errors import UnreadableError
from agent.model.numa import CpuSet
from agent.model.pod import AssignedDevices, AssignedMemory, Container, Pod

LIST = "/v1.PodResourcesLister/List"

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""What the kubelet's own clients allow (1.36 pkg/kubelet/apis/podresources/constants.go)."""

MAX_PATH_BYTES = 107
"""``sun_path`` is 108 bytes with its closing zero (linux/un.h)."""


def assigned(socket: Path, *, timeout_s: float = 5.0) -> tuple[Pod, ...]:
    """Return the active pods of this node with what the kubelet assigned to each container.

    Pods by namespace and name, devices by resource, ids sorted: the kubelet's own order
    changes from call to call. There is no UID and no spec in this source, init containers
    that finished are left out, and a sidecar looks like any container.

    Raises:
        UnreadableError: no socket, no permission, no answer in *timeout_s*, or an error.
    """
    _check(socket)
    pods = (_pod(pod) for pod in _list(socket, timeout_s).pod_resources)
    return tuple(sorted(pods, key=lambda pod: (pod.namespace, pod.name)))


def _check(socket: Path) -> None:
    if len(os.fsencode(socket.absolute())) > MAX_PATH_BYTES:
        raise UnreadableError(
            f"{socket} is longer than the {MAX_PATH_BYTES} bytes a unix socket's path may have",
            "mount it at a shorter --pod-resources-socket",
        )
    try:
        socket.stat()
    except OSError as error:
        raise UnreadableError(
            f"cannot reach the kubelet's pod resources at {socket}: {error.strerror}",
            "start the kubelet, or mount its pod-resources directory here",
        ) from error


def _list(socket: Path, timeout_s: float) -> Any:
    # gRPC costs 21 MiB and 0.1 s, which commands that read a snapshot never need.
    import grpc  # noqa: PLC0415

    from agent.probes.pb import podresources_pb2 as pb  # noqa: PLC0415

    options = (
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.default_authority", "localhost"),
        ("grpc.use_local_subchannel_pool", 1),
    )
    with grpc.insecure_channel(f"unix://{socket.absolute()}", options=options) as channel:
        call = channel.unary_unary(
            LIST,
            request_serializer=pb.ListPodResourcesRequest.SerializeToString,
            response_deserializer=pb.ListPodResourcesResponse.FromString,
        )
        try:
            return call(pb.ListPodResourcesRequest(), timeout=timeout_s)
        except grpc.RpcError as error:
            raise _unreadable(socket, error) from error


def _unreadable(socket: Path, error: Any) -> UnreadableError:
    code, details = error.code().name, error.details()
    cures = {
        "UNAVAILABLE": "see whether the kubelet runs",
        "DEADLINE_EXCEEDED": "see whether the kubelet is overloaded",
        "RESOURCE_EXHAUSTED": "try again in a second: the kubelet limits the calls per second",
        "UNIMPLEMENTED": "name the kubelet's pod-resources socket; this one serves another API",
    }
    return UnreadableError(
        f"the kubelet's pod resources at {socket} are unreadable: {code}: {details}",
        cures.get(code, "see the kubelet's log"),
    )


def _pod(message: Any) -> Pod:
    return Pod(
        namespace=message.namespace,
        name=message.name,
        containers=tuple(_container(container) for container in message.containers),
    )


def _container(message: Any) -> Container:
    return Container(
        name=message.name,
        devices=_devices(message.devices),
        cpus=CpuSet.of(message.cpu_ids),
        memory=tuple(sorted(map(_memory, message.memory), key=lambda m: (m.kind, m.numa_nodes))),
    )


def _devices(messages: Iterable[Any]) -> tuple[AssignedDevices, ...]:
    """Join the kubelet's one message per device and NUMA node into one record per resource."""
    ids: dict[str, set[str]] = {}
    for message in messages:
        ids.setdefault(message.resource_name, set()).update(message.device_ids)
    return tuple(
        AssignedDevices(resource=resource, ids=tuple(sorted(ids[resource])))
        for resource in sorted(ids)
    )


def _memory(message: Any) -> AssignedMemory:
    return AssignedMemory(
        kind=message.memory_type,
        size_bytes=message.size,
        numa_nodes=tuple(sorted(node.ID for node in message.topology.nodes)),
    )
