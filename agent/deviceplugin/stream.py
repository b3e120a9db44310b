"""The device list of a resource, and the streams that carry it to whoever watches.

A kubelet writes its checkpoint for each message, so a list goes out when it differs from the
last one, and at most once in :data:`PUSH_INTERVAL_S`: the first change at once, the latest
of a storm when the interval is over.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import Condition, RLock
from time import monotonic

import grpc

from agent.deviceplugin.devices import PluginDevice
from agent.deviceplugin.pb import deviceplugin_pb2 as pb
from agent.deviceplugin.settings import NumaReport

HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"
"""The kubelet takes every text but ``Healthy`` for unhealthy; this one is by convention."""

PUSH_INTERVAL_S = 1.0
"""Between two changes on one stream: a choice. The kubelet has a failed GPU within that time."""

MOST_BYTES = 3 << 20
"""Of one list. A kubelet takes messages of 4 MiB (gRPC's default; kubernetes issue 109304), and
drops a plugin that sends more."""

DEVICE_BYTES = 32
NODE_BYTES = 5
"""What a device without its id, and a NUMA node, take of a message at most (protobuf's wire
form; node numbers below 16384)."""


class DeviceStream:
    """Hold the list; every method may be called from many threads at once."""

    def __init__(self, numa: NumaReport) -> None:
        self._numa = numa
        # One lock, two conditions: a storm of changes must not wake the streams that hold back.
        lock = RLock()
        self._changed = Condition(lock)
        self._ended = Condition(lock)
        self._devices: tuple[PluginDevice, ...] = ()
        self._generation = 0
        self._opened = 0
        self._hung_up = 0
        self._is_closing = False
        self.refusal: str | None = None

    @property
    def devices(self) -> tuple[PluginDevice, ...]:
        """The list as last taken by :meth:`update`; empty before."""
        return self._devices

    def update(self, devices: Sequence[PluginDevice]) -> bool:
        """Replace the list; return whether watchers learn of it, because it differs.

        One that no kubelet would take is refused: the last one stays, and :attr:`refusal`
        says so until a list is taken again.
        """
        with self._changed:
            if self._devices == tuple(devices):
                self.refusal = None
                return False
            self.refusal = _refusal(devices, self._numa)
            if self.refusal is not None:
                return False
            self._devices = tuple(devices)
            self._generation += 1
            self._changed.notify_all()
            return True

    def close(self) -> None:
        """End all streams, and every stream opened from now on.

        One that has not sent the latest list sends it first.
        """
        with self._changed:
            self._is_closing = True
        self._wake()

    def hang_up(self) -> None:
        """End the streams that are open now, whatever they have not sent."""
        with self._changed:
            self._hung_up = self._opened
        self._wake()

    def lists(self, context: grpc.ServicerContext) -> Iterator[pb.ListAndWatchResponse]:
        """Yield the whole list, and again after changes, until either side ends."""
        with self._changed:
            if not context.add_callback(self._wake):
                return  # the client is gone already
            self._opened += 1
            watcher = _Watcher(context, self._opened)
        while (devices := self._next(watcher)) is not None:
            yield device_list(devices, self._numa)

    def _next(self, watcher: "_Watcher") -> tuple[PluginDevice, ...] | None:
        """Wait for what is to be sent next; ``None`` if nothing more is."""

        def is_urgent() -> bool:
            return self._is_closing or self._is_over(watcher)

        with self._changed:
            while True:
                self._changed.wait_for(lambda: is_urgent() or self._generation != watcher.seen)
                self._ended.wait_for(is_urgent, max(0.0, watcher.next_push - monotonic()))
                watcher.seen = self._generation
                has_all = watcher.sent in (None, self._devices)
                if self._is_over(watcher) or (self._is_closing and has_all):
                    return None
                if watcher.sent != self._devices:
                    return watcher.send(self._devices)

    def _is_over(self, watcher: "_Watcher") -> bool:
        return self._hung_up >= watcher.serial or not watcher.context.is_active()

    def _wake(self) -> None:
        """Called by gRPC too, once for each stream, whichever side ended it."""
        with self._changed:
            self._changed.notify_all()
            self._ended.notify_all()


@dataclass(slots=True)
class _Watcher:
    """One stream.

    Attributes:
        seen: the generation that was compared last with what the stream carried.
        sent: the list that it carried last; ``None`` before the first.
        next_push: when it may carry another, by the monotonic clock.
    """

    context: grpc.ServicerContext
    serial: int
    seen: int | None = None
    sent: tuple[PluginDevice, ...] | None = None
    next_push: float = 0.0

    def send(self, devices: tuple[PluginDevice, ...]) -> tuple[PluginDevice, ...]:
        """Return *devices*, as sent now; the first list leaves the next one its way at once."""
        if self.sent is not None:
            self.next_push = monotonic() + PUSH_INTERVAL_S
        self.sent = devices
        return devices


def device_list(devices: Sequence[PluginDevice], numa: NumaReport) -> pb.ListAndWatchResponse:
    """Return the message that offers *devices*, in their order."""
    return pb.ListAndWatchResponse(devices=[_device(device, numa) for device in devices])


def _device(device: PluginDevice, numa: NumaReport) -> pb.Device:
    message = pb.Device(ID=device.id, health=HEALTHY if device.is_healthy else UNHEALTHY)
    if nodes := device.reported_nodes(numa):
        # Node 0 is an empty submessage on the wire; repeated fields keep it.
        message.topology.nodes.extend(pb.NUMANode(ID=node) for node in nodes)
    return message


def _refusal(devices: Sequence[PluginDevice], numa: NumaReport) -> str | None:
    nodes = sum(len(device.reported_nodes(numa)) for device in devices)
    names = sum(len(device.id.encode()) for device in devices)
    size = names + len(devices) * DEVICE_BYTES + nodes * NODE_BYTES
    if size <= MOST_BYTES:
        return None
    return (
        f"a list of {len(devices)} devices takes {size} bytes, and a kubelet takes {MOST_BYTES}: "
        "lower the number of replicas, or report no NUMA nodes"
    )
