"""A fake kubelet for machines that have none: the device manager, without admission of pods.

It speaks the real protocol over real sockets (kubelet 1.36 pkg/kubelet/cm/devicemanager): it
removes all sockets from the directory, serves Registration, dials each plugin that registers, gets
its options and watches its devices.

Like that kubelet it uses the newest of several plugins of a resource, leaves the streams of the
others open and applies their lists too, and drops the newest when any of the streams ends. With
*keyed_by_socket* it behaves like 1.37: it drops the plugin whose stream ended, and refuses a socket
that it is connected to, whose end it never notices after that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Condition, Thread, current_thread
from time import monotonic, sleep
from types import MappingProxyType
from typing import Any, Self

import grpc
from msgspec import Struct

from nodetopo.deviceplugin import settings as defaults
from nodetopo.deviceplugin import sockets
from nodetopo.deviceplugin.devices import PluginDevice
from nodetopo.deviceplugin.pb import deviceplugin_pb2 as pb
from nodetopo.deviceplugin.pb import deviceplugin_pb2_grpc as service
from nodetopo.deviceplugin.registration import CHANNEL_OPTIONS, VERSION
from nodetopo.deviceplugin.settings import Deadlines
from nodetopo.deviceplugin.stream import HEALTHY
from nodetopo.errors import InputError, UnreadableError
from nodetopo.model.kubernetes import GPU_RESOURCE


class ResourceView(Struct, frozen=True, kw_only=True):
    """A resource as the kubelet knows it: the plugin's socket name, and the devices as listed."""

    resource: str
    endpoint: str
    devices: tuple[PluginDevice, ...]


class AllocateView(Struct, frozen=True, kw_only=True):
    """An Allocate answer for one container; *device_nodes* are (container, host, access)."""

    cdi_devices: tuple[str, ...]
    envs: Mapping[str, str]
    device_nodes: tuple[tuple[str, str, str], ...]


class FakeKubelet(service.RegistrationServicer):
    """Serve ``kubelet.sock`` in *socket_dir* until :meth:`stop`; a context manager too.

    ``None`` for *deadlines* is the default.

    Raises:
        InputError: a kubelet serves there already.
    """

    def __init__(
        self,
        socket_dir: Path,
        *,
        keyed_by_socket: bool = False,
        deadlines: Deadlines | None = None,
    ) -> None:
        self._keyed_by_socket = keyed_by_socket
        self._deadlines = deadlines or defaults.DEADLINES
        self._socket = socket_dir / sockets.KUBELET_SOCKET
        if sockets.is_listening(self._socket):
            raise InputError(f"a kubelet serves {self._socket}", "use a directory of its own")
        socket_dir.mkdir(mode=0o750, parents=True, exist_ok=True)
        sockets.remove_all_sockets(socket_dir)
        self._changed = Condition()  # guards the four below
        self._endpoints: dict[str, list[Endpoint]] = {}  # newest last; one, unless by socket
        self._devices: dict[str, tuple[PluginDevice, ...]] = {}  # as listed last
        self._streaming: set[Endpoint] = set()
        self._unnoticed: set[Path] = set()
        self._pool = ThreadPoolExecutor(4, thread_name_prefix="fake kubelet")
        self._server = grpc.server(self._pool)
        service.add_RegistrationServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix://{self._socket.absolute()}")
        self._server.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def Register(  # noqa: N802 - the service's own name
        self, request: pb.RegisterRequest, context: grpc.ServicerContext
    ) -> pb.Empty:
        """Connect to the plugin, which replaces an earlier one of its resource."""
        if request.version != VERSION:
            context.abort(grpc.StatusCode.UNKNOWN, f"version {request.version!r} is not {VERSION}")
        try:
            self.connect(request.resource_name, self._socket.parent / request.endpoint)
        except UnreadableError as error:
            context.abort(grpc.StatusCode.UNKNOWN, error.cause)
        return pb.Empty()

    def connect(self, resource: str, path: Path) -> None:
        """Connect to the plugin that serves *resource* on *path*, as the newest one.

        Raises:
            UnreadableError: it does not answer, or it is connected already.
        """
        endpoint = Endpoint(resource, path, self._received, self._ended, self._deadlines)
        endpoint.connect()
        with self._changed:
            connected = self._endpoints.get(resource, [])
            if self._keyed_by_socket and any(other.path == path for other in connected):
                self._unnoticed.add(path)
                raise UnreadableError(f"device plugin already connected: {path}")
            kept = connected if self._keyed_by_socket else []
            self._endpoints[resource] = [*kept, endpoint]
            self._streaming.add(endpoint)
            endpoint.watch()

    def wait_registered(self, timeout_s: float, resource: str = GPU_RESOURCE) -> ResourceView:
        """Return the first device list of *resource*, waiting for it if necessary."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._view(resource) is not None, timeout_s):
                raise TimeoutError(f"{resource} was not registered within {timeout_s} s")
            view = self._view(resource)
        assert view is not None
        return view

    def view(self, resource: str = GPU_RESOURCE) -> ResourceView | None:
        """Return the current view of *resource*; ``None`` unless a plugin has sent its devices."""
        with self._changed:
            return self._view(resource)

    def preferred(
        self,
        size: int,
        available: Sequence[str] | None = None,
        required: Sequence[str] = (),
        resource: str = GPU_RESOURCE,
    ) -> tuple[str, ...]:
        """Ask the plugin which *size* devices to take; *available* defaults to all healthy ones."""
        endpoint = self._endpoint(resource)
        if available is None:
            with self._changed:
                listed = self._devices.get(resource, ())
            available = [device.id for device in listed if device.is_healthy]
        container = pb.ContainerPreferredAllocationRequest(
            available_deviceIDs=available, must_include_deviceIDs=required, allocation_size=size
        )
        request = pb.PreferredAllocationRequest(container_requests=[container])
        answer = endpoint.call("GetPreferredAllocation", request)
        return tuple(answer.container_responses[0].deviceIDs)

    def allocate(self, ids: Sequence[str], resource: str = GPU_RESOURCE) -> AllocateView:
        """Ask the plugin how a container gets to see *ids*."""
        container = pb.ContainerAllocateRequest(devices_ids=ids)
        request = pb.AllocateRequest(container_requests=[container])
        answer = self._endpoint(resource).call("Allocate", request).container_responses[0]
        return AllocateView(
            cdi_devices=tuple(device.name for device in answer.cdi_devices),
            envs=MappingProxyType(dict(answer.envs)),
            device_nodes=tuple(
                (spec.container_path, spec.host_path, spec.permissions) for spec in answer.devices
            ),
        )

    def disconnect(self, resource: str = GPU_RESOURCE) -> None:
        """Drop the connection to the newest plugin, as a kubelet does that loses it."""
        self._endpoint(resource).close()

    def stop(self) -> None:
        """Stop and remove the socket; to plugins it looks as if the kubelet was killed."""
        self._server.stop(None).wait()
        self._pool.shutdown()
        with self._changed:
            streaming = tuple(self._streaming)
            self._endpoints.clear()
        for endpoint in streaming:
            endpoint.close()
        # gRPC removes the file some time later, and by name: if late, the next kubelet's.
        until = monotonic() + self._deadlines.fake_kubelet_stop_s
        while self._socket.exists() and monotonic() < until:
            sleep(0.005)

    def _received(self, endpoint: Endpoint, devices: tuple[PluginDevice, ...]) -> None:
        with self._changed:
            self._devices[endpoint.resource] = devices
            self._changed.notify_all()

    def _ended(self, endpoint: Endpoint) -> None:
        """Drop the plugins that a kubelet would drop at the end of the stream of *endpoint*."""
        with self._changed:
            self._streaming.discard(endpoint)
            if endpoint.path in self._unnoticed:
                return
            connected = self._endpoints.get(endpoint.resource, [])
            dropped = [
                other for other in connected if other is endpoint or not self._keyed_by_socket
            ]
            left = [other for other in connected if other not in dropped]
            self._endpoints[endpoint.resource] = left
            if not left:
                self._devices.pop(endpoint.resource, None)
            self._changed.notify_all()
        for other in dropped:
            other.close()

    def _view(self, resource: str) -> ResourceView | None:
        connected, devices = self._endpoints.get(resource), self._devices.get(resource)
        if not connected or devices is None:
            return None
        return ResourceView(resource=resource, endpoint=connected[-1].path.name, devices=devices)

    def _endpoint(self, resource: str) -> Endpoint:
        with self._changed:
            connected = self._endpoints.get(resource)
        if not connected:
            raise UnreadableError(f"no plugin serves {resource}", "wait until it has registered")
        return connected[-1]


Received = Callable[["Endpoint", tuple[PluginDevice, ...]], None]
Ended = Callable[["Endpoint"], None]


class Endpoint:
    """The connection to one plugin.

    *received* is called with each device list, and *ended* when the stream is over, both in a
    thread of the endpoint's own.
    """

    def __init__(
        self, resource: str, path: Path, received: Received, ended: Ended, deadlines: Deadlines
    ) -> None:
        self.resource = resource
        self.path = path
        self._received = received
        self._ended = ended
        self._deadlines = deadlines
        self._channel = grpc.insecure_channel(f"unix://{path.absolute()}", options=CHANNEL_OPTIONS)
        self._stub: Any = service.DevicePluginStub(self._channel)
        self._stream: Any = None
        self._thread = Thread(target=self._watch_devices, name=f"watch {path.name}", daemon=True)

    def connect(self) -> None:
        """Connect and read the options."""
        try:
            dial_s = self._deadlines.fake_kubelet_dial_s
            self._stub.GetDevicePluginOptions(pb.Empty(), timeout=dial_s)
        except grpc.RpcError as error:
            self._channel.close()
            raise UnreadableError(f"failed to dial device plugin: {_words(error)}") from error

    def watch(self) -> None:
        """Start to watch the device list, in the endpoint's thread."""
        self._stream = self._stub.ListAndWatch(pb.Empty())
        self._thread.start()

    def call(self, method: str, request: Any) -> Any:
        try:
            return getattr(self._stub, method)(request, timeout=self._deadlines.fake_kubelet_call_s)
        except grpc.RpcError as error:
            raise UnreadableError(f"{self.resource} {method}: {_words(error)}") from error

    def close(self) -> None:
        """Hang up and wait for the end of the watching thread, unless that is the caller."""
        self._stream.cancel()
        self._channel.close()
        if self._thread is not current_thread():
            # gRPC can leave a thread waiting whose peer ends at the moment of the cancel.
            self._thread.join(self._deadlines.fake_kubelet_stop_s)

    def _watch_devices(self) -> None:
        try:
            for message in self._stream:
                devices = tuple(
                    PluginDevice(
                        id=device.ID,
                        is_healthy=device.health == HEALTHY,
                        numa_nodes=tuple(node.ID for node in device.topology.nodes),
                    )
                    for device in message.devices
                )
                self._received(self, devices)
        except grpc.RpcError:
            pass  # every way a stream ends is one of these, our own cancel included
        self._ended(self)
        self.close()


def _words(error: Any) -> str:
    return f"{error.code().name}: {error.details()}"
