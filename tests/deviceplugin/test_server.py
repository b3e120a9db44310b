"""Who reaches the plugin's server: the mode of its socket, and the peer's user."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import pytest
import structlog

from nodetopo.deviceplugin.pb import deviceplugin_pb2 as pb
from nodetopo.deviceplugin.pb import deviceplugin_pb2_grpc as service
from nodetopo.deviceplugin.pb import pluginregistration_pb2 as registration_pb
from nodetopo.deviceplugin.pb import pluginregistration_pb2_grpc as registration
from nodetopo.deviceplugin.plugin_watcher import Announcer
from nodetopo.deviceplugin.server import PluginServer
from nodetopo.deviceplugin.service import PluginServicer
from nodetopo.deviceplugin.sockets import is_listening
from nodetopo.model.kubernetes import GPU_RESOURCE
from tests.deviceplugin.machines import ANSWERS, GPUS, first
from tests.failing_files import failing
from tests.generous_deadlines import GENEROUS

LIMIT_S = 60.0


@contextmanager
def server(users: frozenset[int] | None) -> Iterator[tuple[PluginServer, grpc.Channel]]:
    log = structlog.get_logger()
    servicer = PluginServicer(GPU_RESOURCE, first, ANSWERS, log, GENEROUS)
    servicer.update(GPUS)
    with TemporaryDirectory(prefix="nodetopo-") as directory:
        path = Path(directory) / "plugin.sock"
        it = PluginServer(servicer, path, Announcer(GPU_RESOURCE), users=users)
        try:
            with grpc.insecure_channel(f"unix://{path}") as channel:
                yield it, channel
        finally:
            servicer.close()
            it.stop(0)


def calls(channel: grpc.Channel) -> dict[str, Any]:
    """Return every call of the server, by name."""
    plugin: Any = service.DevicePluginStub(channel)
    watcher: Any = registration.RegistrationStub(channel)
    allocation = pb.AllocateRequest(container_requests=[{"devices_ids": [GPUS[0].id]}])
    return {
        "options": lambda: plugin.GetDevicePluginOptions(pb.Empty(), timeout=LIMIT_S),
        "list": lambda: next(plugin.ListAndWatch(pb.Empty(), timeout=LIMIT_S)),
        "allocate": lambda: plugin.Allocate(allocation, timeout=LIMIT_S),
        "preferred": lambda: plugin.GetPreferredAllocation(
            pb.PreferredAllocationRequest(), timeout=LIMIT_S
        ),
        "start": lambda: plugin.PreStartContainer(pb.PreStartContainerRequest(), timeout=LIMIT_S),
        "info": lambda: watcher.GetInfo(registration_pb.InfoRequest(), timeout=LIMIT_S),
        "status": lambda: watcher.NotifyRegistrationStatus(
            registration_pb.RegistrationStatus(), timeout=LIMIT_S
        ),
    }


CALLS = ("options", "list", "allocate", "preferred", "start", "info", "status")


@pytest.mark.parametrize("name", CALLS)
def test_a_foreign_user_gets_no_answer(name: str) -> None:
    with server(frozenset()) as (_, channel):
        with pytest.raises(grpc.RpcError) as refused:
            calls(channel)[name]()
        code = refused.value.code()
        # Hung up on, mostly before the refusal is sent.
        assert code in (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAVAILABLE)


@pytest.mark.parametrize("name", [name for name in CALLS if name != "start"])
def test_our_own_user_is_answered(name: str) -> None:
    with server(None) as (_, channel):
        assert calls(channel)[name]() is not None


def test_a_foreign_user_changes_nothing() -> None:
    with server(frozenset()) as (it, channel):
        with pytest.raises(grpc.RpcError):
            calls(channel)["list"]()
        assert (it.streams.open, it.streams.opened) == (0, 0)


@pytest.mark.parametrize("umask", [0, 0o022, 0o077])
def test_only_the_owner_may_connect(umask: int) -> None:
    before = os.umask(umask)
    try:
        with server(None) as (it, _):
            assert stat.S_IMODE(it.path.stat().st_mode) == 0o600
    finally:
        os.umask(before)


@pytest.mark.parametrize("code", [errno.EACCES, errno.ENOTDIR, errno.EROFS, errno.EIO])
def test_a_socket_that_cannot_be_removed_stops_all_the_same(code: int) -> None:
    with server(None) as (it, channel):
        calls(channel)["options"]()
        with failing(it.path.parent, code, reads=True, writes=True):
            it.stop(0)
        with pytest.raises(grpc.RpcError):
            calls(channel)["options"]()


def test_a_server_whose_mode_cannot_be_set_is_stopped() -> None:
    servicer = PluginServicer(GPU_RESOURCE, first, ANSWERS, structlog.get_logger(), GENEROUS)
    with TemporaryDirectory(prefix="nodetopo-") as directory:
        path = Path(directory) / "plugin.sock"
        with (
            failing(path.parent, errno.EACCES, reads=False, writes=True),
            pytest.raises(OSError, match="Permission denied"),
        ):
            PluginServer(servicer, path)
        assert not is_listening(path)
    servicer.close()


def test_a_stop_that_hangs_up_waits_for_no_stream() -> None:
    """A kubelet can open its stream after the plugin has hung up, and would keep it open."""
    with server(None) as (it, channel):
        lists = service.DevicePluginStub(channel).ListAndWatch(pb.Empty(), timeout=LIMIT_S)
        assert len(next(lists).devices) == len(GPUS)
        it.stop(1e6, hangs_up=True)
        with pytest.raises(grpc.RpcError):
            next(lists)
