"""Connections into a pod by way of its kubelet, as ``kubectl port-forward`` makes them."""

import ssl

import websocket
from msgspec import Struct

from tests.lab.machine_node import Node

PROTOCOL = "v4.channel.k8s.io"
"""A binary message begins with its channel: 0 the data of the first port, 1 its errors. The first
message of each is the number of the port (kubelet portforward/websocket.go)."""

_TIMEOUT_S = 60.0


class PortForward(Struct, frozen=True, kw_only=True):
    """One port of a pod."""

    url: str
    token: str

    def get(self, path: str) -> bytes:
        """Return the whole answer to a request for *path*."""
        connection = websocket.create_connection(
            self.url,
            timeout=_TIMEOUT_S,
            header=[f"Authorization: Bearer {self.token}"],
            subprotocols=[PROTOCOL],
            sslopt={"cert_reqs": ssl.CERT_NONE},  # the kubelet signs its certificate itself
            http_no_proxy=["*"],
        )
        answer = {0: b"", 1: b""}
        try:
            connection.send_binary(b"\0" + f"GET {path} HTTP/1.0\r\n\r\n".encode())
            while message := connection.recv():
                assert isinstance(message, bytes), message
                answer[message[0]] += message[1:]
        except websocket.WebSocketConnectionClosedException:
            pass
        finally:
            connection.shutdown()  # type: ignore[no-untyped-call]  # closes the socket too
        assert answer[1][2:] == b"", answer[1]
        return answer[0][2:]


def forward(node: Node, token: str, pod: str, port: int) -> PortForward:
    """Return the way to *port* of *pod* by the kubelet of *node*, which *token* may use."""
    kubelet = node.kubelet_url.replace("https://", "wss://")
    return PortForward(url=f"{kubelet}/portForward/default/{pod}?port={port}", token=token)
