"""Connections that verify a server as kubectl does, and notice a server that is gone.

Python 3.13 and urllib3 ask certificates for extensions that RFC 5280 demands of new ones
(``VERIFY_X509_STRICT``), such as the usage of an authority's key. Go's clients do not, so clusters
with older or hand-made authorities work with all of Kubernetes' own programs, and must with this
one.
"""

import socket
import ssl
from typing import Any

from urllib3 import HTTPSConnectionPool, PoolManager
from urllib3.connection import HTTPSConnection
from urllib3.util.ssl_ import create_urllib3_context

_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""Seconds of silence before the kernel asks the other end, seconds between its questions, and how
many stay unanswered: Kubernetes' own clients give a connection up after 45 s, too."""


class _Connection(HTTPSConnection):
    """A connection; without a context of its caller it has a new one each time it connects.

    A context keeps the authorities that it has loaded, so that a new one is what trusts no
    authority that was replaced.
    """

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._is_own = self.ssl_context is None

    def connect(self) -> None:
        if self._is_own:
            self.ssl_context = as_kubectl(create_urllib3_context())
        super().connect()


class _Pool(HTTPSConnectionPool):
    ConnectionCls = _Connection


def as_kubectl(context: ssl.SSLContext) -> ssl.SSLContext:
    """Return *context*, which from now on accepts the certificates that kubectl accepts."""
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def as_kubectl_connects(pool: PoolManager) -> PoolManager:
    """Return *pool*, whose new connections verify and keep watch of servers as kubectl's do."""
    pool.pool_classes_by_scheme = {**pool.pool_classes_by_scheme, "https": _Pool}
    pool.connection_pool_kw["socket_options"] = [
        *HTTPSConnection.default_socket_options,
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        *(
            (socket.IPPROTO_TCP, getattr(socket, name), value)
            for name, value in _KEEPALIVE.items()
            if hasattr(socket, name)  # Darwin has other names for some
        ),
    ]
    return pool
