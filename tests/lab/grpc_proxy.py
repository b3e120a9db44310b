"""A tap between the agent and the kubelet: passes every call on, and keeps what was asked.

The agent logs how many devices it was offered, not which; and a test shall not believe the
log of what it tests. To the agent the tap is the kubelet, to the kubelet it is the plugin, and
one that can be told to fail.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import grpc
from msgspec import Struct

from nodetopo.deviceplugin.pb import deviceplugin_pb2 as pb
from nodetopo.deviceplugin.pb import deviceplugin_pb2_grpc as service
from nodetopo.deviceplugin.registration import CHANNEL_OPTIONS

_SERVICE = "/v1beta1.DevicePlugin/"
_STREAM = f"{_SERVICE}ListAndWatch"
_PREFERRED = f"{_SERVICE}GetPreferredAllocation"
_SOCKET = "tap.sock"
_THREADS = 4
"""One holds the kubelet's ListAndWatch, one its calls; Register is a call of its own."""


class Asked(Struct, frozen=True, kw_only=True):
    """One GetPreferredAllocation call for one container, ids in ascending order.

    Attributes:
        available, required, size: the request.
        answer: what the plugin preferred.
    """

    available: tuple[str, ...]
    required: tuple[str, ...]
    size: int
    answer: tuple[str, ...]


class Tap(service.RegistrationServicer):
    """Serve the agent in *agent_side* and the kubelet in *kubelet_side* until :meth:`close`.

    Attributes:
        agent_side: the directory that is to be the agent's ``--device-plugin-dir``.
        asked: every preference asked for so far, in order; the kubelet admits one pod at a time.
        calls: the method of every call of the kubelet's so far, such as ``ListAndWatch``.
    """

    def __init__(self, *, agent_side: Path, kubelet_side: Path) -> None:
        self.asked: list[Asked] = []
        self.calls: list[str] = []
        self.agent_side = agent_side
        self._kubelet_side = kubelet_side
        self._plugin: Any = None  # a channel; its calls on bare bytes have no public types
        self._lists: Any = None  # the call whose answers are the device lists
        self._refused: frozenset[str] = frozenset()
        self._pool = ThreadPoolExecutor(2 * _THREADS, thread_name_prefix="tap")
        agent_side.mkdir()
        self._registration = grpc.server(self._pool)
        service.add_RegistrationServicer_to_server(self, self._registration)
        self._registration.add_insecure_port(f"unix:{agent_side / 'kubelet.sock'}")
        self._devices = grpc.server(self._pool, handlers=[_Relay(self)])
        self._devices.add_insecure_port(f"unix:{kubelet_side / _SOCKET}")
        self._devices.start()
        self._registration.start()

    def close(self) -> None:
        """Hang up on both sides."""
        for server in (self._registration, self._devices):
            server.stop(None).wait()
        if self._plugin is not None:
            self._plugin.close()
        self._pool.shutdown()

    def refuse(self, *methods: str) -> None:
        """Fail the kubelet's calls of *methods* from now on, a stream that is open included.

        No method at all ends the refusals.
        """
        self._refused = frozenset(methods)
        if "ListAndWatch" in methods and self._lists is not None:
            self._lists.cancel()

    def Register(  # noqa: N802 - the service's own name
        self, request: pb.RegisterRequest, context: grpc.ServicerContext
    ) -> pb.Empty:
        """Register the tap with the kubelet in the agent's place."""
        del context
        self._plugin = _dial(self.agent_side / request.endpoint)
        request.endpoint = _SOCKET
        with _dial(self._kubelet_side / "kubelet.sock") as kubelet:
            answer: pb.Empty = service.RegistrationStub(kubelet).Register(request, timeout=12)
        return answer

    def call(self, method: str, request: bytes, context: grpc.ServicerContext) -> bytes:
        """Pass one call on; both messages as they are on the wire."""
        assert self._plugin is not None, "nobody registered"
        self._keep_call(method, context)
        answer: bytes = self._plugin.unary_unary(method)(request)
        if method == _PREFERRED:
            self._keep(request, answer)
        return answer

    def stream(self, request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        """Pass the device lists on until either side ends."""
        assert self._plugin is not None, "nobody registered"
        self._keep_call(_STREAM, context)
        lists = self._lists = self._plugin.unary_stream(_STREAM)(request)
        if context.add_callback(lists.cancel):
            yield from _until_the_end(lists)
        self._refuse_if_told(_STREAM, context)

    def _keep_call(self, method: str, context: grpc.ServicerContext) -> None:
        self.calls.append(method.removeprefix(_SERVICE))
        self._refuse_if_told(method, context)

    def _refuse_if_told(self, method: str, context: grpc.ServicerContext) -> None:
        if method.removeprefix(_SERVICE) in self._refused:
            context.abort(grpc.StatusCode.INTERNAL, f"the tap refuses {method}")

    def _keep(self, request: bytes, answer: bytes) -> None:
        asked = pb.PreferredAllocationRequest.FromString(request).container_requests
        chosen = pb.PreferredAllocationResponse.FromString(answer).container_responses
        self.asked += [
            Asked(
                available=tuple(sorted(one.available_deviceIDs)),
                required=tuple(sorted(one.must_include_deviceIDs)),
                size=one.allocation_size,
                answer=tuple(sorted(other.deviceIDs)),
            )
            for one, other in zip(asked, chosen, strict=True)
        ]


class _Relay(grpc.GenericRpcHandler):
    """Hands whatever the kubelet calls to the tap."""

    def __init__(self, tap: Tap) -> None:
        self._tap = tap

    def service(self, handler_call_details: Any) -> Any:
        method: str = handler_call_details.method
        if method == _STREAM:
            return grpc.unary_stream_rpc_method_handler(self._tap.stream)
        return grpc.unary_unary_rpc_method_handler(partial(self._call, method))

    def _call(self, method: str, request: bytes, context: grpc.ServicerContext) -> bytes:
        return self._tap.call(method, request, context)


def _dial(socket: Path) -> grpc.Channel:
    return grpc.insecure_channel(f"unix:{socket}", options=CHANNEL_OPTIONS)


def _until_the_end(lists: Any) -> Iterator[bytes]:
    try:
        yield from lists
    except grpc.RpcError:
        return  # every way a stream ends is one of these, our own cancel included
