"""The kubelet's PodResources API (v1): containers' devices, and allocatable resources."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

from nodetopo.errors import UnreadableError
from nodetopo.model.dra import ClaimedDevice
from nodetopo.model.node import NodeOffer, PlacedDevice, PodHolding
from nodetopo.model.numa import CpuSet
from nodetopo.model.pod import AssignedDevices, AssignedMemory, Container, Pod
from nodetopo.probes.kubelet.gate import ADMISSIONS, AdmissionGate

LIST = "/v1.PodResourcesLister/List"
ALLOCATABLE = "/v1.PodResourcesLister/GetAllocatableResources"

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""Limit of the kubelet's own clients (1.36 pkg/kubelet/apis/podresources/constants.go)."""

MAX_PATH_BYTES = 107
"""``sun_path`` is 108 bytes with its closing zero (linux/un.h)."""

RECONNECT_MS = 2000
"""The longest pause before a kept connection is tried again: a kubelet restarts in seconds."""

_CURES = {
    "UNAVAILABLE": "see whether the kubelet runs",
    "DEADLINE_EXCEEDED": "see whether the kubelet is overloaded",
    "RESOURCE_EXHAUSTED": "try again in a second: the kubelet limits the calls per second",
    "UNIMPLEMENTED": "name the kubelet's pod-resources socket; this one serves another API",
}
"""gRPC status → cure."""

_UNANSWERED = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED")
"""gRPC statuses that do not come from a kubelet that runs."""


class PodResources:
    """The kubelet's answers over one kept connection; for one thread.

    A kubelet that restarts is found again by its path.
    """

    def __init__(
        self, socket: Path, *, timeout_s: float = 5.0, gate: AdmissionGate | None = ADMISSIONS
    ) -> None:
        """Ask nothing yet.

        Args:
            socket: the kubelet's.
            timeout_s: the longest wait for an answer, in seconds. The kubelet serves a list whose
                client hung up all the same, so *gate* takes a list as ended once it was answered.
            gate: where lists wait, for up to *timeout_s*; ``None`` within a call of the kubelet,
                where a list is safe, and is waited for however long it takes.
        """
        self._socket = socket
        self._timeout_s = timeout_s
        self._gate = gate
        self._channel: Any = None
        self._lister: Thread | None = None
        self._start: tuple[int, int] | None = None

    @property
    def start(self) -> tuple[int, int] | None:
        """An identity of the kubelet's start, as of the last question; None before the first one.

        The kubelet creates its socket at each start (k8s.io/cri-client v0.36.3
        pkg/util/util_unix.go, CreateListener), so inode and time of change differ.
        """
        return self._start

    def offer(self) -> NodeOffer:
        """Return the allocatable resources, in use or not, without unhealthy devices.

        Raises:
            UnreadableError: as :meth:`assigned` does.
        """
        answer = self._ask(ALLOCATABLE)
        return NodeOffer(
            devices=_placed(answer.devices),
            cpus=CpuSet.of(answer.cpu_ids),
            memory=_memory(answer.memory),
        )

    def assigned(self) -> tuple[Pod, ...]:
        """Return the active pods of this node with what the kubelet assigned to each container.

        A pod-level assignment includes its containers' exclusive resources; containers that share
        the rest have no CPUs and memory here (kubernetes 1.37
        pkg/kubelet/cm/container_manager_linux.go, GetCPUs).

        Pods by namespace and name, devices by resource, ids sorted: the kubelet's own order changes
        from call to call. This source has no UID and no spec, leaves out init containers that
        finished, and shows a sidecar as any container.

        Raises:
            UnreadableError: no socket, no permission, no answer in time, or an error.
        """
        pods = (
            Pod(
                namespace=pod.namespace,
                name=pod.name,
                containers=tuple(map(_container, pod.containers)),
                cpus=CpuSet.of(pod.cpu_ids) if pod.cpu_ids else None,
                memory=_memory(pod.memory) or None,
            )
            for pod in self._list()
        )
        return tuple(sorted(pods, key=lambda pod: (pod.namespace, pod.name)))

    def held(self) -> tuple[PodHolding, ...]:
        """Return every active pod of this node with its resources, by namespace and name.

        Raises:
            UnreadableError: as :meth:`assigned` does.
        """
        holdings = map(_holding, self._list())
        return tuple(sorted(holdings, key=lambda pod: (pod.namespace, pod.name)))

    def close(self) -> None:
        """Close the connection; a later question connects again."""
        channel, self._channel = self._channel, None
        # A list that is not answered yet ends its connection: closing it would hang up.
        if channel is not None and (self._lister is None or not self._lister.is_alive()):
            channel.close()

    def _list(self) -> Iterable[Any]:
        method, request = self._method(LIST)
        pods: Iterable[Any]
        if (gate := self._gate) is None:
            pods = self._answer(method, request).pod_resources
            return pods
        gate.begin(self._timeout_s, self._prove)
        answers: SimpleQueue[tuple[Any, Exception | None]] = SimpleQueue()

        def ask() -> None:
            try:
                answers.put((self._answer(method, request), None))
            except Exception as error:  # noqa: BLE001 - raised where the list was asked for
                answers.put((None, error))
            finally:
                gate.ended()

        # Not gRPC's future: it sends the list before it starts the thread that takes the answer.
        self._lister = Thread(target=ask, name="pod list", daemon=True)
        try:
            self._lister.start()
        except RuntimeError as error:
            gate.ended()
            raise UnreadableError(
                f"cannot list pods at {self._socket}: {error}",
                "raise the limit of processes (pids) of the container",
            ) from error
        try:
            answer, problem = answers.get(timeout=self._timeout_s)
        except Empty:
            details = f"no answer within {self._timeout_s:g} s"
            raise self._unreadable("DEADLINE_EXCEEDED", details) from None
        if problem is not None:
            raise problem
        pods = answer.pod_resources
        return pods

    def _prove(self) -> None:
        """Return once the kubelet has answered a question that changes nothing."""
        try:
            self._ask(ALLOCATABLE)
        except UnreadableError as error:
            code = getattr(error.__cause__, "code", None)
            if code is None or code().name in _UNANSWERED:
                raise

    def _ask(self, name: str) -> Any:
        return self._answer(*self._method(name), self._timeout_s)

    def _method(self, name: str) -> tuple[Any, Any]:
        """Return a method of the API, with its request, on the kept connection."""
        socket = self._socket
        if len(os.fsencode(socket.absolute())) > MAX_PATH_BYTES:
            raise UnreadableError(
                f"{socket} is longer than the {MAX_PATH_BYTES} bytes a unix socket's path may have",
                "mount it at a shorter --pod-resources-socket",
            )
        try:
            status = socket.stat()
        except OSError as error:
            raise UnreadableError(
                f"cannot reach the kubelet's pod resources at {socket}: {error.strerror}",
                "start the kubelet, or mount its pod-resources directory here",
            ) from error
        self._start = (status.st_ino, status.st_ctime_ns)

        # gRPC costs 21 MiB and 0.1 s, which commands that read a snapshot never need.
        import grpc  # noqa: PLC0415

        from nodetopo.probes.kubelet.pb import podresources_pb2 as pb  # noqa: PLC0415

        if self._channel is None:
            options = (
                ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
                ("grpc.default_authority", "localhost"),
                ("grpc.use_local_subchannel_pool", 1),
                ("grpc.max_reconnect_backoff_ms", RECONNECT_MS),
            )
            self._channel = grpc.insecure_channel(f"unix://{socket.absolute()}", options=options)
        messages: dict[str, tuple[Any, Any]] = {
            LIST: (pb.ListPodResourcesRequest, pb.ListPodResourcesResponse),
            ALLOCATABLE: (pb.AllocatableResourcesRequest, pb.AllocatableResourcesResponse),
        }
        request, response = messages[name]
        method = self._channel.unary_unary(
            name,
            request_serializer=request.SerializeToString,
            response_deserializer=response.FromString,
        )
        return method, request()

    def _answer(self, ask: Callable[..., Any], *arguments: Any) -> Any:
        """Return what *ask*, a call of gRPC, answers; raises UnreadableError for its errors."""
        import grpc  # noqa: PLC0415 - loaded by now

        try:
            return ask(*arguments)
        except grpc.RpcError as error:
            failure: Any = error  # grpc's types do not say that it is a call, too
            raise self._unreadable(failure.code().name, failure.details()) from error

    def _unreadable(self, code: str, details: str | None) -> UnreadableError:
        return UnreadableError(
            f"the kubelet's pod resources at {self._socket} are unreadable: {code}: {details}",
            _CURES.get(code, "see the kubelet's log"),
        )


def _container(message: Any) -> Container:
    """Return a container; the kubelet sends one message per device and NUMA node."""
    ids: dict[str, set[str]] = {}
    for device in message.devices:
        ids.setdefault(device.resource_name, set()).update(device.device_ids)
    return Container(
        name=message.name,
        devices=tuple(
            AssignedDevices(resource=resource, ids=tuple(sorted(ids[resource])))
            for resource in sorted(ids)
        ),
        cpus=CpuSet.of(message.cpu_ids),
        memory=_memory(message.memory),
        claimed=_claimed(message.dynamic_resources) or None,
    )


def _claimed(messages: Iterable[Any]) -> tuple[ClaimedDevice, ...]:
    """Return the devices of claims, by claim and driver, then as the driver listed them.

    The kubelet goes over drivers in the order of a Go map, and gives each device the CDI names of
    those before it of the same driver and claim, too (kubernetes 1.36
    pkg/kubelet/cm/container_manager_linux.go GetDynamicResources): these are taken off.
    """
    claimed = []
    for claim in messages:
        before: dict[str, tuple[str, ...]] = {}
        for device in claim.claim_resources:
            names = tuple(cdi.name for cdi in device.cdi_devices)
            earlier = before.get(device.driver_name, ())
            before[device.driver_name] = names
            claimed.append(
                ClaimedDevice(
                    driver=device.driver_name,
                    pool=device.pool_name,
                    name=device.device_name,
                    namespace=claim.claim_namespace,
                    claim=claim.claim_name,
                    cdi_devices=(
                        names[len(earlier) :] if names[: len(earlier)] == earlier else names
                    ),
                )
            )
    return tuple(sorted(claimed, key=lambda it: (it.namespace, it.claim, it.driver)))


def _holding(message: Any) -> PodHolding:
    containers = message.containers
    # Since 1.37 a pod can hold CPUs and memory as a whole, of which its containers have parts.
    memory = message.memory or [block for container in containers for block in container.memory]
    return PodHolding(
        namespace=message.namespace,
        name=message.name,
        devices=_placed(device for container in containers for device in container.devices),
        cpus=CpuSet.of(
            (*message.cpu_ids, *(cpu for container in containers for cpu in container.cpu_ids))
        ),
        memory=_memory(memory),
        claimed=tuple(
            device for container in containers for device in _claimed(container.dynamic_resources)
        ),
    )


def _placed(messages: Iterable[Any]) -> tuple[PlacedDevice, ...]:
    """Join the kubelet's one message per device and NUMA node into one record per device."""
    nodes: dict[tuple[str, str], set[int]] = {}
    for message in messages:
        for name in message.device_ids:
            numa_nodes = nodes.setdefault((message.resource_name, name), set())
            numa_nodes.update(node.ID for node in message.topology.nodes)
    return tuple(
        PlacedDevice(resource=resource, id=name, numa_nodes=tuple(sorted(nodes[resource, name])))
        for resource, name in sorted(nodes)
    )


def _memory(messages: Iterable[Any]) -> tuple[AssignedMemory, ...]:
    blocks = (
        AssignedMemory(
            kind=message.memory_type,
            size_bytes=message.size,
            numa_nodes=tuple(sorted(node.ID for node in message.topology.nodes)),
        )
        for message in messages
    )
    return tuple(sorted(blocks, key=lambda block: (block.kind, block.numa_nodes)))
