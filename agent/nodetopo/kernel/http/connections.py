"""HTTP connections from untrusted clients, limited in number and time.

Anyone who reaches the port can open connections and leave them half done. Each has a thread and
must finish request and answer within :data:`DEADLINE_S`. Beyond :data:`MOST` connections, the
oldest with an incomplete request is closed, so that a probe, which sends its request at once, is
always served.

Other servers stop accepting at their limit (waitress, ``connection_limit``), and bound the silence
between two bytes instead of the request.
"""

import errno
import re
import resource
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import cached_property
from threading import Event, Lock, RLock, Thread

from msgspec import Struct, field

MOST = 32
"""Most simultaneous connections, including those waiting for their answer."""

MOST_WAITING = 24
"""Requests that wait for an answer that takes time to make; the other places are for probes."""

DEADLINE_S = 10.0
"""For reading a request and writing its answer; the time to make the answer is not counted."""

MOST_HEAD = 32 << 10
"""Bytes of a request line with its headers; Prometheus sends some 300."""

PAUSE_S = 0.2
"""Pause in accepting after the system refused a descriptor."""

RESTS = 3
"""Pause after each second of answering: clients can use at most a quarter of a core."""

MOST_REST_S = 1.0

HURRY_S = 0.25
"""In place of :data:`DEADLINE_S` at the system's limit of threads. Clients take turns there, and
only probes are answered: the kubelet gives up before a longer answer to another is made."""

RESERVED = 64
"""Descriptors that no connection takes: the kubelet's sockets, state files and a new NVML process
need them."""

BACKLOG = 512
"""Connections that the kernel completes before they are accepted."""

CLOSE_S = 2.0
"""How long the end of the server waits for its threads."""

_END_OF_HEAD = re.compile(rb"\r?\n\r?\n")
_SCARCE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_LOCALHOST = frozenset({"127.0.0.1", "::1", "::ffff:127.0.0.1"})
_EMPTY = b"Content-Length: 0\r\n\r\n"
_BUSY = b"HTTP/1.0 503 Service Unavailable\r\nRetry-After: 1\r\n" + _EMPTY
_TOO_LARGE = b"HTTP/1.0 431 Request Header Fields Too Large\r\n" + _EMPTY


class Request(Struct, frozen=True, kw_only=True, dict=True):
    """A complete request without a body."""

    head: bytes  # the request line and the headers, with the empty line
    is_local: bool  # whether the client connected to localhost: 127.0.0.1 or ::1

    @cached_property
    def path(self) -> bytes:
        """The path of the target, without its query; empty where the line has none."""
        words = self.head.partition(b"\n")[0].split()
        return words[1].partition(b"?")[0] if len(words) > 1 else b""

    @cached_property
    def answer_key(self) -> tuple[bytes, bytes, bool]:
        """Equal for requests that get the same answer: line, accepted types, who asks."""
        lines = self.head.split(b"\n")
        accept = (line.strip() for line in lines[1:] if line[:7].lower() == b"accept:")
        return lines[0].strip(), b",".join(accept), self.is_local


Respond = Callable[[Request], bytes]
"""Returns the complete answer, including the status line; any thread can call it."""


class _Maker:
    """Makes one answer at a time; requests that wait for the same answer share it.

    A request that arrives during the work gets the next answer, which is up to date.
    """

    def __init__(self, respond: Respond, closing: Event) -> None:
        self._respond = respond
        self._closing = closing
        self._turn = Lock()
        self._rests_until = 0.0
        self._lock = Lock()
        self._waiting: dict[tuple[bytes, bytes, bool], Future[bytes]] = {}

    def answer(self, request: Request) -> bytes:
        """Return the answer to *request*, made after this call."""
        with self._lock:
            is_first = request.answer_key not in self._waiting
            shared = self._waiting.setdefault(request.answer_key, Future())
        if is_first:
            with self._turn:
                self._closing.wait(max(0.0, self._rests_until - time.monotonic()))
                with self._lock:
                    del self._waiting[request.answer_key]
                began = time.monotonic()
                try:
                    shared.set_result(self._respond(request))
                except BaseException as error:
                    shared.set_exception(error)  # or the others would wait for ever
                    raise
                ended = time.monotonic()
                self._rests_until = ended + min(RESTS * (ended - began), MOST_REST_S)
        return shared.result()


class _Connection(Struct, eq=False):
    """One client."""

    socket: socket.socket
    is_local: bool
    left_s: float = field(default_factory=lambda: DEADLINE_S)
    is_read: bool = False  # its request is complete
    is_made: bool = False  # its answer is being made
    is_hurried: bool = False  # others wait until it has its answer

    def read(self) -> bytes | None:
        """Return the head of the request; ``None`` if it is too large."""
        received = bytearray()
        end = None
        while end is None:
            if len(received) >= MOST_HEAD:
                return None
            began = time.monotonic()
            self.socket.settimeout(max(self.left_s, 1e-3))
            chunk = self.socket.recv(MOST_HEAD)
            self.left_s -= time.monotonic() - began
            if not chunk:
                raise ConnectionError  # half a request is none
            if self.left_s <= 0:
                raise TimeoutError
            seen = max(0, len(received) - 3)
            received += chunk
            end = _END_OF_HEAD.search(received, seen)
        return bytes(received[: end.end()])

    def write(self, answer: bytes) -> None:
        """Send *answer*, and take what is left unread, which would reset the connection."""
        self.socket.settimeout(max(self.left_s, 1e-3))  # for all of it
        self.socket.sendall(answer)
        self.socket.shutdown(socket.SHUT_WR)
        self.socket.setblocking(False)
        with suppress(BlockingIOError):
            self.socket.recv(MOST_HEAD)

    def end(self) -> None:
        """Wake the thread of this client, which closes it."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)


class Connections:
    """Serves HTTP on *listeners*; closes them at the end.

    Args:
        listeners: bound and listening.
        respond: makes answers, one at a time.
        quick: by path, handlers that answer from memory without a lock, at once.
        separate: paths whose answers are made alongside the others, which never delay them.
    """

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        respond: Respond,
        *,
        quick: Mapping[bytes, Respond],
        separate: frozenset[bytes],
    ) -> None:
        """Serve at once."""
        self._listeners = tuple(listeners)
        self._quick = quick
        self._separate = separate
        self._closing = Event()
        self._answers = _Maker(respond, self._closing)
        self._probes = _Maker(respond, self._closing)
        self._lock = RLock()  # guards the two below
        self._open: dict[_Connection, None] = {}  # oldest first
        self._refused = Counter(limit=0, deadline=0, descriptors=0)
        self._threads = [
            Thread(target=self._accept, args=[listener], name="http", daemon=True)
            for listener in self._listeners
        ]
        for thread in self._threads:
            thread.start()

    @property
    def count(self) -> int:
        """How many connections are open."""
        return len(self._open)

    @property
    def refused(self) -> Mapping[str, int]:
        """How many were closed without an answer, by reason, since the start."""
        return dict(self._refused)

    def close(self) -> None:
        """Stop serving and free the ports."""
        self._closing.set()
        for listener in self._listeners:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes its thread, which closes it
        for thread in self._threads:
            thread.join(CLOSE_S)
        with self._lock:
            for connection in self._open:
                connection.end()

    def _accept(self, listener: socket.socket) -> None:
        with listener:
            while not self._closing.is_set():
                try:
                    client, _ = listener.accept()
                except OSError as error:
                    if error.errno in _SCARCE:
                        self._refuse("descriptors")
                        self._closing.wait(PAUSE_S)
                    continue  # ECONNABORTED: it is gone again
                if (connection := self._admitted(client)) is None:
                    client.close()
                    continue
                try:
                    Thread(target=self._serve, args=[connection], name="http", daemon=True).start()
                except RuntimeError:  # at the limit of threads, where probes still get through
                    connection.left_s = min(connection.left_s, HURRY_S)
                    connection.is_hurried = True
                    self._serve(connection)

    def _admitted(self, client: socket.socket) -> _Connection | None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if client.fileno() >= soft - min(RESERVED, soft // 4):  # the lowest that was free
            self._refuse("descriptors")
            return None
        try:
            connection = _Connection(client, client.getsockname()[0] in _LOCALHOST)
        except OSError:
            return None
        with self._lock:
            if len(self._open) >= MOST and not self._make_room():
                return None
            self._open[connection] = None
        return connection

    def _make_room(self) -> bool:
        """Close the oldest that sends its request, else the oldest that takes its answer."""
        self._refuse("limit")
        idle = (client for client in self._open if not client.is_made)
        oldest = min(idle, key=lambda client: client.is_read, default=None)
        if oldest is None:
            return False
        del self._open[oldest]
        oldest.end()
        return True

    def _refuse(self, reason: str) -> None:
        with self._lock:
            self._refused[reason] += 1

    def _serve(self, connection: _Connection) -> None:
        with connection.socket:
            try:
                connection.write(self._answer(connection))
            except TimeoutError:
                self._refuse("deadline")
            except OSError:
                pass  # the client hung up, or made room for another
            finally:
                with self._lock:
                    self._open.pop(connection, None)

    def _answer(self, connection: _Connection) -> bytes:
        head = connection.read()
        if head is None:
            return _TOO_LARGE
        connection.is_read = True
        request = Request(head=head, is_local=connection.is_local)
        if (quick := self._quick.get(request.path)) is not None:
            return quick(request)
        is_probe = request.path in self._separate
        with self._lock:
            if connection not in self._open:
                raise ConnectionError  # it made room for another
            making = sum(client.is_made for client in self._open)
            if not is_probe and (connection.is_hurried or making >= MOST_WAITING):
                self._refuse("limit")
                return _BUSY
            connection.is_made = True
        answer = (self._probes if is_probe else self._answers).answer(request)
        connection.is_made = False
        return answer
