"""The DevicePlugin service for whole GPUs: answers from memory only.

The kubelet sets no deadline on Allocate and GetPreferredAllocation and admits one pod at a
time, so a call that waited for the driver or the disk would stop the whole node
(kubernetes issues 117435, 129249, 130855).
"""

from collections.abc import Callable, Iterator, Sequence
from threading import Condition
from time import perf_counter

import grpc
from structlog.typing import FilteringBoundLogger

from agent.errors import UnreadableError
from agent.kubelet.allocation_log import AllocationLog, Asked, Explain, no_reasons
from agent.kubelet.devices import PluginDevice
from agent.kubelet.pb import deviceplugin_pb2 as pb
from agent.kubelet.pb import deviceplugin_pb2_grpc as service
from agent.kubelet.preference import complete
from agent.kubelet.response import container_response, control_nodes
from agent.kubelet.settings import NumaReport, PluginSettings

HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"
"""The kubelet takes every text but ``Healthy`` for unhealthy; this one is by convention."""

Prefer = Callable[[Sequence[str], Sequence[str], int], Sequence[str]]
"""(available ids, required ids, size) → the ids to take."""


class GpuServicer(service.DevicePluginServicer):
    """Serve one resource's devices; every method may be called from many threads at once."""

    def __init__(
        self,
        resource: str,
        prefer: Prefer,
        settings: PluginSettings,
        log: FilteringBoundLogger,
        *,
        explain: Explain = no_reasons,
    ) -> None:
        self._resource = resource
        self._prefer = prefer
        self._settings = settings
        self._log = log
        self._present_nodes = control_nodes(settings)
        self._allocations = AllocationLog(explain, log)
        self._changed = Condition()  # guards everything below
        self._devices: tuple[PluginDevice, ...] = ()
        self._generation = 0
        self._streams_open = 0
        self._streams_opened = 0
        self._is_closing = False

    @property
    def devices(self) -> tuple[PluginDevice, ...]:
        """The list as last given to :meth:`update`; empty before."""
        return self._devices

    @property
    def streams_open(self) -> int:
        """How many clients watch the list now."""
        return self._streams_open

    @property
    def streams_opened(self) -> int:
        """How many ever did."""
        return self._streams_opened

    def update(self, devices: Sequence[PluginDevice]) -> bool:
        """Replace the list; watchers learn of it only if it differs. Return whether it did.

        The kubelet writes its checkpoint for each message, so equal lists are not sent twice.
        """
        with self._changed:
            if self._devices == tuple(devices):
                return False
            self._devices = tuple(devices)
            self._generation += 1
            self._changed.notify_all()
            return True

    def close(self) -> None:
        """End all streams, every stream opened from now on, and the log of allocations."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._allocations.close()

    def GetDevicePluginOptions(  # noqa: N802 - the service's own name
        self, request: pb.Empty, context: grpc.ServicerContext
    ) -> pb.DevicePluginOptions:
        """Announce preferred allocations; nothing has to happen before a container starts."""
        del request, context
        return pb.DevicePluginOptions(get_preferred_allocation_available=True)

    def ListAndWatch(  # noqa: N802 - the service's own name
        self, request: pb.Empty, context: grpc.ServicerContext
    ) -> Iterator[pb.ListAndWatchResponse]:
        """Send the whole list, and again after each change, until either side ends."""
        del request
        with self._changed:
            if not context.add_callback(self._end_stream):
                return  # the client is gone already
            self._streams_open += 1
            self._streams_opened += 1
        yield from self._lists(context)

    def GetPreferredAllocation(  # noqa: N802 - the service's own name
        self, request: pb.PreferredAllocationRequest, context: grpc.ServicerContext
    ) -> pb.PreferredAllocationResponse:
        """Choose for each container; always a valid answer, because an error rejects the pod."""
        del context
        return pb.PreferredAllocationResponse(
            container_responses=(
                pb.ContainerPreferredAllocationResponse(deviceIDs=self._preferred(container))
                for container in request.container_requests
            )
        )

    def Allocate(  # noqa: N802 - the service's own name
        self, request: pb.AllocateRequest, context: grpc.ServicerContext
    ) -> pb.AllocateResponse:
        """Say how the containers get to see their devices; an unknown id is an error."""
        devices = self._devices
        response = pb.AllocateResponse()
        for container in request.container_requests:
            wanted = set(container.devices_ids)
            unknown = wanted.difference(device.id for device in devices)
            if unknown:
                context.abort(
                    grpc.StatusCode.INVALID_ARGUMENT,
                    f"{self._resource} has no device {', '.join(sorted(unknown))}",
                )
            chosen = [device for device in devices if device.id in wanted]
            try:
                answer = container_response(chosen, self._settings, self._present_nodes)
            except UnreadableError as error:
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
            response.container_responses.append(answer)
            self._allocations.allocated([device.id for device in chosen])
        return response

    def PreStartContainer(  # noqa: N802 - the service's own name
        self, request: pb.PreStartContainerRequest, context: grpc.ServicerContext
    ) -> pb.PreStartContainerResponse:
        """Do nothing; the options never ask for this call."""
        del request, context
        return pb.PreStartContainerResponse()

    def _end_stream(self) -> None:
        """Called by gRPC once for each stream, whichever side ended it."""
        with self._changed:
            self._streams_open -= 1
            self._changed.notify_all()

    def _lists(self, context: grpc.ServicerContext) -> Iterator[pb.ListAndWatchResponse]:
        sent = None

        def has_news() -> bool:
            return self._is_closing or not context.is_active() or self._generation != sent

        while True:
            with self._changed:
                self._changed.wait_for(has_news)
                if self._is_closing or not context.is_active():
                    return
                sent, devices = self._generation, self._devices
            yield device_list(devices, self._settings.numa)

    def _preferred(self, asked: pb.ContainerPreferredAllocationRequest) -> tuple[str, ...]:
        started = perf_counter()
        available = tuple(asked.available_deviceIDs)
        required = tuple(asked.must_include_deviceIDs)
        size = asked.allocation_size
        try:
            wish = self._prefer(available, required, size)
            chosen = complete(wish, available=available, required=required, size=size)
        except Exception:  # noqa: BLE001 - a fault in the choice must not reject the pod
            self._log.error("preferred allocation failed", exc_info=True)
            chosen = complete((), available=available, required=required, size=size)
        took_ms = round((perf_counter() - started) * 1000, 3)
        self._allocations.answered(
            Asked(available=available, required=required, size=size, took_ms=took_ms), chosen
        )
        self._log.debug("preferred allocation chosen", chosen=chosen, took_ms=took_ms)
        return chosen


def device_list(devices: Sequence[PluginDevice], numa: NumaReport) -> pb.ListAndWatchResponse:
    """Return the message that offers *devices*, in their order."""
    return pb.ListAndWatchResponse(devices=[_device(device, numa) for device in devices])


def _device(device: PluginDevice, numa: NumaReport) -> pb.Device:
    message = pb.Device(ID=device.id, health=HEALTHY if device.is_healthy else UNHEALTHY)
    if numa is NumaReport.NUMA and device.numa_nodes:
        # Node 0 is an empty submessage on the wire; repeated fields keep it.
        message.topology.nodes.extend(pb.NUMANode(ID=node) for node in device.numa_nodes)
    return message
