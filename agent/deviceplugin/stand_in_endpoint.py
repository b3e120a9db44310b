"""What a stand-in kubelet holds of one plugin: a connection and the stream of its devices."""

from collections.abc import Callable
from pathlib import Path
from threading import Thread, current_thread
from typing import Any, TypeAlias

import grpc

from agent.deviceplugin.devices import PluginDevice
from agent.deviceplugin.pb import deviceplugin_pb2 as pb
from agent.deviceplugin.pb import deviceplugin_pb2_grpc as service
from agent.deviceplugin.registration_part import CHANNEL_OPTIONS
from agent.deviceplugin.stream import HEALTHY
from agent.errors import UnreadableError

DIAL_TIMEOUT_S = 10.0
"""What a kubelet gives a plugin to answer the connection."""

CALL_TIMEOUT_S = 5.0
"""A kubelet sets none; a stand-in must not hang with whoever runs it."""

Received: TypeAlias = Callable[["Endpoint", tuple[PluginDevice, ...]], None]
Ended: TypeAlias = Callable[["Endpoint"], None]


class Endpoint:
    """The connection of a stand-in to one plugin.

    *received* is called with each device list, and *ended* when the stream is over, both in a
    thread of the endpoint's own.
    """

    def __init__(self, resource: str, path: Path, received: Received, ended: Ended) -> None:
        self.resource = resource
        self.path = path
        self._received = received
        self._ended = ended
        self._channel = grpc.insecure_channel(f"unix://{path.absolute()}", options=CHANNEL_OPTIONS)
        self._stub: Any = service.DevicePluginStub(self._channel)
        self._stream: Any = None
        self._thread = Thread(target=self._follow, name=f"watch {path.name}", daemon=True)

    def connect(self) -> None:
        """Dial and read the options.

        Raises:
            UnreadableError: no answer in time.
        """
        try:
            self._stub.GetDevicePluginOptions(pb.Empty(), timeout=DIAL_TIMEOUT_S)
        except grpc.RpcError as error:
            self._channel.close()
            raise UnreadableError(f"failed to dial device plugin: {_words(error)}") from error

    def watch(self) -> None:
        """Begin to follow the device list."""
        self._stream = self._stub.ListAndWatch(pb.Empty())
        self._thread.start()

    def call(self, method: str, request: Any) -> Any:
        """Call *method* and return its answer.

        Raises:
            UnreadableError: the plugin answered with an error.
        """
        try:
            return getattr(self._stub, method)(request, timeout=CALL_TIMEOUT_S)
        except grpc.RpcError as error:
            raise UnreadableError(f"{self.resource} {method}: {_words(error)}") from error

    def close(self) -> None:
        """Hang up and wait until the watching thread has seen it, unless that is the caller."""
        self._stream.cancel()
        if self._thread is not current_thread():
            self._thread.join()
        self._channel.close()

    def _follow(self) -> None:
        try:
            for message in self._stream:
                self._received(self, tuple(map(_device, message.devices)))
        except grpc.RpcError:
            pass  # every way a stream ends is one of these, our own cancel included
        self._ended(self)
        self.close()


def _device(message: pb.Device) -> PluginDevice:
    return PluginDevice(
        id=message.ID,
        is_healthy=message.health == HEALTHY,
        numa_nodes=tuple(node.ID for node in message.topology.nodes),
    )


def _words(error: Any) -> str:
    return f"{error.code().name}: {error.details()}"
