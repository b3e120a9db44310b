"""A directory, kubelets and plugins in it, and the end of them all."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import pytest

from nodetopo.deviceplugin.devices import PluginDevice
from nodetopo.deviceplugin.fake_kubelet import FakeKubelet
from nodetopo.deviceplugin.pb import deviceplugin_pb2_grpc as service
from nodetopo.deviceplugin.plugin import DevicePlugin
from nodetopo.deviceplugin.response import GpuAnswers
from nodetopo.deviceplugin.settings import PluginSettings
from nodetopo.model.kubernetes import GPU_RESOURCE
from tests.deviceplugin.machines import GPUS, first
from tests.generous_deadlines import GENEROUS

RESOURCE = GPU_RESOURCE


@pytest.fixture
def socket_dir(opened: ExitStack) -> Path:
    """A directory short enough for socket paths, which pytest's own need not be.

    It stays until what was opened in it after is closed.
    """
    return Path(opened.enter_context(TemporaryDirectory(prefix="nodetopo-")))


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def start_kubelet(socket_dir: Path, opened: ExitStack) -> Callable[..., FakeKubelet]:
    def start(**options: Any) -> FakeKubelet:
        return opened.enter_context(FakeKubelet(socket_dir, deadlines=GENEROUS, **options))

    return start


@pytest.fixture
def start_plugin(socket_dir: Path, opened: ExitStack) -> Callable[..., DevicePlugin]:
    def start(
        devices: tuple[PluginDevice, ...] = GPUS,
        settings: PluginSettings | None = None,
        **options: Any,
    ) -> DevicePlugin:
        options = {"deadlines": GENEROUS, **options}
        plugin = DevicePlugin(
            RESOURCE, socket_dir, first, GpuAnswers(settings or PluginSettings()), **options
        )
        opened.callback(plugin.stop)
        plugin.update(devices)
        plugin.start()
        return plugin

    return start


@pytest.fixture
def dial(socket_dir: Path, opened: ExitStack) -> Callable[[str], grpc.Channel]:
    return lambda name: opened.enter_context(grpc.insecure_channel(f"unix://{socket_dir / name}"))


@pytest.fixture
def serve(socket_dir: Path, opened: ExitStack) -> Callable[[service.RegistrationServicer], None]:
    """Serve another kubelet's answers on ``kubelet.sock``."""

    def start(servicer: service.RegistrationServicer) -> None:
        server = grpc.server(opened.enter_context(ThreadPoolExecutor(4)))
        service.add_RegistrationServicer_to_server(servicer, server)
        server.add_insecure_port(f"unix://{socket_dir}/kubelet.sock")
        server.start()
        opened.callback(lambda: server.stop(None).wait())

    return start
