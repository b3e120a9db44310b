"""Another maker's device plugin, as far as a kubelet and its neighbours see it."""

import socket
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import grpc

from nodetopo.deviceplugin.devices import PluginDevice
from nodetopo.deviceplugin.pb import deviceplugin_pb2 as pb
from nodetopo.deviceplugin.pb import deviceplugin_pb2_grpc as service
from nodetopo.deviceplugin.registration import RegistrationClient
from nodetopo.deviceplugin.settings import NumaReport
from nodetopo.deviceplugin.stream import device_list
from tests.generous_deadlines import PATIENCE_S


class OtherPlugin(service.DevicePluginServicer):
    """Serve *devices* on a socket of that name, from the construction to the end.

    Attributes:
        watched: how often somebody asked for the devices.
    """

    def __init__(self, directory: Path, name: str, devices: Sequence[PluginDevice]) -> None:
        self.path = directory / name
        self.watched = 0
        self._devices = devices
        self._over = Event()
        self._pool = ThreadPoolExecutor(8)
        self._server = grpc.server(self._pool)
        service.add_DevicePluginServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix://{self.path}")
        self._server.start()

    def register(self, resource: str) -> None:
        """Register with the kubelet in the same directory."""
        client = RegistrationClient(self.path.with_name("kubelet.sock"), PATIENCE_S)
        client.register(resource, self.path.name)

    def stop(self) -> None:
        """End as an operator would end it: no socket is left."""
        self._over.set()
        self._server.stop(None).wait()
        self._pool.shutdown()
        self.path.unlink(missing_ok=True)

    def kill(self) -> None:
        """End as SIGKILL would end it: the socket file stays, and refuses connections."""
        self.stop()
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(self.path))

    def GetDevicePluginOptions(  # noqa: N802 - the service's own name
        self, request: pb.Empty, context: grpc.ServicerContext
    ) -> pb.DevicePluginOptions:
        """Announce nothing."""
        del request, context
        return pb.DevicePluginOptions()

    def ListAndWatch(  # noqa: N802 - the service's own name
        self, request: pb.Empty, context: grpc.ServicerContext
    ) -> Iterator[pb.ListAndWatchResponse]:
        """Send the list once."""
        del request
        self.watched += 1
        context.add_callback(self._over.set)
        yield device_list(self._devices, NumaReport.NONE)
        self._over.wait()
