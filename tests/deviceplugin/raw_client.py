"""The service over a real socket, and a client that says just what a test wants."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import structlog

from nodetopo.deviceplugin.allocation_log import Explain, no_reasons
from nodetopo.deviceplugin.devices import PluginDevice
from nodetopo.deviceplugin.pb import deviceplugin_pb2 as pb
from nodetopo.deviceplugin.pb import deviceplugin_pb2_grpc as service
from nodetopo.deviceplugin.response import GpuAnswers
from nodetopo.deviceplugin.server import PluginServer
from nodetopo.deviceplugin.service import PluginServicer, Prefer
from nodetopo.deviceplugin.settings import Deadlines, PluginSettings
from nodetopo.model.kubernetes import GPU_RESOURCE
from tests.deviceplugin.machines import GPUS, first
from tests.generous_deadlines import GENEROUS

ASKED_S = 60.0


class Client:
    """A servicer, the server that it is on, and a client's stub of it."""

    def __init__(
        self, servicer: PluginServicer, server: PluginServer, channel: grpc.Channel
    ) -> None:
        self.servicer = servicer
        self.streams = server.streams
        self.channel = channel
        self.stub: Any = service.DevicePluginStub(channel)

    def lists(self) -> Iterator[pb.ListAndWatchResponse]:
        """Watch the device list."""
        stream: Iterator[pb.ListAndWatchResponse] = self.stub.ListAndWatch(
            pb.Empty(), timeout=ASKED_S
        )
        return stream

    def allocate(self, *ids: str) -> pb.AllocateResponse:
        """Allocate *ids* for one container."""
        request = pb.AllocateRequest(container_requests=[{"devices_ids": ids}])
        answer: pb.AllocateResponse = self.stub.Allocate(request, timeout=ASKED_S)
        return answer

    def preferred(
        self, available: Sequence[str], required: Sequence[str], size: int
    ) -> tuple[str, ...]:
        """Ask for a preferred set for one container."""
        container = pb.ContainerPreferredAllocationRequest(
            available_deviceIDs=available, must_include_deviceIDs=required, allocation_size=size
        )
        request = pb.PreferredAllocationRequest(container_requests=[container])
        answer = self.stub.GetPreferredAllocation(request, timeout=ASKED_S)
        return tuple(answer.container_responses[0].deviceIDs)


@contextmanager
def serving(
    prefer: Prefer = first,
    settings: PluginSettings | None = None,
    *,
    explain: Explain = no_reasons,
    devices: Sequence[PluginDevice] = GPUS,
    deadlines: Deadlines = GENEROUS,
) -> Iterator[Client]:
    log = structlog.get_logger()
    servicer = PluginServicer(
        GPU_RESOURCE,
        prefer,
        GpuAnswers(settings or PluginSettings()),
        log,
        deadlines,
        explain=explain,
    )
    servicer.update(devices)
    with ExitStack() as stack:
        directory = stack.enter_context(TemporaryDirectory(prefix="nodetopo-"))
        path = Path(directory) / "plugin.sock"
        server = PluginServer(servicer, path)
        stack.callback(server.stop, 0)
        stack.callback(servicer.close)
        channel = stack.enter_context(grpc.insecure_channel(f"unix://{path}"))
        yield Client(servicer, server, channel)
