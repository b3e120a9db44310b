"""The device list on the wire and its streams, with a raw client."""

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Condition, Thread
from time import monotonic
from typing import Any

import grpc
import pytest
from msgspec.structs import replace

from nodetopo.deviceplugin.devices import PluginDevice
from nodetopo.deviceplugin.pb import deviceplugin_pb2 as pb
from nodetopo.deviceplugin.server import POOL_THREADS
from nodetopo.deviceplugin.settings import NumaReport
from nodetopo.deviceplugin.stream import device_list
from tests.deviceplugin.eventually import eventually
from tests.deviceplugin.machines import GPUS
from tests.deviceplugin.raw_client import Client, serving
from tests.generous_deadlines import GENEROUS


@pytest.fixture
def served() -> Iterator[Client]:
    with serving() as it:
        yield it


@pytest.fixture
def held_back() -> Iterator[Client]:
    """A service whose streams send one change, and then none for an hour."""
    with serving(deadlines=replace(GENEROUS, list_interval_s=3600.0)) as it:
        yield it


def test_numa_node_zero_is_present_on_the_wire() -> None:
    # Tags by hand: devices=1 {ID=1 "GPU-0", health=2 "Healthy", topology=3 {nodes=1 {}}}.
    device = b"\x0a\x05GPU-0" + b"\x12\x07Healthy" + b"\x1a\x02\x0a\x00"
    expected = b"\x0a" + bytes([len(device)]) + device
    assert device_list(GPUS[:1], NumaReport.NUMA).SerializeToString() == expected


def test_a_device_near_two_nodes_lists_both() -> None:
    anywhere = replace(GPUS[0], numa_nodes=(0, 1))
    (device,) = device_list([anywhere], NumaReport.NUMA).devices
    assert [node.ID for node in device.topology.nodes] == [0, 1]


def test_without_nodes_there_is_no_topology() -> None:
    (device,) = device_list([replace(GPUS[0], numa_nodes=())], NumaReport.NUMA).devices
    assert not device.HasField("topology")


def test_the_option_none_leaves_topology_out() -> None:
    devices = device_list(GPUS, NumaReport.NONE).devices
    assert [device.HasField("topology") for device in devices] == [False] * 8


def test_the_stream_begins_with_the_whole_list(served: Client) -> None:
    assert next(served.lists()) == device_list(GPUS, NumaReport.NUMA)


def test_a_change_is_sent_as_the_whole_list(served: Client) -> None:
    lists = served.lists()
    next(lists)
    changed = (replace(GPUS[0], is_healthy=False), *GPUS[1:])
    served.servicer.update(changed)
    assert next(lists) == device_list(changed, NumaReport.NUMA)


def test_an_unchanged_list_is_not_sent_again(served: Client) -> None:
    lists = served.lists()
    next(lists)
    changes = [served.servicer.update(GPUS), served.servicer.update(GPUS[:4])]
    assert changes == [False, True]
    assert next(lists) == device_list(GPUS[:4], NumaReport.NUMA)


def test_two_streams_and_an_allocate_go_together(served: Client) -> None:
    streams = [served.lists(), served.lists()]
    assert [len(next(stream).devices) for stream in streams] == [8, 8]
    assert len(served.allocate("GPU-0").container_responses) == 1


def test_a_stream_ends_with_its_client(served: Client) -> None:
    stream: Any = served.lists()
    next(stream)
    stream.cancel()
    assert eventually(lambda: served.streams.open == 0)


def test_many_streams_in_turn_leave_the_pool_free(served: Client) -> None:
    for _ in range(3 * POOL_THREADS):
        stream: Any = served.lists()
        next(stream)
        stream.cancel()
    assert len(served.allocate("GPU-0").container_responses) == 1


def test_closing_ends_the_streams(served: Client) -> None:
    lists = served.lists()
    next(lists)
    served.servicer.close()
    assert list(lists) == []


def test_a_list_that_was_not_sent_yet_is_sent_before_the_streams_end(served: Client) -> None:
    lists = served.lists()
    next(lists)
    served.servicer.update(())
    served.servicer.close()
    assert list(lists) == [pb.ListAndWatchResponse()]


def test_a_stream_that_opens_after_the_end_gets_no_devices(served: Client) -> None:
    served.servicer.close()
    assert list(served.lists()) == []


def sick(*numbers: int) -> tuple[PluginDevice, ...]:
    """Return the GPUs with those unhealthy."""
    return tuple(replace(gpu, is_healthy=gpu.minor not in numbers) for gpu in GPUS)


def received(lists: Iterator[pb.ListAndWatchResponse]) -> list[pb.ListAndWatchResponse]:
    """Collect what a stream brings, in a thread of its own."""
    messages: list[pb.ListAndWatchResponse] = []

    def collect() -> None:
        with suppress(grpc.RpcError):
            messages.extend(lists)  # each as it comes: a list grows as its iterator goes

    Thread(target=collect, daemon=True).start()
    return messages


def test_health_goes_to_zero_and_back(served: Client) -> None:
    lists = served.lists()
    healths = []
    for change in (GPUS, sick(*range(8)), GPUS):
        served.servicer.update(change)
        healths.append({device.health for device in next(lists).devices})
    assert healths == [{"Healthy"}, {"Unhealthy"}, {"Healthy"}]


def test_the_first_change_is_sent_at_once_and_the_next_later(
    held_back: Client,
) -> None:
    messages = received(held_back.lists())
    assert eventually(lambda: len(messages) == 1)
    held_back.servicer.update(sick(0))
    assert eventually(lambda: len(messages) == 2)
    held_back.servicer.update(sick(0, 1))
    assert not eventually(lambda: len(messages) > 2, timeout_s=0.3)


def test_a_change_that_is_held_back_is_sent_before_the_stream_ends(held_back: Client) -> None:
    lists = held_back.lists()
    next(lists)
    held_back.servicer.update(sick(0))
    next(lists)
    held_back.servicer.update(())
    held_back.servicer.close()
    assert list(lists) == [pb.ListAndWatchResponse()]


def test_a_stream_that_holds_back_ends_with_its_client(held_back: Client) -> None:
    stream: Any = held_back.lists()
    next(stream)
    held_back.servicer.update(sick(0))
    next(stream)
    held_back.servicer.update(sick(1))
    stream.cancel()
    assert eventually(lambda: held_back.streams.open == 0)


def test_a_storm_of_changes_is_a_list_a_second_and_ends_with_the_last(served: Client) -> None:
    messages = received(served.lists())
    assert eventually(lambda: len(messages) == 1)
    started = monotonic()
    changes = [sick(number) for number in range(8)]
    for number in range(10_000):
        served.servicer.update(changes[number % 8])
    served.servicer.update(sick(3))
    assert len(served.allocate("GPU-0").container_responses) == 1
    last = device_list(sick(3), NumaReport.NUMA)
    assert eventually(lambda: messages[-1] == last)
    assert len(messages) <= 2 + (monotonic() - started) / GENEROUS.list_interval_s


class Gate(Condition):
    """What a stream that holds back waits at: a test opens it, in place of time."""

    def __init__(self, lock: Any) -> None:
        super().__init__(lock)
        self.is_reached = self.is_open = False

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        """Wait, unless there is nothing to wait for."""
        self.is_reached = self.is_reached or bool(timeout)
        return super().wait_for(lambda: self.is_open or predicate(), timeout)

    def open(self) -> None:
        """Let the stream pass, now and from now on."""
        with self:
            self.is_open = True
            self.notify_all()


def test_a_change_that_was_taken_back_meanwhile_is_not_sent(held_back: Client) -> None:
    stream = held_back.servicer._stream
    stream._ended = gate = Gate(stream._changed._lock)  # type: ignore[attr-defined]
    messages = received(held_back.lists())
    for number, change in enumerate((GPUS, sick(0)), start=1):
        held_back.servicer.update(change)
        assert eventually(lambda seen=number: len(messages) == seen)  # type: ignore[misc]
    held_back.servicer.update(sick(1))
    assert eventually(lambda: gate.is_reached)
    held_back.servicer.update(sick(0))
    gate.open()
    assert not eventually(lambda: len(messages) > 2, timeout_s=0.3)
    held_back.servicer.update(sick(2))
    assert eventually(lambda: len(messages) == 3)
    assert messages[-1] == device_list(sick(2), NumaReport.NUMA)


def test_a_storm_leaves_no_memory_behind(served: Client) -> None:
    messages = received(served.lists())
    assert eventually(lambda: len(messages) == 1)

    changes = [sick(number) for number in range(8)]

    def storm() -> int:
        for number in range(2_000):
            served.servicer.update(changes[number % 8])
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before, after = storm(), storm()
    finally:
        tracemalloc.stop()
    assert after - before < 100_000  # bytes; a list kept for each change would be 2 million


def test_hanging_up_ends_the_streams_of_that_moment_only(served: Client) -> None:
    before = served.lists()
    next(before)
    served.servicer.hang_up()
    assert list(before) == []
    assert len(next(served.lists()).devices) == 8


def test_the_option_socket_reports_all_nodes_of_the_socket() -> None:
    near = replace(GPUS[0], numa_nodes=(0,), socket_nodes=(0, 1))
    alone = replace(GPUS[1], numa_nodes=(2,))
    nodes = [
        [node.ID for node in device.topology.nodes]
        for device in device_list((near, alone), NumaReport.SOCKET).devices
    ]
    assert nodes == [[0, 1], [2]]
