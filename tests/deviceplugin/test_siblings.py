"""Several instances of this program on one node, under kubelets up to 1.36 and since 1.37."""

import socket
from collections.abc import Callable
from contextlib import ExitStack
from itertools import permutations
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from nodetopo.deviceplugin import sockets
from nodetopo.deviceplugin.fake_kubelet import FakeKubelet
from nodetopo.deviceplugin.plugin import DevicePlugin
from nodetopo.deviceplugin.siblings import SAME_TIME_NS, Sibling, Siblings
from nodetopo.errors import UnreadableError
from tests.deviceplugin.conftest import RESOURCE
from tests.deviceplugin.eventually import eventually
from tests.deviceplugin.machines import GPUS, as_listed
from tests.deviceplugin.other_plugin import OtherPlugin

StartKubelet = Callable[..., FakeKubelet]
StartPlugin = Callable[..., DevicePlugin]

KUBELETS = pytest.mark.parametrize("keyed_by_socket", [False, True], ids=["1.36", "1.37"])


def is_watched(plugin: DevicePlugin) -> bool:
    return plugin.state.is_registered and plugin.state.stream_count == 1


def is_served_by(kubelet: FakeKubelet, plugins: list[DevicePlugin]) -> bool:
    """Whether one of *plugins* is what the kubelet asks, and has the devices."""
    view = kubelet.view()
    if view is None or view.devices != as_listed(GPUS):
        return False
    return view.endpoint in {plugin.state.endpoint for plugin in plugins}


def allocates(kubelet: FakeKubelet) -> bool:
    try:
        return len(kubelet.allocate(["GPU-0"]).cdi_devices) == 1
    except UnreadableError:  # a survivor registers again
        return False


@KUBELETS
@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_devices_are_there_whoever_of_three_instances_ends_first(
    start_kubelet: StartKubelet,
    start_plugin: StartPlugin,
    keyed_by_socket: bool,
    order: tuple[int, ...],
) -> None:
    kubelet = start_kubelet(keyed_by_socket=keyed_by_socket)
    running = {}
    for number in range(3):
        running[number] = start_plugin()
        assert eventually(lambda number=number: is_watched(running[number]))  # type: ignore[misc]
    for number in order[:2]:
        running.pop(number).stop()
        assert eventually(lambda: is_served_by(kubelet, list(running.values())))
        assert eventually(lambda: all(map(is_watched, running.values())))
        assert eventually(lambda: allocates(kubelet))


@KUBELETS
def test_an_instance_that_is_killed_is_replaced_by_the_one_it_replaced(
    start_kubelet: StartKubelet,
    start_plugin: StartPlugin,
    socket_dir: Path,
    keyed_by_socket: bool,
) -> None:
    kubelet, plugin = start_kubelet(keyed_by_socket=keyed_by_socket), start_plugin()
    assert eventually(lambda: is_watched(plugin))
    newer = OtherPlugin(socket_dir, "nodetopo-gpu-1-fffff001.sock", GPUS)
    newer.register(RESOURCE)
    assert eventually(lambda: plugin.state.siblings == (newer.path.name,))
    before = plugin.state.endpoint

    newer.kill()

    assert eventually(lambda: plugin.state.endpoint != before and is_watched(plugin))
    assert eventually(lambda: is_served_by(kubelet, [plugin]))
    assert plugin.state.siblings == ()


@KUBELETS
def test_two_instances_do_not_register_in_turns(
    start_kubelet: StartKubelet, start_plugin: StartPlugin, keyed_by_socket: bool
) -> None:
    """One that registers again takes another socket, which must not look like its end."""
    kubelet, older = start_kubelet(keyed_by_socket=keyed_by_socket), start_plugin()
    assert eventually(lambda: is_watched(older))
    newer = start_plugin()
    assert eventually(lambda: is_watched(newer) and bool(older.state.siblings))
    registrations = newer.state.registrations

    newer.doubt("the kubelet does not list it")
    newer.confirm()

    assert eventually(lambda: newer.state.registrations > registrations and is_watched(newer))
    assert eventually(lambda: older.state.siblings == (newer.state.endpoint,))
    assert older.state.registrations == 1 + (older.state.stream_count == 0)
    assert eventually(lambda: is_served_by(kubelet, [older, newer]))


@KUBELETS
def test_a_restart_of_the_kubelet_is_not_the_end_of_a_sibling(
    start_kubelet: StartKubelet, start_plugin: StartPlugin, keyed_by_socket: bool
) -> None:
    kubelet = start_kubelet(keyed_by_socket=keyed_by_socket)
    plugins = [start_plugin(), start_plugin()]
    assert eventually(lambda: all(map(is_watched, plugins)))
    for _ in range(5):
        kubelet.stop()
        kubelet = start_kubelet(keyed_by_socket=keyed_by_socket)
        assert eventually(lambda: all(map(is_watched, plugins)))
        assert eventually(lambda: is_served_by(kubelet, plugins))  # noqa: B023 - now


@KUBELETS
def test_devices_that_the_kubelet_does_not_list_are_registered_again(
    start_kubelet: StartKubelet, start_plugin: StartPlugin, keyed_by_socket: bool
) -> None:
    kubelet, plugin = start_kubelet(keyed_by_socket=keyed_by_socket), start_plugin()
    assert eventually(lambda: is_watched(plugin))
    before = plugin.state.endpoint

    plugin.doubt("the kubelet lists no GPU of this node")

    assert not plugin.state.is_registered
    assert plugin.state.last_problem == "the kubelet lists no GPU of this node"
    assert eventually(lambda: plugin.state.registrations == 2)
    assert not plugin.state.is_registered
    plugin.confirm()
    assert eventually(lambda: is_watched(plugin))
    assert plugin.state.endpoint != before
    assert eventually(lambda: is_served_by(kubelet, [plugin]))


def test_only_an_instance_that_registered_later_can_have_replaced_this_one() -> None:
    now = 10 * SAME_TIME_NS
    made = {"before": 0, "about then": now - SAME_TIME_NS // 2, "after": now + SAME_TIME_NS}
    found = {when: Sibling(Path("x"), ns, True).may_have_replaced(now) for when, ns in made.items()}
    assert found == {"before": False, "about then": True, "after": True}


def test_an_instance_has_ended_when_none_of_its_sockets_is_listening(
    socket_dir: Path, opened: ExitStack
) -> None:
    siblings = Siblings(RESOURCE, [socket_dir], "1-aaaaa")
    opened.callback(OtherPlugin(socket_dir, "nodetopo-gpu-1-aaaaa001.sock", GPUS).stop)
    first = OtherPlugin(socket_dir, "nodetopo-gpu-1-bbbbb001.sock", GPUS)
    assert siblings.look() == ()
    second = OtherPlugin(socket_dir, "nodetopo-gpu-1-bbbbb002.sock", GPUS)
    first.stop()
    assert siblings.look() == ()
    assert list(siblings.names) == [second.path.name]
    second.kill()
    assert [one.path.name for one in siblings.look()] == [second.path.name]
    assert siblings.look() == ()
    assert not siblings.names


def test_an_instance_that_ends_before_it_was_seen_listening_has_ended(socket_dir: Path) -> None:
    """The directory changes when a socket is bound, and it listens a moment later."""
    siblings = Siblings(RESOURCE, [socket_dir], "1-aaaaa")
    path = socket_dir / "nodetopo-gpu-1-bbbbb001.sock"
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))
        assert siblings.look() == ()
        path.unlink()
        assert [one.path for one in siblings.look()] == [path]


def test_an_instance_that_ends_during_a_look_can_have_registered_later(
    socket_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    siblings = Siblings(RESOURCE, [socket_dir], "1-aaaaa")
    ending = OtherPlugin(socket_dir, "nodetopo-gpu-1-bbbbb001.sock", GPUS)
    now = sockets.identity(ending.path)
    assert now is not None
    assert siblings.look() == ()

    def answers_last(path: Path) -> bool:
        assert path == ending.path
        ending.stop()
        return True

    with monkeypatch.context() as during:
        during.setattr(sockets, "is_listening", answers_last)
        assert siblings.look() == ()
    assert [one.may_have_replaced(now[2]) for one in siblings.look()] == [True]


def test_a_socket_that_was_left_behind_is_no_instance_for_long(socket_dir: Path) -> None:
    siblings = Siblings(RESOURCE, [socket_dir], "1-aaaaa")
    OtherPlugin(socket_dir, "nodetopo-gpu-1-bbbbb001.sock", GPUS).kill()
    seen = [(siblings.look(), siblings.names, siblings.is_any)[1:] for _ in range(3)]
    assert seen == [((), True), ((), False), ((), False)]


def test_an_instance_is_told_of_once_one_of_its_sockets_has_answered(
    socket_dir: Path, opened: ExitStack
) -> None:
    siblings = Siblings(RESOURCE, [socket_dir], "1-aaaaa")
    answering = OtherPlugin(socket_dir, "nodetopo-gpu-1-bbbbb001.sock", GPUS)
    opened.callback(answering.stop)
    OtherPlugin(socket_dir, "nodetopo-gpu-1-bbbbb002.sock", GPUS).kill()
    siblings.look()
    assert len(siblings.names) == 1


@KUBELETS
def test_the_sockets_of_a_killed_process_are_no_other_instance(
    start_kubelet: StartKubelet,
    start_plugin: StartPlugin,
    socket_dir: Path,
    keyed_by_socket: bool,
) -> None:
    start_kubelet(keyed_by_socket=keyed_by_socket)
    for number in range(4):
        OtherPlugin(socket_dir, f"nodetopo-gpu-{number}-bbbbb001.sock", GPUS).kill()
    with capture_logs() as logs:
        plugin = start_plugin()
        assert eventually(lambda: is_watched(plugin))
    assert [line["event"] for line in logs if "other instances" in line["event"]] == []
