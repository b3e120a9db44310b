"""What the plugin does when kubelets, sockets and directories come and go."""

import errno
import os
import shutil
import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from time import sleep
from typing import Any

import grpc
import pytest
import structlog
from msgspec.structs import replace
from structlog.testing import capture_logs

from nodetopo.deviceplugin import siblings, sockets
from nodetopo.deviceplugin.fake_kubelet import FakeKubelet
from nodetopo.deviceplugin.pb import deviceplugin_pb2 as pb
from nodetopo.deviceplugin.pb import deviceplugin_pb2_grpc as service
from nodetopo.deviceplugin.plugin import DevicePlugin
from nodetopo.deviceplugin.registration import MOST_FORMER, WARN_AFTER_S, KubeletSocketRegistrar
from nodetopo.deviceplugin.service import PluginServicer
from nodetopo.deviceplugin.sockets import remove_all_sockets
from tests.deviceplugin.conftest import RESOURCE
from tests.deviceplugin.eventually import eventually
from tests.deviceplugin.machines import ANSWERS, GPUS, as_listed, first
from tests.failing_files import failing
from tests.generous_deadlines import GENEROUS

StartKubelet = Callable[..., FakeKubelet]
StartPlugin = Callable[..., DevicePlugin]
WAIT_S = 60.0
RESTARTS = 20

KUBELETS = pytest.mark.parametrize("keyed_by_socket", [False, True], ids=["1.36", "1.37"])


def own_sockets(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("nodetopo-*"))


def is_watched(plugin: DevicePlugin) -> bool:
    return plugin.state.is_registered and plugin.state.stream_count == 1


def test_a_kubelet_that_starts_later_is_registered_with(
    start_kubelet: StartKubelet, start_plugin: StartPlugin
) -> None:
    plugin = start_plugin()
    assert eventually(lambda: plugin.state.endpoint is not None)
    assert start_kubelet().wait_registered(WAIT_S).devices == as_listed(GPUS)


def test_a_kubelet_that_restarts_is_registered_with_again(
    start_kubelet: StartKubelet, start_plugin: StartPlugin, socket_dir: Path
) -> None:
    kubelet, plugin = start_kubelet(), start_plugin()
    before = kubelet.wait_registered(WAIT_S)
    kubelet.stop()
    after = start_kubelet().wait_registered(WAIT_S)
    assert after.devices == before.devices
    assert after.endpoint != before.endpoint
    assert eventually(lambda: is_watched(plugin))
    assert own_sockets(socket_dir) == [after.endpoint]


def test_a_kubelet_that_only_hangs_up_is_registered_with_again(
    start_kubelet: StartKubelet, start_plugin: StartPlugin
) -> None:
    kubelet, plugin = start_kubelet(), start_plugin()
    before = kubelet.wait_registered(WAIT_S)
    kubelet.disconnect()
    assert eventually(lambda: plugin.state.registrations == 2)
    after = kubelet.wait_registered(WAIT_S)
    assert after.devices == before.devices
    assert after.endpoint != before.endpoint  # 1.37 could still be connected to it


def test_each_loss_is_healed_by_one_registration(
    start_kubelet: StartKubelet, start_plugin: StartPlugin
) -> None:
    kubelet, plugin = start_kubelet(), start_plugin()
    counts = []
    for _ in range(3):
        assert eventually(lambda: is_watched(plugin))
        counts.append(plugin.state.registrations)
        kubelet.disconnect()
        assert eventually(lambda: plugin.state.registrations > len(counts))
    assert counts == [1, 2, 3]


@KUBELETS
def test_a_socket_that_vanishes_is_replaced_without_a_moment_without_devices(
    start_kubelet: StartKubelet, start_plugin: StartPlugin, socket_dir: Path, keyed_by_socket: bool
) -> None:
    """Kubelet 1.36 would drop the new socket with the stream of the old one."""
    kubelet, plugin = start_kubelet(keyed_by_socket=keyed_by_socket), start_plugin()
    before = kubelet.wait_registered(WAIT_S).endpoint
    assert eventually(lambda: is_watched(plugin))
    (socket_dir / before).unlink()
    assert eventually(lambda: plugin.state.registrations == 2 and plugin.state.stream_count == 2)
    assert plugin.state.endpoint != before
    assert kubelet.wait_registered(WAIT_S).endpoint == plugin.state.endpoint
    assert len(kubelet.allocate(["GPU-0"]).cdi_devices) == 1


@KUBELETS
def test_devices_stay_while_the_directory_is_empty_until_the_next_kubelet(
    start_kubelet: StartKubelet, start_plugin: StartPlugin, socket_dir: Path, keyed_by_socket: bool
) -> None:
    kubelet, plugin = start_kubelet(keyed_by_socket=keyed_by_socket), start_plugin()
    before = kubelet.wait_registered(WAIT_S).endpoint
    assert eventually(lambda: is_watched(plugin))

    remove_all_sockets(socket_dir)
    assert eventually(lambda: plugin.state.endpoint not in (None, before))

    view = kubelet.view()
    assert (view and view.endpoint, view and view.devices) == (before, as_listed(GPUS))
    sick = (replace(GPUS[0], is_healthy=False), *GPUS[1:])
    plugin.update(sick)
    assert eventually(lambda: kubelet.wait_registered(WAIT_S).devices == as_listed(sick))
    assert len(kubelet.allocate(["GPU-1"]).cdi_devices) == 1
    assert "restart the kubelet" in (plugin.state.last_problem or "")

    kubelet.stop()
    after = start_kubelet(keyed_by_socket=keyed_by_socket).wait_registered(WAIT_S)
    assert (after.endpoint != before, after.devices) == (True, as_listed(sick))
    assert eventually(lambda: is_watched(plugin))
    assert own_sockets(socket_dir) == [after.endpoint]


def test_a_socket_that_is_removed_again_and_again_leaves_few_servers(
    start_kubelet: StartKubelet, start_plugin: StartPlugin, socket_dir: Path
) -> None:
    # A kubelet that drops the newest plugin as a former stream ends may never have watched it.
    deadlines = replace(GENEROUS, first_stream_s=1.0)
    kubelet, plugin = start_kubelet(), start_plugin(deadlines=deadlines)
    for _ in range(2 * MOST_FORMER):
        assert eventually(lambda: plugin.state.is_registered and plugin.state.stream_count > 0)
        before = plugin.state.endpoint
        assert before is not None
        (socket_dir / before).unlink(missing_ok=True)
        assert eventually(lambda: plugin.state.endpoint not in (None, before))  # noqa: B023 - now
    assert eventually(lambda: plugin.state.is_registered)
    assert eventually(lambda: plugin.state.stream_count <= MOST_FORMER + 1)
    assert eventually(lambda: kubelet.view() is not None)


def test_a_directory_deleted_under_its_mount_needs_a_new_container_only_without_a_kubelet(
    start_kubelet: StartKubelet, opened: ExitStack, socket_dir: Path
) -> None:
    kubelet = start_kubelet()
    held = os.open(socket_dir, os.O_RDONLY)
    opened.callback(os.close, held)
    mounted = Path(f"/proc/self/fd/{held}")
    plugin = DevicePlugin(RESOURCE, mounted, first, ANSWERS, deadlines=GENEROUS)
    opened.callback(plugin.stop)
    plugin.update(GPUS)
    plugin.start()
    assert eventually(lambda: is_watched(plugin))

    assert eventually(lambda: _is_removed(socket_dir))
    socket_dir.mkdir()
    assert eventually(lambda: plugin.state.endpoint is None)
    assert (plugin.state.is_detached, plugin.state.stream_count) == (False, 1)
    assert len(kubelet.allocate(["GPU-0"]).cdi_devices) == 1

    kubelet.stop()
    assert eventually(lambda: plugin.state.is_detached)


def _is_removed(directory: Path) -> bool:
    """Try to remove *directory*; the plugin may make a socket in it meanwhile."""
    shutil.rmtree(directory, ignore_errors=True)
    return not directory.exists()


STARTS_AND_LISTS = {"kubelet socket watched", "device list changed", "device plugin stopped"}
"""Lines of a start, of an end, and of another device list."""


def test_many_restarts_of_the_kubelet_are_no_warnings(
    start_kubelet: StartKubelet, start_plugin: StartPlugin
) -> None:
    kubelet = start_kubelet()
    with capture_logs() as logs:
        plugin = start_plugin(log=structlog.get_logger())
        for _ in range(RESTARTS):
            assert eventually(lambda: is_watched(plugin))
            kubelet.stop()
            kubelet = start_kubelet()
            kubelet.wait_registered(WAIT_S)
    assert [line for line in logs if line["log_level"] not in ("debug", "info")] == []
    registered = [line for line in logs if line["event"] == "resource registered"]
    assert len(registered) >= RESTARTS
    assert all(line["after"] for line in registered[1:])
    # A restart is one line a resource; what led to it is for debugging.
    told = {line["event"] for line in logs if line["log_level"] != "debug"}
    assert told - STARTS_AND_LISTS == {"resource registered"}


def test_a_kubelet_that_was_registered_with_before_it_was_noticed_is_not_asked_again(
    start_kubelet: StartKubelet, opened: ExitStack, socket_dir: Path
) -> None:
    log = structlog.get_logger()
    servicer = PluginServicer(RESOURCE, first, ANSWERS, log, GENEROUS)
    registrar = KubeletSocketRegistrar(
        RESOURCE, socket_dir, servicer, log, GENEROUS, instance="1-abcde"
    )
    opened.callback(registrar.stop)
    opened.callback(servicer.close)
    servicer.update(GPUS)
    path = socket_dir / sockets.KUBELET_SOCKET
    for count in (1, 2):
        kubelet = start_kubelet()
        if count == 1:
            registrar.kubelet_changed(0.0, sockets.identity(path))
        registrar.check_socket(0.0)
        assert registrar.register(0.0)
        kubelet.wait_registered(WAIT_S)
        registrar.kubelet_changed(0.0, sockets.identity(path))
        assert not registrar.register(0.0)
        assert registrar.registrations == count
        kubelet.stop()


def test_a_registration_that_fails_for_long_is_one_warning_with_cause_and_cure(
    socket_dir: Path, opened: ExitStack
) -> None:
    """By its own clock: ten minutes without a kubelet, one with a dead socket, then a kubelet."""
    with capture_logs() as logs:
        log = structlog.get_logger()
        servicer = PluginServicer(RESOURCE, first, ANSWERS, log, GENEROUS)
        servicer.update(GPUS)
        registrar = KubeletSocketRegistrar(
            RESOURCE, socket_dir, servicer, log, GENEROUS, instance="1-abcde"
        )
        opened.callback(registrar.stop)
        opened.callback(servicer.close)

        def pass_by(seconds: range) -> list[Any]:
            """Run the loop at each of *seconds*; return the warnings of that time."""
            logs.clear()
            for now in seconds:
                registrar.check_socket(now)
                registrar.check_streams(now)
                registrar.register(now)
            return [line for line in logs if line["log_level"] == "warning"]

        assert pass_by(range(int(WARN_AFTER_S))) == []
        (warning,) = pass_by(range(int(WARN_AFTER_S), 600))
        assert "no kubelet.sock in" in warning["problem"]
        assert "see whether the kubelet runs" in warning["problem"]

        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(socket_dir / "kubelet.sock"))
        registrar.kubelet_changed(600, sockets.identity(socket_dir / sockets.KUBELET_SOCKET))
        assert pass_by(range(600, 660)) == []
        assert "the kubelet did not register" in (registrar.last_problem or "")

        opened.enter_context(FakeKubelet(socket_dir, deadlines=GENEROUS))
        registrar.kubelet_changed(660, sockets.identity(socket_dir / sockets.KUBELET_SOCKET))
        assert pass_by(range(660, 662)) == []
        assert [line["event"] for line in logs if "registered" in line["event"]] == [
            "resource registered"
        ]


class Accepting(service.RegistrationServicer):
    """A kubelet that refuses so many registrations, takes every later one, and never dials."""

    def __init__(self, refusals: int = 0) -> None:
        self._refusals = refusals
        self.endpoints: list[str] = []

    def Register(  # noqa: N802 - the service's own name
        self, request: pb.RegisterRequest, context: grpc.ServicerContext
    ) -> pb.Empty:
        """Note the endpoint."""
        self.endpoints.append(request.endpoint)
        if len(self.endpoints) <= self._refusals:
            context.abort(grpc.StatusCode.UNKNOWN, "failed to dial device plugin")
        return pb.Empty()


def test_a_refused_registration_is_tried_again(
    start_plugin: StartPlugin, serve: Callable[[service.RegistrationServicer], None]
) -> None:
    kubelet = Accepting(refusals=2)
    serve(kubelet)
    plugin = start_plugin()
    assert eventually(lambda: plugin.state.is_registered)
    assert kubelet.endpoints[-1] == plugin.state.endpoint
    assert len(set(kubelet.endpoints)) == 3  # a kubelet that refuses may be connected


def test_a_new_kubelet_socket_is_registered_with_although_ours_is_untouched(
    start_plugin: StartPlugin,
    serve: Callable[[service.RegistrationServicer], None],
    socket_dir: Path,
) -> None:
    before, after = Accepting(), Accepting()
    serve(before)
    plugin = start_plugin()
    assert eventually(lambda: plugin.state.registrations == 1)
    (socket_dir / "kubelet.sock").unlink()
    serve(after)
    assert eventually(lambda: plugin.state.registrations == 2)
    assert after.endpoints == before.endpoints


@pytest.mark.parametrize("keyed_by_socket", [False, True], ids=["1.36", "1.37"])
@pytest.mark.parametrize(
    "touch",
    [
        lambda path: path.chmod(0o777),
        lambda path: path.with_name("link").hardlink_to(path),
        lambda path: path.rename(path.with_name("aside")),
        lambda path: path.rename(path.with_name("aside")).rename(path),
    ],
    ids=["chmod", "link", "removed", "removed and back"],
)
def test_a_kubelet_whose_socket_file_changes_is_not_registered_with_again(
    start_kubelet: StartKubelet,
    opened: ExitStack,
    socket_dir: Path,
    touch: Callable[[Path], object],
    keyed_by_socket: bool,
) -> None:
    """Since 1.37 a kubelet never notices the end of a socket that was registered twice."""
    kubelet = start_kubelet(keyed_by_socket=keyed_by_socket)
    log = structlog.get_logger()
    servicer = PluginServicer(RESOURCE, first, ANSWERS, log, GENEROUS)
    registrar = KubeletSocketRegistrar(
        RESOURCE, socket_dir, servicer, log, GENEROUS, instance="1-abcde"
    )
    opened.callback(registrar.stop)
    opened.callback(servicer.close)
    servicer.update(GPUS)
    path = socket_dir / sockets.KUBELET_SOCKET
    registrar.kubelet_changed(0.0, sockets.identity(path))
    registrar.check_socket(0.0)
    assert registrar.register(0.0)
    kubelet.wait_registered(WAIT_S)

    touch(path)

    for now in (600.0, 1200.0):
        registrar.kubelet_changed(now, sockets.identity(path))
        registrar.check_streams(now)
        registrar.register(now)
    assert (registrar.registrations, registrar.is_registered) == (1, True)


def test_a_directory_that_is_missing_at_first_is_waited_for(
    start_kubelet: StartKubelet, start_plugin: StartPlugin, socket_dir: Path
) -> None:
    socket_dir.rmdir()
    plugin = start_plugin()
    assert plugin.state.endpoint is None
    assert start_kubelet().wait_registered(WAIT_S).devices == as_listed(GPUS)


@pytest.mark.parametrize("code", [errno.EACCES, errno.ENOTDIR, errno.EROFS, errno.EIO])
def test_a_closed_directory_ends_no_plugin(
    start_kubelet: StartKubelet, start_plugin: StartPlugin, socket_dir: Path, code: int
) -> None:
    kubelet, plugin = start_kubelet(), start_plugin()
    assert eventually(lambda: is_watched(plugin))
    with failing(socket_dir, code, reads=True, writes=True):
        kubelet.disconnect()
        assert eventually(lambda: plugin.state.endpoint is None)
    assert eventually(lambda: is_watched(plugin))


def test_a_replaced_directory_is_served_in_again(
    start_kubelet: StartKubelet, start_plugin: StartPlugin, socket_dir: Path
) -> None:
    kubelet, plugin = start_kubelet(), start_plugin()
    kubelet.wait_registered(WAIT_S)
    kubelet.stop()
    gone = socket_dir.rename(socket_dir.with_name(f"{socket_dir.name}-gone"))
    socket_dir.mkdir()
    shutil.rmtree(gone)  # not where it was: the plugin could put a socket into it meanwhile
    assert start_kubelet().wait_registered(WAIT_S).devices == as_listed(GPUS)
    assert eventually(lambda: is_watched(plugin))


def test_a_dead_kubelet_socket_is_a_problem_until_a_kubelet_serves_it(
    start_kubelet: StartKubelet, start_plugin: StartPlugin, socket_dir: Path
) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(socket_dir / "kubelet.sock"))
    plugin = start_plugin()
    assert eventually(lambda: plugin.state.last_problem is not None)
    assert "the kubelet did not register nvidia.com/gpu" in (plugin.state.last_problem or "")
    start_kubelet().wait_registered(WAIT_S)
    assert eventually(lambda: plugin.state.last_problem is None)


def test_a_socket_of_a_start_that_died_is_removed(
    start_kubelet: StartKubelet, start_plugin: StartPlugin, socket_dir: Path
) -> None:
    kubelet = start_kubelet()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(socket_dir / "nodetopo-gpu-1-00000000.sock"))
    start_plugin()
    endpoint = kubelet.wait_registered(WAIT_S).endpoint
    assert own_sockets(socket_dir) == [endpoint]


@pytest.mark.parametrize("keyed_by_socket", [False, True], ids=["1.36", "1.37"])
def test_the_newer_of_two_plugins_serves_on_after_the_older_one_stops(
    start_kubelet: StartKubelet,
    start_plugin: StartPlugin,
    monkeypatch: pytest.MonkeyPatch,
    keyed_by_socket: bool,
) -> None:
    # However long this machine takes between the two.
    monkeypatch.setattr(siblings, "SAME_TIME_NS", 3600 * 10**9)
    kubelet, older = start_kubelet(keyed_by_socket=keyed_by_socket), start_plugin()
    assert eventually(lambda: is_watched(older))
    newer = start_plugin()
    assert eventually(lambda: is_watched(newer))
    older.stop()
    # 1.36 drops the newer one at the end of the older one's stream. Under 1.37 it cannot know which
    # of two that started at once was registered last.
    assert eventually(lambda: newer.state.registrations == 2 and is_watched(newer))
    assert kubelet.wait_registered(WAIT_S).endpoint == newer.state.endpoint
    assert len(kubelet.allocate(["GPU-0"]).cdi_devices) == 1


class Connected(Accepting):
    """A kubelet that holds the first endpoint it hears of for connected, whatever happens."""

    def Register(  # noqa: N802 - the service's own name
        self, request: pb.RegisterRequest, context: grpc.ServicerContext
    ) -> pb.Empty:
        """Refuse it, and take any other."""
        self.endpoints.append(request.endpoint)
        if request.endpoint == self.endpoints[0]:
            problem = f"device plugin already connected: {request.endpoint}"
            context.abort(grpc.StatusCode.UNKNOWN, problem)
        return pb.Empty()


def test_a_connection_that_only_the_kubelet_believes_in_is_left_for_a_new_socket(
    start_plugin: StartPlugin, serve: Callable[[service.RegistrationServicer], None]
) -> None:
    kubelet = Connected()
    serve(kubelet)
    plugin = start_plugin()
    assert eventually(lambda: plugin.state.is_registered)
    first, second = kubelet.endpoints
    assert (first != second, second) == (True, plugin.state.endpoint)


def test_a_stop_sends_no_empty_list(
    start_kubelet: StartKubelet,
    start_plugin: StartPlugin,
    dial: Callable[[str], grpc.Channel],
) -> None:
    kubelet, plugin = start_kubelet(), start_plugin()
    endpoint = kubelet.wait_registered(WAIT_S).endpoint
    lists = service.DevicePluginStub(dial(endpoint)).ListAndWatch(pb.Empty())
    assert len(next(lists).devices) == 8
    plugin.stop()
    assert list(lists) == []


def test_a_stop_while_it_starts_leaves_no_socket(
    start_kubelet: StartKubelet, start_plugin: StartPlugin, socket_dir: Path
) -> None:
    start_kubelet()
    for wait_s in (0.0, 0.001, 0.005, 0.01, 0.02, 0.04):
        plugin = start_plugin()
        sleep(wait_s)
        plugin.stop()
        assert own_sockets(socket_dir) == []
