"""Registration by ``plugins_registry``, under kubelets up to 1.36 and since 1.37."""

import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import pytest
import structlog

from nodetopo.deviceplugin.fake_kubelet import FakeKubelet
from nodetopo.deviceplugin.pb import pluginregistration_pb2 as pb
from nodetopo.deviceplugin.pb import pluginregistration_pb2_grpc as service
from nodetopo.deviceplugin.plugin import DevicePlugin
from nodetopo.deviceplugin.plugin_watcher import PluginWatcherRegistrar
from nodetopo.deviceplugin.registration import Registration
from nodetopo.deviceplugin.service import PluginServicer
from nodetopo.errors import InputError
from tests.deviceplugin.conftest import RESOURCE
from tests.deviceplugin.eventually import eventually
from tests.deviceplugin.machines import ANSWERS, GPUS, as_listed, first
from tests.deviceplugin.other_plugin import OtherPlugin
from tests.deviceplugin.registry_watch import RegistryWatch
from tests.generous_deadlines import GENEROUS

StartKubelet = Callable[..., FakeKubelet]
StartPlugin = Callable[..., DevicePlugin]
Watch = Callable[..., RegistryWatch]
WAIT_S = 60.0
QUIET_S = 0.6

KUBELETS = pytest.mark.parametrize("keyed_by_socket", [False, True], ids=["1.36", "1.37"])
INFO = pb.PluginInfo(type="DevicePlugin", name=RESOURCE, supported_versions=["v1beta1"])


@pytest.fixture
def registry(opened: ExitStack) -> Path:
    """A directory that stays until what was opened in it after is closed."""
    return Path(opened.enter_context(TemporaryDirectory(prefix="nodetopo-")))


@pytest.fixture
def watch(registry: Path, opened: ExitStack) -> Watch:
    def start(kubelet: FakeKubelet, **options: str) -> RegistryWatch:
        found = RegistryWatch(kubelet, registry, **options)
        opened.callback(found.stop)
        return found

    return start


@pytest.fixture
def start_watched(start_plugin: StartPlugin, registry: Path) -> StartPlugin:
    def start(registration: Registration = Registration.WATCHER, **options: Any) -> DevicePlugin:
        return start_plugin(registration=registration, plugins_registry=registry, **options)

    return start


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def is_watched(plugin: DevicePlugin) -> bool:
    return plugin.state.is_registered and plugin.state.stream_count == 1


def test_the_kubelet_finds_the_socket_and_learns_the_devices(
    start_kubelet: StartKubelet, start_watched: StartPlugin, watch: Watch, registry: Path
) -> None:
    kubelet = start_kubelet()
    watched, plugin = watch(kubelet), start_watched()
    view = kubelet.wait_registered(WAIT_S)
    assert view.devices == as_listed(GPUS)
    assert eventually(lambda: names(registry) == [view.endpoint] == [plugin.state.endpoint])
    assert watched.infos == [INFO]
    assert eventually(lambda: is_watched(plugin))
    assert plugin.state.registrations == 1


def test_an_allocation_comes_through_the_registry_socket(
    start_kubelet: StartKubelet, start_watched: StartPlugin, watch: Watch
) -> None:
    kubelet = start_kubelet()
    watch(kubelet)
    start_watched()
    kubelet.wait_registered(WAIT_S)
    assert kubelet.allocate(["GPU-1"]).cdi_devices == ("nvidia.com/gpu=GPU-1",)


def test_a_socket_without_devices_is_hidden_from_the_kubelet(
    start_watched: StartPlugin, registry: Path
) -> None:
    plugin = start_watched(devices=())
    assert eventually(lambda: plugin.state.endpoint is not None)
    assert not eventually(lambda: bool(list(registry.glob("nodetopo-*"))), timeout_s=QUIET_S)
    plugin.update(GPUS)
    assert eventually(lambda: bool(list(registry.glob("nodetopo-*"))))


@KUBELETS
def test_a_kubelet_that_only_hangs_up_asks_again(
    start_kubelet: StartKubelet, start_watched: StartPlugin, watch: Watch, keyed_by_socket: bool
) -> None:
    kubelet = start_kubelet(keyed_by_socket=keyed_by_socket)
    watch(kubelet)
    plugin = start_watched()
    assert eventually(lambda: is_watched(plugin))
    kubelet.disconnect()
    assert eventually(lambda: plugin.state.registrations == 2 and is_watched(plugin))
    assert kubelet.wait_registered(WAIT_S).devices == as_listed(GPUS)


@KUBELETS
def test_a_kubelet_that_restarts_finds_the_socket_again(
    start_kubelet: StartKubelet, start_watched: StartPlugin, watch: Watch, keyed_by_socket: bool
) -> None:
    kubelet = start_kubelet(keyed_by_socket=keyed_by_socket)
    watched, plugin = watch(kubelet), start_watched()
    assert eventually(lambda: is_watched(plugin))
    endpoint = plugin.state.endpoint
    watched.stop()
    kubelet.stop()
    assert eventually(lambda: not plugin.state.is_registered)
    after = start_kubelet(keyed_by_socket=keyed_by_socket)
    watch(after)
    assert after.wait_registered(WAIT_S).endpoint == endpoint
    assert eventually(lambda: plugin.state.registrations >= 2 and is_watched(plugin))


def test_the_kubelets_reason_for_a_refusal_is_reported(
    start_kubelet: StartKubelet, start_watched: StartPlugin, watch: Watch
) -> None:
    watch(start_kubelet(), refusal="plugin validation failed")
    plugin = start_watched()
    assert eventually(lambda: plugin.state.last_problem is not None)
    assert plugin.state.last_problem == (
        "the kubelet refused nvidia.com/gpu: plugin validation failed"
    )
    assert not plugin.state.is_registered


def test_a_registry_socket_that_vanishes_is_replaced(
    start_kubelet: StartKubelet, start_watched: StartPlugin, watch: Watch, registry: Path
) -> None:
    kubelet = start_kubelet()
    watch(kubelet)
    plugin = start_watched()
    before = kubelet.wait_registered(WAIT_S).endpoint
    (registry / before).unlink()
    assert eventually(lambda: plugin.state.endpoint not in (None, before))
    assert eventually(lambda: is_watched(plugin))
    assert kubelet.wait_registered(WAIT_S).endpoint == plugin.state.endpoint


def test_a_registry_socket_that_vanishes_while_it_is_shown_is_replaced(
    registry: Path, opened: ExitStack
) -> None:
    log = structlog.get_logger()
    servicer = PluginServicer(RESOURCE, first, ANSWERS, log, GENEROUS)
    registrar = PluginWatcherRegistrar(
        RESOURCE, registry, servicer, log, GENEROUS, instance="1-abcde"
    )
    opened.callback(registrar.stop)
    registrar.check_socket(0.0)
    (hidden,) = registry.iterdir()
    hidden.unlink()
    assert registrar.register(0.0)
    assert registrar.last_problem is not None
    assert "No such file" in registrar.last_problem
    registrar.check_socket(60.0)
    assert registrar.register(60.0)
    assert names(registry) == [registrar.endpoint]


def test_a_kubelet_that_is_back_before_the_streams_are_looked_at_counts(
    registry: Path, opened: ExitStack
) -> None:
    log = structlog.get_logger()
    servicer = PluginServicer(RESOURCE, first, ANSWERS, log, GENEROUS)
    registrar = PluginWatcherRegistrar(
        RESOURCE, registry, servicer, log, GENEROUS, instance="1-abcde"
    )
    opened.callback(registrar.stop)
    registrar.check_socket(0.0)
    registrar.register(0.0)
    (shown,) = registry.iterdir()
    for kubelet in (1, 2):
        with grpc.insecure_channel(f"unix://{shown}") as channel:
            stub: Any = service.RegistrationStub(channel)
            stub.NotifyRegistrationStatus(pb.RegistrationStatus(plugin_registered=True))
        assert not registrar.check_streams(0.0)
        assert registrar.registrations == kubelet
    assert registrar.is_registered


def test_a_registry_that_is_missing_at_first_is_waited_for(
    start_kubelet: StartKubelet, start_watched: StartPlugin, watch: Watch, registry: Path
) -> None:
    registry.rmdir()
    start_watched()
    kubelet = start_kubelet()
    registry.mkdir()
    watch(kubelet)
    assert kubelet.wait_registered(WAIT_S).devices == as_listed(GPUS)


def test_sockets_of_a_start_that_died_are_removed_hidden_or_not(
    start_watched: StartPlugin, registry: Path
) -> None:
    for name in ("nodetopo-gpu-1-00000000.sock", ".nodetopo-gpu-2-00000000.sock", "csi.sock"):
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(registry / name))
    plugin = start_watched()
    assert eventually(lambda: plugin.state.endpoint in names(registry))
    assert eventually(lambda: names(registry) == sorted(["csi.sock", str(plugin.state.endpoint)]))


@pytest.mark.parametrize("devices", [GPUS, ()], ids=["shown", "hidden"])
def test_a_clean_stop_leaves_nothing_in_the_registry(
    start_watched: StartPlugin, registry: Path, devices: Any
) -> None:
    plugin = start_watched(devices=devices)
    assert eventually(lambda: plugin.state.endpoint in names(registry))
    plugin.stop()
    assert names(registry) == []


@KUBELETS
def test_both_registrations_work_together(
    start_kubelet: StartKubelet,
    start_watched: StartPlugin,
    watch: Watch,
    keyed_by_socket: bool,
) -> None:
    kubelet = start_kubelet(keyed_by_socket=keyed_by_socket)
    watch(kubelet)
    plugin = start_watched(Registration.BOTH)
    assert eventually(lambda: plugin.state.stream_count == 2)
    assert eventually(lambda: plugin.state.registrations == 2)
    assert not eventually(lambda: plugin.state.registrations > 2, timeout_s=QUIET_S)
    assert kubelet.wait_registered(WAIT_S).devices == as_listed(GPUS)


def test_a_clean_stop_leaves_nothing_in_either_directory(
    start_kubelet: StartKubelet, start_watched: StartPlugin, registry: Path, socket_dir: Path
) -> None:
    start_kubelet()
    plugin = start_watched(Registration.BOTH)
    assert eventually(lambda: len(names(registry)) == 1 and len(names(socket_dir)) == 2)
    plugin.stop()
    assert (names(registry), names(socket_dir)) == ([], ["kubelet.sock"])


@KUBELETS
def test_both_registrations_come_back_after_a_loss(
    start_kubelet: StartKubelet, start_watched: StartPlugin, watch: Watch, keyed_by_socket: bool
) -> None:
    kubelet = start_kubelet(keyed_by_socket=keyed_by_socket)
    watch(kubelet)
    plugin = start_watched(Registration.BOTH)
    assert eventually(lambda: plugin.state.stream_count == 2)
    kubelet.disconnect()
    assert eventually(lambda: plugin.state.registrations > 2 and plugin.state.stream_count == 2)
    assert len(kubelet.allocate(["GPU-0"]).cdi_devices) == 1


def test_a_socket_is_hidden_again_while_another_plugin_serves_the_resource(
    start_kubelet: StartKubelet,
    start_watched: StartPlugin,
    opened: ExitStack,
    socket_dir: Path,
    registry: Path,
) -> None:
    start_kubelet()
    plugin = start_watched()
    assert eventually(lambda: bool(list(registry.glob("nodetopo-*"))))
    other = OtherPlugin(socket_dir, "nvidia-gpu.sock", GPUS)
    opened.callback(other.stop)
    assert eventually(lambda: not list(registry.glob("nodetopo-*")))
    other.stop()
    assert eventually(lambda: plugin.state.endpoint in names(registry))
    assert eventually(lambda: bool(list(registry.glob("nodetopo-*"))))


def test_a_shown_socket_answers_without_a_kubelet(
    start_watched: StartPlugin, registry: Path, opened: ExitStack
) -> None:
    start_watched()
    assert eventually(lambda: bool(list(registry.glob("nodetopo-*"))))
    (shown,) = registry.glob("nodetopo-*")
    target = f"unix://{shown}"
    channel = opened.enter_context(grpc.insecure_channel(target))
    assert service.RegistrationStub(channel).GetInfo(pb.InfoRequest(), timeout=WAIT_S) == INFO


def test_a_registration_by_the_watcher_needs_its_directory(socket_dir: Path) -> None:
    with pytest.raises(InputError, match="registration both needs the directory plugins_registry"):
        DevicePlugin(RESOURCE, socket_dir, first, ANSWERS, registration=Registration.BOTH)


def test_a_registry_too_long_for_a_socket_is_refused_at_the_start(socket_dir: Path) -> None:
    registry = Path("/" + "x" * 100)
    plugin = DevicePlugin(
        RESOURCE,
        socket_dir,
        first,
        ANSWERS,
        registration=Registration.WATCHER,
        plugins_registry=registry,
    )
    with pytest.raises(InputError, match="a unix socket may have 107"):
        plugin.start()
