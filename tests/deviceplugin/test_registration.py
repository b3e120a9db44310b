from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from agent.deviceplugin.fake_kubelet import StandInKubelet
from agent.deviceplugin.pb import deviceplugin_pb2 as pb
from agent.deviceplugin.pb import deviceplugin_pb2_grpc as service
from agent.deviceplugin.registration import Backoff, Registrar
from agent.errors import UnreadableError


def test_delays_double_up_to_the_longest() -> None:
    backoff = Backoff(first_s=1, last_s=5)
    assert [backoff.delay() for _ in range(5)] == [1, 2, 4, 5, 5]


def test_a_reset_begins_with_the_shortest_delay() -> None:
    backoff = Backoff(first_s=1, last_s=5)
    backoff.delay()
    backoff.reset()
    assert backoff.delay() == 1


def test_a_kubelet_that_is_not_there_is_told(socket_dir: Path) -> None:
    with pytest.raises(UnreadableError, match=r"did not register nvidia.com/gpu: UNAVAILABLE"):
        Registrar(socket_dir / "kubelet.sock").register("nvidia.com/gpu", "gpu.sock")


def test_nothing_is_called_after_a_cancel(socket_dir: Path) -> None:
    registrar = Registrar(socket_dir / "kubelet.sock")
    registrar.cancel()
    with pytest.raises(UnreadableError, match="cancelled"):
        registrar.register("nvidia.com/gpu", "gpu.sock")


def test_the_stand_in_refuses_an_endpoint_that_nobody_serves(
    start_kubelet: Callable[[], StandInKubelet], socket_dir: Path
) -> None:
    start_kubelet()
    with pytest.raises(UnreadableError, match="failed to dial device plugin"):
        Registrar(socket_dir / "kubelet.sock").register("nvidia.com/gpu", "gpu.sock")


def test_the_stand_in_refuses_another_version(
    start_kubelet: Callable[[], StandInKubelet], dial: Callable[[str], grpc.Channel]
) -> None:
    start_kubelet()
    stub = service.RegistrationStub(dial("kubelet.sock"))
    with pytest.raises(grpc.RpcError, match="version 'v1' is not v1beta1"):
        stub.Register(pb.RegisterRequest(version="v1"))


class AlreadyConnected(service.RegistrationServicer):
    """What kubelet 1.37 answers to a second registration of a live socket."""

    def Register(  # noqa: N802 - the service's own name
        self, request: pb.RegisterRequest, context: grpc.ServicerContext
    ) -> pb.Empty:
        """Refuse."""
        context.abort(
            grpc.StatusCode.UNKNOWN, f"device plugin already connected: {request.endpoint}"
        )


def test_already_connected_is_as_good_as_registered(
    socket_dir: Path, serve: Callable[[service.RegistrationServicer], None]
) -> None:
    serve(AlreadyConnected())
    Registrar(socket_dir / "kubelet.sock").register("nvidia.com/gpu", "gpu.sock")
