"""What the plugin does about other makers' plugins, under kubelets up to 1.36 and since 1.37."""

import socket
from collections.abc import Callable, Collection
from contextlib import ExitStack
from pathlib import Path
from time import monotonic

import pytest

from nodetopo.deviceplugin import conflict
from nodetopo.deviceplugin import plugin as device_plugin
from nodetopo.deviceplugin.conflict import FIGHT_LOSSES, RETRY_S, known_maker, offers
from nodetopo.deviceplugin.fake_kubelet import FakeKubelet
from nodetopo.deviceplugin.plugin import DevicePlugin
from nodetopo.deviceplugin.service import PluginServicer
from tests.deviceplugin.conftest import RESOURCE
from tests.deviceplugin.eventually import eventually
from tests.deviceplugin.machines import GPUS, as_listed
from tests.deviceplugin.other_plugin import OtherPlugin

StartKubelet = Callable[..., FakeKubelet]
StartPlugin = Callable[..., DevicePlugin]
StartOther = Callable[..., OtherPlugin]
WAIT_S = 60.0
QUIET_S = 0.6
"""Longer than the plugin takes to register, were it to."""

KUBELETS = pytest.mark.parametrize("keyed_by_socket", [False, True], ids=["1.36", "1.37"])
NVIDIA = "nvidia-gpu.sock"


@pytest.fixture
def start_other(socket_dir: Path, opened: ExitStack) -> StartOther:
    def start(name: str = NVIDIA, *, is_registered: bool = True) -> OtherPlugin:
        other = OtherPlugin(socket_dir, name, GPUS)
        opened.callback(other.stop)
        if is_registered:
            other.register(RESOURCE)
        return other

    return start


def serves(kubelet: FakeKubelet, endpoint: str | None) -> bool:
    view = kubelet.view()
    return view is not None and view.endpoint == endpoint


def drop(kubelet: FakeKubelet, plugin: DevicePlugin, times: int) -> None:
    """Let the kubelet drop the plugin, each time after it has registered again."""
    for _ in range(times):
        assert eventually(lambda: serves(kubelet, plugin.state.endpoint))
        assert eventually(lambda: plugin.state.is_registered and plugin.state.stream_count == 1)
        before = plugin.state.registrations
        kubelet.disconnect()
        assert eventually(
            lambda seen=before: (  # type: ignore[misc]
                not plugin.state.is_registered or plugin.state.registrations > seen
            )
        )


class Clock:
    """The plugin's clock, which a test may put forward."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._skipped = 0.0
        monkeypatch.setattr(device_plugin, "monotonic", lambda: monotonic() + self._skipped)

    def skip(self, seconds: float) -> None:
        """Let so much time have passed."""
        self._skipped += seconds


@pytest.mark.parametrize(
    ("resource", "name", "maker"),
    [
        ("nvidia.com/gpu", "nvidia-gpu.sock", "NVIDIA's device plugin"),
        ("nvidia.com/mig-1g.10gb", "nvidia-mig-1g.10gb.sock", "NVIDIA's device plugin"),
        ("nvidia.com/gpu", "nvidiaGPU-1711111111.sock", "GKE's device plugin"),
        ("nvidia.com/gpu", "nvidia-gpu.shared.sock", None),
        ("nvidia.com/gpu.shared", "nvidiaGPU-1711111111.sock", None),
        ("example.com/gpu", "nvidia-gpu.sock", None),
        ("nvidia.com/gpu", "rdma.sock", None),
    ],
)
def test_known_makers_are_known_by_their_sockets(
    resource: str, name: str, maker: str | None
) -> None:
    assert known_maker(resource, name) == maker


@KUBELETS
def test_a_resource_that_nvidias_plugin_serves_is_left_to_it(
    start_kubelet: StartKubelet,
    start_plugin: StartPlugin,
    start_other: StartOther,
    socket_dir: Path,
    keyed_by_socket: bool,
) -> None:
    kubelet, other = start_kubelet(keyed_by_socket=keyed_by_socket), start_other()
    plugin = start_plugin()
    assert eventually(lambda: plugin.state.conflict is not None)
    assert not eventually(lambda: plugin.state.registrations > 0, timeout_s=QUIET_S)
    assert plugin.state.conflict == (
        f"NVIDIA's device plugin serves nvidia.com/gpu on {socket_dir}/{NVIDIA}: "
        "remove it, or this one"
    )
    assert eventually(lambda: serves(kubelet, NVIDIA))
    assert other.watched == 1  # by the kubelet


@KUBELETS
@pytest.mark.parametrize("end", [OtherPlugin.stop, OtherPlugin.kill])
def test_the_resource_is_taken_over_when_the_other_plugin_ends(
    start_kubelet: StartKubelet,
    start_plugin: StartPlugin,
    start_other: StartOther,
    keyed_by_socket: bool,
    end: Callable[[OtherPlugin], None],
) -> None:
    kubelet, other = start_kubelet(keyed_by_socket=keyed_by_socket), start_other()
    plugin = start_plugin()
    assert eventually(lambda: plugin.state.conflict is not None)
    end(other)
    assert eventually(lambda: serves(kubelet, plugin.state.endpoint))
    assert eventually(lambda: kubelet.wait_registered(WAIT_S).devices == as_listed(GPUS))
    assert eventually(lambda: plugin.state.conflict is None)


@KUBELETS
def test_a_plugin_that_comes_second_is_not_fought(
    start_kubelet: StartKubelet,
    start_plugin: StartPlugin,
    start_other: StartOther,
    keyed_by_socket: bool,
) -> None:
    kubelet, plugin = start_kubelet(keyed_by_socket=keyed_by_socket), start_plugin()
    assert eventually(lambda: plugin.state.is_registered)
    start_other()
    assert eventually(lambda: plugin.state.conflict is not None)
    assert not eventually(lambda: plugin.state.registrations > 1, timeout_s=QUIET_S)
    assert eventually(lambda: serves(kubelet, NVIDIA))


@KUBELETS
def test_a_plugin_that_came_and_went_leaves_the_resource_with_us(
    start_kubelet: StartKubelet,
    start_plugin: StartPlugin,
    start_other: StartOther,
    monkeypatch: pytest.MonkeyPatch,
    keyed_by_socket: bool,
) -> None:
    kubelet, plugin = start_kubelet(keyed_by_socket=keyed_by_socket), start_plugin()
    assert eventually(lambda: plugin.state.is_registered)
    other = start_other()
    assert eventually(lambda: plugin.state.conflict is not None)
    hang_up = PluginServicer.hang_up

    def until_noticed(servicer: PluginServicer) -> None:
        hang_up(servicer)  # up to 1.36 a kubelet that notices late drops us once more
        assert eventually(lambda: not kubelet._streaming)

    monkeypatch.setattr(PluginServicer, "hang_up", until_noticed)
    other.stop()
    # Up to 1.36 the kubelet had our stream open all along, and yet nobody to allocate from.
    assert eventually(lambda: plugin.state.registrations == 2)
    assert eventually(lambda: serves(kubelet, plugin.state.endpoint))
    assert len(kubelet.allocate(["GPU-0"]).cdi_devices) == 1
    assert eventually(lambda: plugin.state.stream_count == 1)


def test_a_competitor_that_listens_unregistered_is_outlasted(
    start_kubelet: StartKubelet,
    start_plugin: StartPlugin,
    start_other: StartOther,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kubelet, clock = start_kubelet(), Clock(monkeypatch)
    start_other(is_registered=False)
    plugin = start_plugin()
    assert eventually(lambda: plugin.state.conflict is not None)
    assert not eventually(lambda: plugin.state.registrations > 0, timeout_s=QUIET_S)
    clock.skip(RETRY_S)
    assert eventually(lambda: serves(kubelet, plugin.state.endpoint))
    assert plugin.state.conflict is not None


def test_a_loss_during_a_conflict_does_not_end_the_yielding(
    start_kubelet: StartKubelet,
    start_plugin: StartPlugin,
    start_other: StartOther,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    kubelet, plugin = start_kubelet(), start_plugin()
    assert eventually(lambda: plugin.state.is_registered)
    start_other(is_registered=False)
    assert eventually(lambda: plugin.state.conflict is not None)
    clock.skip(2 * RETRY_S)
    drop(kubelet, plugin, times=1)
    assert not eventually(lambda: plugin.state.registrations > 1, timeout_s=QUIET_S)
    clock.skip(RETRY_S)
    assert eventually(lambda: plugin.state.registrations == 2)


def test_a_competitor_that_drops_us_repeatedly_is_found_by_its_devices(
    start_kubelet: StartKubelet,
    start_plugin: StartPlugin,
    start_other: StartOther,
    socket_dir: Path,
) -> None:
    kubelet, plugin = start_kubelet(), start_plugin()
    other = start_other("acme.sock", is_registered=False)
    drop(kubelet, plugin, FIGHT_LOSSES)
    assert eventually(lambda: plugin.state.conflict is not None)
    assert plugin.state.conflict == (
        f"another device plugin serves nvidia.com/gpu on {socket_dir}/acme.sock: "
        "remove it, or this one"
    )
    other.stop()
    assert eventually(lambda: plugin.state.conflict is None)
    assert eventually(lambda: serves(kubelet, plugin.state.endpoint))


def test_no_plugin_is_asked_for_its_devices_without_a_reason(
    start_kubelet: StartKubelet, start_plugin: StartPlugin, start_other: StartOther
) -> None:
    kubelet, plugin = start_kubelet(), start_plugin()
    other = start_other("acme.sock", is_registered=False)
    drop(kubelet, plugin, FIGHT_LOSSES - 1)
    assert eventually(lambda: serves(kubelet, plugin.state.endpoint))
    assert (other.watched, plugin.state.conflict) == (0, None)


def test_plugins_of_other_devices_are_no_competitors(
    start_kubelet: StartKubelet,
    start_plugin: StartPlugin,
    start_other: StartOther,
    socket_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_asked: list[str] = []

    def ask(path: Path, uuids: Collection[str], timeout_s: float) -> bool:
        answer = offers(path, uuids, 0.2 if path.name == "mute.sock" else timeout_s)
        is_asked.append(path.name)
        return answer

    monkeypatch.setattr(conflict, "offers", ask)
    kubelet, plugin = start_kubelet(), start_plugin(devices=(GPUS[0],))
    other = start_other("a-nic.sock", is_registered=False)
    other._devices = GPUS[1:]
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(socket_dir / "mute.sock"))
        mute.listen()
        drop(kubelet, plugin, FIGHT_LOSSES)
        assert eventually(lambda: is_asked == ["a-nic.sock", "mute.sock"])
        assert other.watched == 1
        assert eventually(lambda: serves(kubelet, plugin.state.endpoint))
        assert not eventually(lambda: plugin.state.conflict is not None, timeout_s=QUIET_S)


def test_another_start_of_ours_is_no_competitor(
    start_kubelet: StartKubelet, start_plugin: StartPlugin
) -> None:
    kubelet, older, newer = start_kubelet(), start_plugin(), start_plugin()
    assert eventually(lambda: older.state.is_registered and newer.state.is_registered)
    newest = kubelet.wait_registered(WAIT_S).endpoint
    drop(kubelet, newer if newest == newer.state.endpoint else older, FIGHT_LOSSES)
    assert kubelet.wait_registered(WAIT_S).devices == as_listed(GPUS)
    assert (older.state.conflict, newer.state.conflict) == (None, None)


def test_a_conflict_ends_with_the_kubelet_that_forgot_the_other_plugin(
    start_kubelet: StartKubelet, start_plugin: StartPlugin, start_other: StartOther
) -> None:
    kubelet = start_kubelet()
    start_other()
    plugin = start_plugin()
    assert eventually(lambda: plugin.state.conflict is not None)
    kubelet.stop()
    after = start_kubelet()  # which removes all sockets, as every kubelet does
    assert eventually(lambda: serves(after, plugin.state.endpoint))
    assert eventually(lambda: plugin.state.conflict is None)
