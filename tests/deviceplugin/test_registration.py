from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from nodetopo.deviceplugin.fake_kubelet import FakeKubelet
from nodetopo.deviceplugin.pb import deviceplugin_pb2 as pb
from nodetopo.deviceplugin.pb import deviceplugin_pb2_grpc as service
from nodetopo.deviceplugin.registration import RegistrationClient, RegistrationError
from nodetopo.errors import UnreadableError
from tests.generous_deadlines import PATIENCE_S


def client(socket_dir: Path) -> RegistrationClient:
    return RegistrationClient(socket_dir / "kubelet.sock", PATIENCE_S)


def test_a_missing_kubelet_is_an_error(socket_dir: Path) -> None:
    with pytest.raises(UnreadableError, match=r"did not register nvidia.com/gpu: UNAVAILABLE"):
        client(socket_dir).register("nvidia.com/gpu", "gpu.sock")


def test_nothing_is_called_after_a_cancel(socket_dir: Path) -> None:
    cancelled = client(socket_dir)
    cancelled.cancel()
    with pytest.raises(UnreadableError, match="cancelled"):
        cancelled.register("nvidia.com/gpu", "gpu.sock")


def test_the_fake_kubelet_refuses_an_endpoint_that_nobody_serves(
    start_kubelet: Callable[[], FakeKubelet], socket_dir: Path
) -> None:
    start_kubelet()
    with pytest.raises(UnreadableError, match="failed to dial device plugin"):
        client(socket_dir).register("nvidia.com/gpu", "gpu.sock")


def test_the_fake_kubelet_refuses_another_version(
    start_kubelet: Callable[[], FakeKubelet], dial: Callable[[str], grpc.Channel]
) -> None:
    start_kubelet()
    stub = service.RegistrationStub(dial("kubelet.sock"))
    with pytest.raises(grpc.RpcError, match="version 'v1' is not v1beta1"):
        stub.Register(pb.RegisterRequest(version="v1"))


class Refusing(service.RegistrationServicer):
    """What kubelet 1.37 answers to a second registration of a live socket."""

    def Register(  # noqa: N802 - the service's own name
        self, request: pb.RegisterRequest, context: grpc.ServicerContext
    ) -> pb.Empty:
        """Refuse."""
        problem = f"device plugin already connected: {request.endpoint}"
        context.abort(grpc.StatusCode.UNKNOWN, problem)


def test_a_kubelet_that_refuses_may_be_connected_and_one_that_is_gone_is_not(
    socket_dir: Path, serve: Callable[[service.RegistrationServicer], None]
) -> None:
    with pytest.raises(RegistrationError) as gone:
        client(socket_dir).register("nvidia.com/gpu", "gpu.sock")
    serve(Refusing())
    with pytest.raises(RegistrationError, match="already connected") as refused:
        client(socket_dir).register("nvidia.com/gpu", "gpu.sock")
    assert (gone.value.may_be_connected, refused.value.may_be_connected) == (False, True)
