"""Our DRA driver over a real socket, as a kubelet calls it."""

import socket
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from nodetopo.components.dra.driver import prepared as prepared_module
from nodetopo.components.dra.driver.claims import AllocatedDevice, ClaimReference
from nodetopo.components.dra.driver.pb import dra_health_pb2 as health_pb
from nodetopo.components.dra.driver.pb import dra_health_pb2_grpc as health_service
from nodetopo.components.dra.driver.pb import dra_health_v1_pb2 as health_v1_pb
from nodetopo.components.dra.driver.pb import dra_health_v1_pb2_grpc as health_v1
from nodetopo.components.dra.driver.pb import dra_pb2 as pb
from nodetopo.components.dra.driver.pb import dra_pb2_grpc as service
from nodetopo.components.dra.driver.prepared import GIVE_UP_S, PreparedClaims
from nodetopo.components.dra.driver.server import DraServer
from nodetopo.components.dra.driver.service import DeviceHealth, DeviceVerdict, DraServicer
from nodetopo.components.dra.pool import BackingDevices
from nodetopo.deviceplugin import sockets
from nodetopo.deviceplugin.pb import pluginregistration_pb2 as registration_pb
from nodetopo.deviceplugin.pb import pluginregistration_pb2_grpc as registration
from nodetopo.deviceplugin.server import POOL_THREADS
from nodetopo.errors import ApiUnavailable
from tests.deviceplugin.eventually import eventually

TIMEOUT_S = 30.0


def backing(device: str) -> BackingDevices:
    device = device.partition("-")[0].upper()
    return BackingDevices(uuids=(device,), gpus=(device,))


def read(claim: ClaimReference) -> tuple[AllocatedDevice, ...]:
    if claim.name == "broken":
        raise ApiUnavailable("GET https://lab: refused", "grant it")
    return (AllocatedDevice(request="gpus/best", device=claim.name),)


def names(uuids: Collection[str]) -> tuple[str, ...]:
    return tuple(f"k/gpu={uuid}" for uuid in uuids)


class Served:
    """A driver on a socket, and a channel to it."""

    def __init__(self, directory: Path, give_up_s: float = GIVE_UP_S) -> None:
        self.directory = directory
        self.health = DeviceHealth("n", clock=lambda: 5.0)
        self.prepared = PreparedClaims(
            directory / "claims.json", "n", read, backing, names, give_up_s=give_up_s
        )
        self.servicer = DraServicer(self.prepared)
        self.server = DraServer(directory, self.servicer, self.health)
        self.server.keep_up()
        self.channel = grpc.insecure_channel(f"unix:{self.server.path}")
        self.driver = service.DRAPluginStub(self.channel)

    def prepare(self, *claims: str) -> pb.NodePrepareResourcesResponse:
        """Prepare the claims called so."""
        asked = [pb.Claim(namespace="ml", uid=f"uid-{name}", name=name) for name in claims]
        response: pb.NodePrepareResourcesResponse = self.driver.NodePrepareResources(
            pb.NodePrepareResourcesRequest(claims=asked), timeout=TIMEOUT_S
        )
        return response

    def unprepare(self, *uids: str) -> pb.NodeUnprepareResourcesResponse:
        """Give up the claims with these *uids*."""
        asked = [pb.Claim(namespace="ml", uid=uid, name="x") for uid in uids]
        response: pb.NodeUnprepareResourcesResponse = self.driver.NodeUnprepareResources(
            pb.NodeUnprepareResourcesRequest(claims=asked), timeout=TIMEOUT_S
        )
        return response

    def stop(self) -> None:
        """End the server and the channel."""
        self.channel.close()
        self.server.stop()


@pytest.fixture
def served() -> Iterator[Served]:
    with TemporaryDirectory(prefix="nt-") as directory:
        one = Served(Path(directory))
        yield one
        one.stop()


def test_a_claim_that_fails_does_not_hold_up_the_others(served: Served) -> None:
    response = served.prepare("a", "broken")
    (device,) = response.claims["uid-a"].devices
    assert (device.pool_name, device.device_name) == ("n", "a")
    assert list(device.request_names) == ["gpus"], "without the subrequest"
    assert list(device.cdi_device_ids) == ["k/gpu=A"]
    assert response.claims["uid-broken"].error == "GET https://lab: refused — grant it"


def test_claims_that_wait_leave_threads_for_those_that_they_wait_for() -> None:
    many = 2 * POOL_THREADS
    numbers = range(many)
    with TemporaryDirectory(prefix="nt-") as directory, ThreadPoolExecutor(many) as callers:
        served = Served(Path(directory), give_up_s=2 * TIMEOUT_S)
        assert all(served.prepare(f"{n}-old").claims[f"uid-{n}-old"].error == "" for n in numbers)
        successors = [callers.submit(served.prepare, f"{n}-new") for n in numbers]
        assert eventually(lambda: served.servicer._calls >= POOL_THREADS)
        for n in numbers:
            served.unprepare(f"uid-{n}-old")
        errors = [it.error for call in successors for it in call.result().claims.values()]
        assert errors == [""] * many
        served.stop()


class Clock:
    """Seconds that pass only while somebody waits."""

    now = 1000.0

    def monotonic(self) -> float:
        """Return them."""
        return self.now

    def wait(self, seconds: float) -> None:
        """Let them pass."""
        self.now += seconds


@pytest.mark.parametrize(("left_s", "waited_s"), [(45.0, 20.0), (12.0, 7.0), (3.0, 0.0)])
def test_the_claims_of_one_call_wait_no_longer_than_one(
    monkeypatch: pytest.MonkeyPatch, left_s: float, waited_s: float
) -> None:
    prepared = PreparedClaims(None, "n", read, backing, names)
    prepared.prepare(ClaimReference(uid="0", namespace="ml", name="a"))
    clock = Clock()
    monkeypatch.setattr(prepared_module, "time", clock)
    monkeypatch.setattr(prepared._lock, "wait", clock.wait)
    context: Any = SimpleNamespace(time_remaining=lambda: left_s)
    asked = [pb.Claim(namespace="ml", uid=uid, name="a") for uid in "123"]
    response = DraServicer(prepared).NodePrepareResources(
        pb.NodePrepareResourcesRequest(claims=asked), context
    )
    assert all("which the claim ml/a has" in it.error for it in response.claims.values())
    assert clock.now == 1000.0 + waited_s


def test_giving_up_answers_for_every_claim(served: Served) -> None:
    served.prepare("a")
    response = served.unprepare("uid-a", "uid-never")
    assert {uid: it.error for uid, it in response.claims.items()} == {"uid-a": "", "uid-never": ""}
    assert served.prepare("a").claims["uid-a"].error == ""


def test_the_kubelet_learns_what_serves_here(served: Served) -> None:
    stub = registration.RegistrationStub(served.channel)
    info = stub.GetInfo(registration_pb.InfoRequest(), timeout=TIMEOUT_S)
    assert (info.type, info.name, info.endpoint) == ("DRAPlugin", "nodetopo.io", "")
    assert list(info.supported_versions) == [
        "v1.DRAPlugin",
        "v1.DRAResourceHealth",
        "v1alpha1.DRAResourceHealth",
    ]
    registrar = served.server.registrar
    for is_taken, problem in ((False, "too old"), (True, "")):
        status = registration_pb.RegistrationStatus(plugin_registered=is_taken, error=problem)
        stub.NotifyRegistrationStatus(status, timeout=TIMEOUT_S)
        assert registrar.is_registered is is_taken
        assert served.server.problem == (problem or None)


@pytest.mark.parametrize(
    ("stub", "pb_of_version"),
    [
        (health_service.DRAResourceHealthStub, health_pb),
        (health_v1.DRAResourceHealthStub, health_v1_pb),
    ],
)
def test_health_is_sent_at_once_and_when_it_changes(
    served: Served, stub: Any, pb_of_version: Any
) -> None:
    served.health.update({"a": DeviceVerdict(is_healthy=True)})
    asked = pb_of_version.NodeWatchResourcesRequest()
    stream = stub(served.channel).NodeWatchResources(asked, timeout=TIMEOUT_S)
    (device,) = next(stream).devices
    assert (device.device.pool_name, device.device.device_name) == ("n", "a")
    assert (device.health, device.last_updated_time) == (pb_of_version.HEALTHY, 5)
    served.health.update({"a": DeviceVerdict(is_healthy=False, message="it is lost")})
    (device,) = next(stream).devices
    assert (device.health, device.message) == (pb_of_version.UNHEALTHY, "it is lost")
    stream.cancel()


def test_a_stream_of_health_ends_with_the_server(served: Served) -> None:
    served.health.update({"a": DeviceVerdict(is_healthy=True)})
    stub = health_v1.DRAResourceHealthStub(served.channel)
    stream = stub.NodeWatchResources(health_v1_pb.NodeWatchResourcesRequest(), timeout=TIMEOUT_S)
    next(stream)
    served.health.end()
    assert list(stream) == []


def test_of_two_processes_the_one_that_served_last_is_the_newest(served: Served) -> None:
    with second(served) as later:
        assert later.server.path != served.server.path
        assert served.server.newer() == later.server.path
        assert later.server.newer() is None
    assert served.server.newer() is None, "it has ended"


def test_the_socket_of_a_killed_process_is_removed(served: Served) -> None:
    left = served.directory / "nodetopo.io-abc123-reg.sock"
    other = served.directory / "gpu.nvidia.com-reg.sock"
    for path in (left, other):
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
    assert served.server.newer() is None
    assert (left.exists(), other.exists()) == (False, True)


def test_two_processes_prepare_each_claim_once(served: Served) -> None:
    with second(served) as later:
        assert served.prepare("a").claims["uid-a"].error == ""
        assert later.prepare("a").claims["uid-a"].devices[0].device_name == "a"
        asked = pb.NodeUnprepareResourcesRequest(claims=[pb.Claim(uid="uid-a", name="a")])
        later.driver.NodeUnprepareResources(asked, timeout=TIMEOUT_S)
    served.prepared.refresh()
    assert served.prepared.claims == ()


@contextmanager
def second(first: Served) -> Iterator[Served]:
    """Yield another process' driver, that began to serve after *first*."""
    made = sockets.identity(first.server.path)
    assert made is not None

    def is_later() -> bool:
        first.directory.joinpath("now").touch()
        now = sockets.identity(first.directory / "now")
        first.directory.joinpath("now").unlink()
        return now is not None and now[2] > made[2]

    assert eventually(is_later), "the clock of the file system ticks"
    later = Served(first.directory)
    try:
        yield later
    finally:
        later.channel.close()
        later.server.stop()


def test_a_socket_that_vanishes_is_made_again(served: Served) -> None:
    path = served.server.path
    path.unlink()
    served.server.keep_up()
    assert path.is_socket()
    fresh = service.DRAPluginStub(grpc.insecure_channel(f"unix:{path}"))
    assert (
        fresh.NodePrepareResources(
            pb.NodePrepareResourcesRequest(), timeout=TIMEOUT_S, wait_for_ready=True
        )
        == pb.NodePrepareResourcesResponse()
    )


def test_the_end_removes_the_socket_and_not_another_ones(served: Served) -> None:
    path = served.server.path
    served.server.stop()
    assert not path.exists()
    served.server.keep_up()
    path.unlink()
    path.touch()
    served.server.stop()
    assert path.exists()


def test_a_missing_directory_is_a_problem_until_it_is_there() -> None:
    with TemporaryDirectory(prefix="nt-") as base:
        directory = Path(base) / "registry"
        prepared = PreparedClaims(None, "n", read, backing, names)
        server = DraServer(directory, DraServicer(prepared), DeviceHealth("n"))
        server.keep_up()
        assert "no directory" in (server.problem or "")
        directory.mkdir()
        server.keep_up()
        assert eventually(lambda: server.problem is None)
        server.stop()
