"""Our DRA driver over a real socket, as a kubelet calls it."""

from collections.abc import Collection, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import grpc
import pytest

from agent.deviceplugin.pb import pluginregistration_pb2 as registration_pb
from agent.deviceplugin.pb import pluginregistration_pb2_grpc as registration
from agent.dra.pool import BackingDevices
from agent.draplugin.claims import AllocatedDevice, ClaimReference
from agent.draplugin.pb import dra_health_pb2 as health_pb
from agent.draplugin.pb import dra_health_pb2_grpc as health_service
from agent.draplugin.pb import dra_pb2 as pb
from agent.draplugin.pb import dra_pb2_grpc as service
from agent.draplugin.prepared import PreparedClaims
from agent.draplugin.server import SOCKET, DraServer
from agent.draplugin.service import DeviceVerdict, DraServicer, HealthServicer
from agent.errors import ApiUnavailable
from tests.deviceplugin.eventually import eventually

TIMEOUT_S = 30.0


def backing(device: str) -> BackingDevices:
    return BackingDevices(uuids=(device.upper(),), gpus=(device.upper(),))


def read(claim: ClaimReference) -> tuple[AllocatedDevice, ...]:
    if claim.name == "broken":
        raise ApiUnavailable("GET https://lab: refused", "grant it")
    return (AllocatedDevice(request="gpus/best", device=claim.name),)


def names(uuids: Collection[str]) -> tuple[str, ...]:
    return tuple(f"k/gpu={uuid}" for uuid in uuids)


class Served:
    """A driver on a socket, and a channel to it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.health = HealthServicer("n", clock=lambda: 5.0)
        prepared = PreparedClaims(directory / "claims.json", "n", read, backing, names)
        self.server = DraServer(directory, DraServicer(prepared), self.health)
        self.server.keep_up()
        self.channel = grpc.insecure_channel(f"unix:{directory / SOCKET}")
        self.driver = service.DRAPluginStub(self.channel)

    def prepare(self, *claims: str) -> pb.NodePrepareResourcesResponse:
        """Prepare the claims called so."""
        asked = [pb.Claim(namespace="ml", uid=f"uid-{name}", name=name) for name in claims]
        response: pb.NodePrepareResourcesResponse = self.driver.NodePrepareResources(
            pb.NodePrepareResourcesRequest(claims=asked), timeout=TIMEOUT_S
        )
        return response


@pytest.fixture
def served() -> Iterator[Served]:
    with TemporaryDirectory(prefix="nt-") as directory:
        one = Served(Path(directory))
        yield one
        one.channel.close()
        one.server.stop()


def test_a_claim_that_fails_does_not_hold_up_the_others(served: Served) -> None:
    response = served.prepare("a", "broken")
    (device,) = response.claims["uid-a"].devices
    assert (device.pool_name, device.device_name) == ("n", "a")
    assert list(device.request_names) == ["gpus"], "without the subrequest"
    assert list(device.cdi_device_ids) == ["k/gpu=A"]
    assert response.claims["uid-broken"].error == "GET https://lab: refused — grant it"


def test_giving_up_answers_for_every_claim(served: Served) -> None:
    served.prepare("a")
    asked = [pb.Claim(namespace="ml", uid=uid, name="x") for uid in ("uid-a", "uid-never")]
    response = served.driver.NodeUnprepareResources(
        pb.NodeUnprepareResourcesRequest(claims=asked), timeout=TIMEOUT_S
    )
    assert {uid: it.error for uid, it in response.claims.items()} == {"uid-a": "", "uid-never": ""}
    assert served.prepare("a").claims["uid-a"].error == ""


def test_the_kubelet_learns_what_serves_here(served: Served) -> None:
    stub = registration.RegistrationStub(served.channel)
    info = stub.GetInfo(registration_pb.InfoRequest(), timeout=TIMEOUT_S)
    assert (info.type, info.name, info.endpoint) == ("DRAPlugin", "nodetopo.io", "")
    assert list(info.supported_versions) == ["v1.DRAPlugin", "v1alpha1.DRAResourceHealth"]
    registrar = served.server.registrar
    for is_taken, problem in ((False, "too old"), (True, "")):
        status = registration_pb.RegistrationStatus(plugin_registered=is_taken, error=problem)
        stub.NotifyRegistrationStatus(status, timeout=TIMEOUT_S)
        assert registrar.is_registered is is_taken
        assert served.server.problem == (problem or None)


def test_health_is_sent_at_once_and_when_it_changes(served: Served) -> None:
    served.health.update({"a": DeviceVerdict(is_healthy=True)})
    stub = health_service.DRAResourceHealthStub(served.channel)
    stream = stub.NodeWatchResources(health_pb.NodeWatchResourcesRequest(), timeout=TIMEOUT_S)
    (device,) = next(stream).devices
    assert (device.device.pool_name, device.device.device_name) == ("n", "a")
    assert (device.health, device.last_updated_time) == (health_pb.HEALTHY, 5)
    served.health.update({"a": DeviceVerdict(is_healthy=False, message="it is lost")})
    (device,) = next(stream).devices
    assert (device.health, device.message) == (health_pb.UNHEALTHY, "it is lost")
    stream.cancel()


def test_a_socket_that_vanishes_is_made_again(served: Served) -> None:
    path = served.directory / SOCKET
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
    path = served.directory / SOCKET
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
        server = DraServer(directory, DraServicer(prepared), HealthServicer("n"))
        server.keep_up()
        assert "no directory" in (server.problem or "")
        directory.mkdir()
        server.keep_up()
        assert eventually(lambda: server.problem is None)
        server.stop()
