"""The device list of a resource, and the streams that carry it to the clients that watch it.

A kubelet writes its checkpoint for each message, so a list is sent only when it differs from the
last one, and at most once in :attr:`Deadlines.list_interval_s`: the first change at once, the
latest of many changes when the interval is over.
"""

from collections.abc import Iterator, Sequence
from threading import Condition, RLock
from time import monotonic

import grpc
from msgspec import Struct

from nodetopo.deviceplugin.devices import PluginDevice
from nodetopo.deviceplugin.pb import deviceplugin_pb2 as pb
from nodetopo.deviceplugin.settings import NumaReport

HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"
"""The kubelet takes every text but ``Healthy`` for unhealthy; this one is by convention."""


class _Watcher(Struct):
    """One stream."""

    context: grpc.ServicerContext
    serial: int  # 1 for the first stream, 2 for the second, and so on
    seen: int | None = None  # generation last compared with the sent list
    sent: tuple[PluginDevice, ...] | None = None  # None before the first list
    next_push: float = 0.0  # earliest time of the next list, by the monotonic clock


class DeviceStream:
    """Holds the list; many threads can call every method at once."""

    def __init__(self, numa: NumaReport, interval_s: float) -> None:
        self._numa = numa
        self._interval_s = interval_s
        # One lock, two conditions: a storm of changes must not wake the streams that hold back.
        lock = RLock()
        self._changed = Condition(lock)
        self._ended = Condition(lock)
        # The list last accepted by :meth:`update`; empty before.
        self.devices: tuple[PluginDevice, ...] = ()
        self._generation = 0
        self._opened = 0
        self._hung_up = 0
        self._is_closing = False

    def update(self, devices: Sequence[PluginDevice]) -> bool:
        """Replace the list; return whether it differs, so that watchers get it."""
        with self._changed:
            if self.devices == tuple(devices):
                return False
            self.devices = tuple(devices)
            self._generation += 1
            self._changed.notify_all()
            return True

    def close(self) -> None:
        """End all streams, and every stream opened from now on.

        A stream that has not sent the latest list sends it first.
        """
        with self._changed:
            self._is_closing = True
        self._wake()

    def hang_up(self) -> None:
        """End the open streams, even with unsent lists."""
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

    def _next(self, watcher: _Watcher) -> tuple[PluginDevice, ...] | None:
        """Wait for the next list to send; ``None`` at the end of the stream."""

        def is_over() -> bool:
            return self._hung_up >= watcher.serial or not watcher.context.is_active()

        def is_urgent() -> bool:
            return self._is_closing or is_over()

        with self._changed:
            while True:
                self._changed.wait_for(lambda: is_urgent() or self._generation != watcher.seen)
                self._ended.wait_for(is_urgent, max(0.0, watcher.next_push - monotonic()))
                watcher.seen = self._generation
                has_latest = watcher.sent in (None, self.devices)
                if is_over() or (self._is_closing and has_latest):
                    return None
                if watcher.sent != self.devices:
                    if watcher.sent is not None:  # the first change can follow the list at once
                        watcher.next_push = monotonic() + self._interval_s
                    watcher.sent = self.devices
                    return watcher.sent

    def _wake(self) -> None:
        """Let every stream check whether it is over; gRPC also calls this at the end of each."""
        with self._changed:
            self._changed.notify_all()
            self._ended.notify_all()


def device_list(devices: Sequence[PluginDevice], numa: NumaReport) -> pb.ListAndWatchResponse:
    """Return the message that offers *devices*, in their order."""
    response = pb.ListAndWatchResponse()
    for device in devices:
        message = response.devices.add(
            ID=device.id, health=HEALTHY if device.is_healthy else UNHEALTHY
        )
        if nodes := device.reported_nodes(numa):
            # Node 0 is an empty submessage on the wire; repeated fields keep it.
            message.topology.nodes.extend(pb.NUMANode(ID=node) for node in nodes)
    return response
