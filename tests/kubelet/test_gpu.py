"""The service over a real socket, with a raw client."""

import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from agent.allocation.rules import Model, Policy
from agent.kubelet.allocation_log import Asked, Explain, no_reasons
from agent.kubelet.devices import PluginDevice, plugin_devices
from agent.kubelet.gpu import GpuServicer, Prefer, device_list
from agent.kubelet.lifecycle import POOL_THREADS
from agent.kubelet.pb import deviceplugin_pb2 as pb
from agent.kubelet.pb import deviceplugin_pb2_grpc as service
from agent.kubelet.settings import NumaReport, PluginSettings, Strategy
from agent.machines.bundled import machine
from agent.placement import Placement
from tests.kubelet.eventually import eventually
from tests.kubelet.machines import GPUS, first

ASKED_S = 10.0


class Served:
    """A servicer, and a client's stub of it."""

    def __init__(self, servicer: GpuServicer, stub: Any) -> None:
        self.servicer = servicer
        self.stub = stub

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
) -> Iterator[Served]:
    log = structlog.get_logger()
    servicer = GpuServicer(
        "nvidia.com/gpu", prefer, settings or PluginSettings(), log, explain=explain
    )
    servicer.update(devices)
    with ExitStack() as stack:
        directory = stack.enter_context(TemporaryDirectory(prefix="nodetopo-"))
        pool = stack.enter_context(ThreadPoolExecutor(POOL_THREADS))
        server = grpc.server(pool)
        service.add_DevicePluginServicer_to_server(servicer, server)
        target = f"unix://{directory}/plugin.sock"
        server.add_insecure_port(target)
        server.start()
        stack.callback(servicer.close)
        stack.callback(lambda: server.stop(None).wait())
        channel = stack.enter_context(grpc.insecure_channel(target))
        yield Served(servicer, service.DevicePluginStub(channel))


@pytest.fixture
def served() -> Iterator[Served]:
    with serving() as it:
        yield it


@pytest.fixture(scope="module")
def shared() -> Iterator[Served]:
    with serving() as it:
        yield it


def test_the_options_announce_preferred_allocations_only(served: Served) -> None:
    expected = pb.DevicePluginOptions(get_preferred_allocation_available=True)
    assert served.stub.GetDevicePluginOptions(pb.Empty()) == expected


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


def test_the_stream_begins_with_the_whole_list(served: Served) -> None:
    assert next(served.lists()) == device_list(GPUS, NumaReport.NUMA)


def test_a_change_is_sent_as_the_whole_list(served: Served) -> None:
    lists = served.lists()
    next(lists)
    changed = (replace(GPUS[0], is_healthy=False), *GPUS[1:])
    served.servicer.update(changed)
    assert next(lists) == device_list(changed, NumaReport.NUMA)


def test_an_unchanged_list_is_not_sent_again(served: Served) -> None:
    lists = served.lists()
    next(lists)
    changes = [served.servicer.update(GPUS), served.servicer.update(GPUS[:4])]
    assert changes == [False, True]
    assert next(lists) == device_list(GPUS[:4], NumaReport.NUMA)


def test_two_streams_and_an_allocate_go_together(served: Served) -> None:
    streams = [served.lists(), served.lists()]
    assert [len(next(stream).devices) for stream in streams] == [8, 8]
    assert len(served.allocate("GPU-0").container_responses) == 1


def test_a_stream_ends_with_its_client(served: Served) -> None:
    stream: Any = served.lists()
    next(stream)
    stream.cancel()
    assert eventually(lambda: served.servicer.streams_open == 0)


def test_many_streams_in_turn_leave_the_pool_free(served: Served) -> None:
    for _ in range(3 * POOL_THREADS):
        stream: Any = served.lists()
        next(stream)
        stream.cancel()
    assert len(served.allocate("GPU-0").container_responses) == 1


def test_closing_ends_the_streams(served: Served) -> None:
    lists = served.lists()
    next(lists)
    served.servicer.close()
    assert list(lists) == []


def test_allocated_devices_are_distinct_and_in_device_order(served: Served) -> None:
    (container,) = served.allocate("GPU-5", "GPU-2", "GPU-5").container_responses
    assert [device.name for device in container.cdi_devices] == [
        "nvidia.com/gpu=GPU-2",
        "nvidia.com/gpu=GPU-5",
    ]


def test_an_unknown_device_is_an_invalid_argument(served: Served) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        served.allocate("GPU-0", "GPU-77")
    error: Any = caught.value
    assert (error.code(), error.details()) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "nvidia.com/gpu has no device GPU-77",
    )


def test_a_device_node_without_a_number_is_a_failed_precondition() -> None:
    settings = PluginSettings(strategies=(Strategy.DEVICE_SPECS,))
    with serving(settings=settings) as served:
        served.servicer.update([replace(GPUS[0], minor=None)])
        with pytest.raises(grpc.RpcError) as caught:
            served.allocate("GPU-0")
    error: Any = caught.value
    assert error.code() == grpc.StatusCode.FAILED_PRECONDITION


def test_nothing_happens_before_a_container_starts(served: Served) -> None:
    request = pb.PreStartContainerRequest(devices_ids=["GPU-0"])
    assert served.stub.PreStartContainer(request) == pb.PreStartContainerResponse()


def test_the_preferred_set_is_the_injected_choice() -> None:
    with serving(prefer=lambda available, _, size: tuple(reversed(available))[:size]) as served:
        assert served.preferred(["GPU-0", "GPU-1", "GPU-2"], [], 2) == ("GPU-2", "GPU-1")


def test_each_container_gets_its_own_preferred_set(served: Served) -> None:
    ask = pb.ContainerPreferredAllocationRequest(available_deviceIDs=["a"], allocation_size=1)
    request = pb.PreferredAllocationRequest(container_requests=[ask, ask])
    answer = served.stub.GetPreferredAllocation(request)
    assert [tuple(one.deviceIDs) for one in answer.container_responses] == [("a",), ("a",)]


def raising(available: Sequence[str], required: Sequence[str], size: int) -> Sequence[str]:
    raise ZeroDivisionError((available, required, size))


WRONG: list[Callable[..., Any]] = [
    raising,
    lambda *_: None,
    lambda *_: [],
    lambda *_: ["GPU-77", "GPU-1", "GPU-1"],
    lambda available, *_: available,
    lambda *_: [1, None, {}],
]


@pytest.mark.parametrize("prefer", WRONG)
def test_a_wrong_choice_still_gives_a_valid_answer(prefer: Prefer) -> None:
    with serving(prefer=prefer) as served:
        answer = served.preferred(["GPU-0", "GPU-1", "GPU-2", "GPU-3"], ["GPU-3"], 2)
    assert len(set(answer)) == 2
    assert "GPU-3" in answer


NAMES = st.one_of(st.sampled_from([gpu.id for gpu in GPUS]), st.text(max_size=8))


@given(
    available=st.lists(NAMES, max_size=20),
    required=st.lists(NAMES, max_size=20),
    size=st.integers(-(2**31), 2**31 - 1),
)
def test_a_preferred_allocation_for_anything_at_all_is_answered(
    shared: Served, available: list[str], required: list[str], size: int
) -> None:
    answer = shared.preferred(available, required, size)
    assert len(answer) == max(0, min(size, len(set(available))))
    assert set(answer) <= set(available)


def test_device_specs_name_nodes_found_when_the_service_was_made(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidiactl").touch()
    settings = PluginSettings(strategies=(Strategy.DEVICE_SPECS,), host_root=tmp_path)
    with serving(settings=settings) as served:
        (tmp_path / "dev/nvidiactl").unlink()
        (container,) = served.allocate("GPU-3").container_responses
    assert [spec.host_path for spec in container.devices] == ["/dev/nvidiactl", "/dev/nvidia3"]


DGX = machine("dgx-1v")
IDS = tuple(gpu.id for gpu in DGX.gpus)


@contextmanager
def placing() -> Iterator[Served]:
    """Serve a DGX-1V by our own rules."""
    placement = Placement(Policy.BEST, Model.RING)
    placement.take(DGX)
    devices = plugin_devices(DGX)
    with serving(placement.prefer, explain=placement.explain, devices=devices) as served:
        yield served


def allocations(lines: Sequence[MutableMapping[str, Any]]) -> list[MutableMapping[str, Any]]:
    return [line for line in lines if line["event"] == "devices allocated"]


def test_an_allocation_of_our_choice_is_logged_once_with_all_its_reasons() -> None:
    with capture_logs() as lines, placing() as served:
        chosen = served.preferred(IDS[:4], [], 2)
        served.allocate(*chosen)
    (line,) = allocations(lines)
    assert line.pop("took_ms") >= 0
    said = line.pop("said")
    assert line == {
        "event": "devices allocated",
        "log_level": "info",
        "chosen": [IDS[0], IDS[3]],
        "bandwidth_gb_s": 50.0,
        "model": "ring",
        "links": "2 generation-2 NVLinks between the two",
        "numa_nodes": [0],
        "hcas": ["mlx5_0", "mlx5_1"],
        "next_best": [IDS[1], IDS[2]],
        "lost_at": "order",
        "leaves": "leaves 2 GPUs together on NUMA node 0, worth 50 weighted GB/s to later jobs",
        "chosen_by": "us",
    }
    assert said == (
        "GPU0 GPU3: 50 GB/s by ring, 2 generation-2 NVLinks between the two; "
        "all on NUMA node 0; "
        "one HCA each: mlx5_0, mlx5_1, through one PCIe switch (PIX); "
        "next best GPU1 GPU2: equal in every term, the lower GPU numbers win; "
        "leaves 2 GPUs together on NUMA node 0, worth 50 weighted GB/s to later jobs"
    )


def test_an_allocation_that_the_kubelet_chose_is_logged_with_what_it_is_worth() -> None:
    with capture_logs() as lines, placing() as served:
        served.allocate(IDS[0], IDS[1])
    (line,) = allocations(lines)
    assert (line["chosen_by"], line["bandwidth_gb_s"]) == ("kubelet", 25.0)
    assert (line["next_best"], line["lost_at"], line["leaves"]) == (None, None, None)


def test_each_container_of_an_allocation_has_its_line() -> None:
    with capture_logs() as lines, placing() as served:
        requests = [{"devices_ids": [IDS[0]]}, {"devices_ids": [IDS[1]]}]
        served.stub.Allocate(pb.AllocateRequest(container_requests=requests), timeout=ASKED_S)
    assert [line["chosen"] for line in allocations(lines)] == [[IDS[0]], [IDS[1]]]


def test_no_call_waits_for_the_reasons() -> None:
    may_end = threading.Event()

    def slow(ids: Sequence[str], asked: Asked | None) -> Mapping[str, object]:
        may_end.wait(ASKED_S * 3)
        return no_reasons(ids, asked)

    with capture_logs() as lines, serving(explain=slow) as served:
        for _ in range(3):
            served.preferred(["GPU-0", "GPU-1"], [], 1)
            served.allocate("GPU-0")
        assert allocations(lines) == []
        may_end.set()
    assert [line["chosen_by"] for line in allocations(lines)] == ["us", "us", "us"]
