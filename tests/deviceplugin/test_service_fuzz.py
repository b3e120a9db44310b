"""Whatever a client sends, the service answers as it is designed to, and lives."""

from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodetopo.deviceplugin.pb import deviceplugin_pb2 as pb
from tests.deviceplugin.machines import GPUS
from tests.deviceplugin.raw_client import ASKED_S, Client, serving

IDS = st.lists(st.one_of(st.sampled_from([gpu.id for gpu in GPUS]), st.text(max_size=300)))
METHODS = (
    "GetDevicePluginOptions",
    "ListAndWatch",
    "GetPreferredAllocation",
    "Allocate",
    "PreStartContainer",
)


@pytest.fixture(scope="module")
def served() -> Iterator[Client]:
    with serving() as it:
        yield it


def status(call: Callable[[], object]) -> grpc.StatusCode:
    try:
        call()
    except grpc.RpcError as caught:
        error: Any = caught
        code: grpc.StatusCode = error.code()
        return code
    return grpc.StatusCode.OK


@settings(deadline=None)
@given(containers=st.lists(IDS, max_size=3))
def test_any_ids_are_allocated_or_invalid(served: Client, containers: list[list[str]]) -> None:
    known = {gpu.id for gpu in GPUS}
    is_valid = all(known.issuperset(ids) for ids in containers)
    requests = [{"devices_ids": ids} for ids in containers]
    request = pb.AllocateRequest(container_requests=requests)
    expected = grpc.StatusCode.OK if is_valid else grpc.StatusCode.INVALID_ARGUMENT
    assert status(lambda: served.stub.Allocate(request, timeout=ASKED_S)) == expected


@pytest.mark.parametrize("name", ["\x00", "\x1b[31m", "é" * 2000, "GPU-0\n", "🔥" * 5000, "%00%"])
def test_odd_names_are_invalid(served: Client, name: str) -> None:
    assert status(lambda: served.allocate(name)) == grpc.StatusCode.INVALID_ARGUMENT


def test_more_than_grpc_takes_is_refused_and_the_next_call_is_answered(served: Client) -> None:
    assert status(lambda: served.allocate("x" * (5 << 20))) == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert len(served.allocate("GPU-0").container_responses) == 1


def test_a_preferred_set_of_ten_thousand_is_answered(served: Client) -> None:
    available = [f"GPU-{n}" for n in range(10_000)]
    assert len(served.preferred(available, available[5000:], 7000)) == 7000


@settings(deadline=None, max_examples=60)
@given(method=st.sampled_from(METHODS), body=st.binary(max_size=200))
def test_any_bytes_are_answered(served: Client, method: str, body: bytes) -> None:
    path = f"/v1beta1.DevicePlugin/{method}"
    channel: Any = served.channel  # bytes go over it as they are
    if method == "ListAndWatch":
        stream = channel.unary_stream(path)(body, timeout=ASKED_S)
        found = status(lambda: next(stream))
        stream.cancel()
    else:
        call = channel.unary_unary(path)
        found = status(lambda: call(body, timeout=ASKED_S))
    # INTERNAL is what gRPC itself answers to bytes that are no message.
    assert found in {
        grpc.StatusCode.OK,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.INTERNAL,
    }


@pytest.mark.parametrize("path", ["/v1beta1.DevicePlugin/Reset", "/v1beta1.Registration/Register"])
def test_calls_that_are_not_offered_are_unimplemented(served: Client, path: str) -> None:
    channel: Any = served.channel
    call = channel.unary_unary(path)
    assert status(lambda: call(b"", timeout=ASKED_S)) == grpc.StatusCode.UNIMPLEMENTED
