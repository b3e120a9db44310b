"""What running containers were given, asked of the kubelet (PodResources API, v1)."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from agent.errors import UnreadableError
from agent.model.node import NodeOffer, PlacedDevice, PodHolding
from agent.model.numa import CpuSet
from agent.model.pod import AssignedDevices, AssignedMemory, Container, Pod

LIST = "/v1.PodResourcesLister/List"
ALLOCATABLE = "/v1.PodResourcesLister/GetAllocatableResources"

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""What the kubelet's own clients allow (1.36 pkg/kubelet/apis/podresources/constants.go)."""

MAX_PATH_BYTES = 107
"""``sun_path`` is 108 bytes with its closing zero (linux/un.h)."""

RECONNECT_MS = 2000
"""The longest pause before a kept connection is tried again: a kubelet restarts in seconds."""


class PodResources:
    """The kubelet's answers on what it can give and gave, over one kept connection.

    For one thread, which asks again and again. A kubelet that restarts is found again by its
    path.
    """

    def __init__(self, socket: Path, *, timeout_s: float = 5.0) -> None:
        """Ask nothing yet."""
        self._socket = socket
        self._timeout_s = timeout_s
        self._channel: Any = None
        self._start: tuple[int, int] | None = None

    @property
    def start(self) -> tuple[int, int] | None:
        """What is another one after each start of the kubelet, as of the last question.

        It makes its socket anew (k8s.io/cri-client v0.36.3 pkg/util/util_unix.go, CreateListener),
        so inode and time of change tell. ``None`` before the first question.
        """
        return self._start

    def offer(self) -> NodeOffer:
        """Return what pods of this node can be given, given or not; unhealthy devices left out.

        Raises:
            UnreadableError: as :meth:`assigned` does.
        """
        answer = self._ask(ALLOCATABLE)
        return NodeOffer(
            devices=_placed(answer.devices),
            cpus=CpuSet.of(answer.cpu_ids),
            memory=_pieces(answer.memory),
        )

    def assigned(self) -> tuple[Pod, ...]:
        """Return the active pods of this node with what the kubelet assigned to each container.

        Pods by namespace and name, devices by resource, ids sorted: the kubelet's own order
        changes from call to call. There is no UID and no spec in this source, init containers
        that finished are left out, and a sidecar looks like any container.

        Raises:
            UnreadableError: no socket, no permission, no answer in time, or an error.
        """
        pods = map(_pod, self._ask(LIST).pod_resources)
        return tuple(sorted(pods, key=lambda pod: (pod.namespace, pod.name)))

    def held(self) -> tuple[PodHolding, ...]:
        """Return every active pod of this node with what it was given, by namespace and name.

        Raises:
            UnreadableError: as :meth:`assigned` does.
        """
        found = map(_holding, self._ask(LIST).pod_resources)
        return tuple(sorted(found, key=lambda pod: (pod.namespace, pod.name)))

    def close(self) -> None:
        """Leave the kubelet; a later question connects anew."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _ask(self, method: str) -> Any:
        found = _check(self._socket)
        self._start = (found.st_ino, found.st_ctime_ns)
        if self._channel is None:
            self._channel = _channel(self._socket)
        return _ask(self._channel, self._socket, method, self._timeout_s)


def _check(socket: Path) -> os.stat_result:
    if len(os.fsencode(socket.absolute())) > MAX_PATH_BYTES:
        raise UnreadableError(
            f"{socket} is longer than the {MAX_PATH_BYTES} bytes a unix socket's path may have",
            "mount it at a shorter --pod-resources-socket",
        )
    try:
        return socket.stat()
    except OSError as error:
        raise UnreadableError(
            f"cannot reach the kubelet's pod resources at {socket}: {error.strerror}",
            "start the kubelet, or mount its pod-resources directory here",
        ) from error


def _channel(socket: Path) -> Any:
    # gRPC costs 21 MiB and 0.1 s, which commands that read a snapshot never need.
    import grpc  # noqa: PLC0415

    options = (
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.default_authority", "localhost"),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.max_reconnect_backoff_ms", RECONNECT_MS),
    )
    return grpc.insecure_channel(f"unix://{socket.absolute()}", options=options)


def _ask(channel: Any, socket: Path, method: str, timeout_s: float) -> Any:
    import grpc  # noqa: PLC0415 - same

    from agent.probes.kubelet.pb import podresources_pb2 as pb  # noqa: PLC0415

    kinds: Mapping[str, tuple[Any, Any]] = {
        LIST: (pb.ListPodResourcesRequest, pb.ListPodResourcesResponse),
        ALLOCATABLE: (pb.AllocatableResourcesRequest, pb.AllocatableResourcesResponse),
    }
    request, response = kinds[method]
    call = channel.unary_unary(
        method,
        request_serializer=request.SerializeToString,
        response_deserializer=response.FromString,
    )
    try:
        return call(request(), timeout=timeout_s)
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
        memory=_pieces(message.memory),
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


def _holding(message: Any) -> PodHolding:
    containers = message.containers
    # Since 1.37 a pod can hold CPUs and memory as a whole, of which its containers have parts.
    memory = message.memory or [piece for one in containers for piece in one.memory]
    return PodHolding(
        namespace=message.namespace,
        name=message.name,
        devices=_placed(device for one in containers for device in one.devices),
        cpus=CpuSet.of((*message.cpu_ids, *(cpu for one in containers for cpu in one.cpu_ids))),
        memory=_pieces(memory),
    )


def _placed(messages: Iterable[Any]) -> tuple[PlacedDevice, ...]:
    """Join the kubelet's one message per device and NUMA node into one record per device."""
    nodes: dict[tuple[str, str], set[int]] = {}
    for message in messages:
        for name in message.device_ids:
            found = nodes.setdefault((message.resource_name, name), set())
            found.update(node.ID for node in message.topology.nodes)
    return tuple(
        PlacedDevice(resource=resource, id=name, numa_nodes=tuple(sorted(nodes[resource, name])))
        for resource, name in sorted(nodes)
    )


def _pieces(messages: Iterable[Any]) -> tuple[AssignedMemory, ...]:
    return tuple(sorted(map(_memory, messages), key=lambda m: (m.kind, m.numa_nodes)))
