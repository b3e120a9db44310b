"""The plugin at work, against a fake kubelet on real sockets."""

import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from threading import Thread
from time import monotonic

import grpc
import pytest
from msgspec.structs import replace

from nodetopo.deviceplugin.fake_kubelet import AllocateView, FakeKubelet, ResourceView
from nodetopo.deviceplugin.pb import deviceplugin_pb2 as pb
from nodetopo.deviceplugin.pb import deviceplugin_pb2_grpc as service
from nodetopo.deviceplugin.plugin import POLL_S, DevicePlugin, PluginState
from nodetopo.deviceplugin.settings import PluginSettings, Strategy
from nodetopo.errors import InputError, UnreadableError
from tests.deviceplugin.conftest import RESOURCE
from tests.deviceplugin.eventually import eventually
from tests.deviceplugin.machines import ANSWERS, GPUS, as_listed, first

StartKubelet = Callable[[], FakeKubelet]
StartPlugin = Callable[..., DevicePlugin]
WAIT_S = 60.0


def own_sockets(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("nodetopo-*"))


def is_watched(plugin: DevicePlugin) -> bool:
    return plugin.state.is_registered and plugin.state.stream_count == 1


def test_the_kubelet_learns_the_resource_its_endpoint_and_its_devices(
    start_kubelet: StartKubelet, start_plugin: StartPlugin, socket_dir: Path
) -> None:
    kubelet, _ = start_kubelet(), start_plugin()
    view = kubelet.wait_registered(WAIT_S)
    (endpoint,) = own_sockets(socket_dir)
    assert view == ResourceView(resource=RESOURCE, endpoint=endpoint, devices=as_listed(GPUS))


def test_the_times_without_a_kubelet_are_remembered(
    start_kubelet: StartKubelet, start_plugin: StartPlugin
) -> None:
    before = monotonic()
    plugin = start_plugin()
    (first_absence,) = plugin.absences
    assert before <= first_absence.since_s <= monotonic()
    assert first_absence.until_s is None
    kubelet = start_kubelet()
    assert eventually(lambda: plugin.absences[0].until_s is not None)
    kubelet.stop()
    assert eventually(lambda: len(plugin.absences) == 2)
    known, lost = plugin.absences
    assert known.until_s is not None
    assert lost.since_s >= known.until_s >= known.since_s
    assert lost.until_s is None
    start_kubelet()
    assert eventually(lambda: plugin.absences[1].until_s is not None)


def test_the_state_tells_where_the_plugin_stands(
    start_kubelet: StartKubelet, start_plugin: StartPlugin
) -> None:
    kubelet, plugin = start_kubelet(), start_plugin()
    endpoint = kubelet.wait_registered(WAIT_S).endpoint
    assert eventually(lambda: is_watched(plugin))
    for devices in (["GPU-0"], ["GPU-1", "GPU-2"]):
        kubelet.allocate(devices)
    assert plugin.state == PluginState(
        is_running=True,
        is_registered=True,
        is_detached=False,
        registrations=1,
        endpoint=endpoint,
        stream_count=1,
        devices=8,
        allocations=2,
        last_problem=None,
        conflict=None,
    )


def test_the_kubelet_sees_a_change_of_health(
    start_kubelet: StartKubelet, start_plugin: StartPlugin
) -> None:
    kubelet, plugin = start_kubelet(), start_plugin()
    kubelet.wait_registered(WAIT_S)
    sick = (replace(GPUS[0], is_healthy=False), *GPUS[1:])
    plugin.update(sick)
    assert eventually(lambda: kubelet.wait_registered(WAIT_S).devices == as_listed(sick))


def test_a_plugin_without_devices_waits_for_them_before_it_registers(
    start_kubelet: StartKubelet, start_plugin: StartPlugin, socket_dir: Path
) -> None:
    kubelet, plugin = start_kubelet(), start_plugin(devices=())
    assert eventually(lambda: len(own_sockets(socket_dir)) == 1)
    assert not eventually(lambda: plugin.state.registrations > 0, timeout_s=10 * POLL_S)
    plugin.update(GPUS)
    assert kubelet.wait_registered(WAIT_S).devices == as_listed(GPUS)


def test_a_preferred_set_comes_through_the_kubelet(
    start_kubelet: StartKubelet, start_plugin: StartPlugin
) -> None:
    kubelet, _ = start_kubelet(), start_plugin()
    kubelet.wait_registered(WAIT_S)
    chosen = kubelet.preferred(2, available=("GPU-3", "GPU-4", "GPU-5"), required=("GPU-5",))
    assert chosen == ("GPU-5", "GPU-3")


def test_an_allocation_comes_through_the_kubelet(
    start_kubelet: StartKubelet, start_plugin: StartPlugin
) -> None:
    strategies = (Strategy.CDI_CRI, Strategy.ENVVAR, Strategy.DEVICE_SPECS)
    settings = PluginSettings(strategies=strategies, host_root=Path("/nonexistent"))
    kubelet, _ = start_kubelet(), start_plugin(settings=settings)
    kubelet.wait_registered(WAIT_S)
    assert kubelet.allocate(["GPU-6", "GPU-1"]) == AllocateView(
        cdi_devices=("nvidia.com/gpu=GPU-1", "nvidia.com/gpu=GPU-6"),
        envs={"NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-6"},
        device_nodes=(
            ("/dev/nvidia1", "/dev/nvidia1", "rw"),
            ("/dev/nvidia6", "/dev/nvidia6", "rw"),
        ),
    )


def test_a_plugin_that_retires_takes_its_devices_back_before_it_hangs_up(
    start_kubelet: StartKubelet,
    start_plugin: StartPlugin,
    dial: Callable[[str], grpc.Channel],
    socket_dir: Path,
) -> None:
    kubelet, plugin = start_kubelet(), start_plugin()
    endpoint = kubelet.wait_registered(WAIT_S).endpoint
    lists = service.DevicePluginStub(dial(endpoint)).ListAndWatch(pb.Empty())
    assert len(next(lists).devices) == 8
    plugin.retire()
    assert [len(message.devices) for message in lists] == [0]
    assert own_sockets(socket_dir) == []


def test_a_clean_stop_leaves_no_socket_and_no_stream(
    start_kubelet: StartKubelet, start_plugin: StartPlugin, socket_dir: Path
) -> None:
    kubelet, plugin = start_kubelet(), start_plugin()
    kubelet.wait_registered(WAIT_S)
    assert eventually(lambda: plugin.state.is_registered)  # the kubelet's answer has come back
    plugin.stop()
    assert own_sockets(socket_dir) == []
    assert plugin.state == PluginState(
        is_running=False,
        is_registered=False,
        is_detached=False,
        registrations=1,
        endpoint=None,
        stream_count=0,
        devices=8,
        allocations=0,
        last_problem=None,
        conflict=None,
    )


def test_a_plugin_can_be_stopped_while_the_kubelet_does_not_answer(
    start_plugin: StartPlugin, socket_dir: Path
) -> None:
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(socket_dir / "kubelet.sock"))
        mute.listen()
        plugin = start_plugin()
        mute.settimeout(WAIT_S)
        connection, _ = mute.accept()
        stopping = Thread(target=plugin.stop)
        with connection:
            stopping.start()
            stopping.join(WAIT_S / 2)
            is_stopped = not plugin.state.is_running
    stopping.join()
    assert is_stopped


def test_a_plugin_that_never_started_can_be_stopped(socket_dir: Path) -> None:
    plugin = DevicePlugin(RESOURCE, socket_dir, first, ANSWERS)
    plugin.stop()
    assert not plugin.state.is_running


def test_a_directory_too_long_for_a_socket_is_refused_at_the_start() -> None:
    with pytest.raises(InputError, match="a unix socket may have 107"):
        DevicePlugin(RESOURCE, Path("/" + "x" * 100), first, ANSWERS).start()


def test_a_second_client_may_watch_beside_the_kubelet(
    start_kubelet: StartKubelet, start_plugin: StartPlugin, dial: Callable[[str], grpc.Channel]
) -> None:
    kubelet, plugin = start_kubelet(), start_plugin()
    stub = service.DevicePluginStub(dial(kubelet.wait_registered(WAIT_S).endpoint))
    stream = stub.ListAndWatch(pb.Empty(), timeout=WAIT_S)
    assert len(next(stream).devices) == 8
    assert len(kubelet.allocate(["GPU-0"]).cdi_devices) == 1
    stream.cancel()
    assert eventually(lambda: plugin.state.stream_count == 1)


def test_an_unknown_device_is_refused_through_the_kubelet(
    start_kubelet: StartKubelet, start_plugin: StartPlugin
) -> None:
    kubelet, _ = start_kubelet(), start_plugin()
    kubelet.wait_registered(WAIT_S)
    with pytest.raises(UnreadableError, match=r"INVALID_ARGUMENT: nvidia.com/gpu has no device"):
        kubelet.allocate(["GPU-0", "GPU-77"])


def test_two_kubelets_do_not_share_a_directory(
    start_kubelet: StartKubelet, opened: ExitStack, socket_dir: Path
) -> None:
    start_kubelet()
    with pytest.raises(InputError, match="a kubelet serves"):
        opened.enter_context(FakeKubelet(socket_dir))
