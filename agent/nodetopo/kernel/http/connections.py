"""HTTP connections from untrusted clients, limited in number and time.

Anyone who reaches the port can open connections and leave them half done. One thread accepts, reads
and writes all of them; each must finish request and answer within :data:`DEADLINE_S`. Beyond
:data:`MOST` connections, the oldest with an incomplete request is closed, so that a probe, which
sends its request at once, is always served.

Other servers stop accepting at their limit (waitress, ``connection_limit``) or keep a thread for
each slow client (cheroot, ``http.server``), and bound the silence between two bytes instead of the
request.
"""

import errno
import os
import re
import resource
import selectors
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from threading import Condition, Thread

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

RESERVED = 64
"""Descriptors that no connection takes: the kubelet's sockets, state files and a new NVML process
need them."""

BACKLOG = 512
"""Connections that the kernel completes before they are accepted."""

CLOSE_S = 2.0
"""How long the end of the server waits for its thread."""

_ACCEPTED_AT_ONCE = 16
_END_OF_HEAD = re.compile(rb"\r?\n\r?\n")
_SCARCE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_LOCALHOST = frozenset({"127.0.0.1", "::1", "::ffff:127.0.0.1"})
_BUSY = b"HTTP/1.0 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"
_TOO_LARGE = b"HTTP/1.0 431 Request Header Fields Too Large\r\nContent-Length: 0\r\n\r\n"


@dataclass(frozen=True, kw_only=True)
class Request:
    """A complete request without a body.

    Attributes:
        head: the request line and the headers, with the empty line.
        is_local: whether the client connected to localhost: 127.0.0.1 or ::1.
    """

    head: bytes
    is_local: bool

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


class Worker:
    """A thread that makes one answer at a time.

    Requests that wait for the same answer share it; a request that arrives during the work gets the
    next answer, which is up to date.
    """

    def __init__(
        self, name: str, respond: Respond, done: "Callable[[list[_Connection], bytes], None]"
    ) -> None:
        """Start no thread before the first request."""
        self._name = name
        self._respond = respond
        self._done = done
        self._changed = Condition()  # guards everything below
        self._waiting: dict[tuple[bytes, bytes, bool], tuple[Request, list[_Connection]]] = {}
        self._thread: Thread | None = None
        self._is_closing = False

    def submit(self, request: Request, connection: "_Connection") -> None:
        """Have the answer to *request* made for *connection*."""
        with self._changed:
            _, sharing = self._waiting.setdefault(request.answer_key, (request, []))
            sharing.append(connection)
            if self._thread is None:
                thread = Thread(target=self._run, name=self._name, daemon=True)
                with suppress(RuntimeError):  # at the limit: the next request tries again
                    thread.start()
                    self._thread = thread
            self._changed.notify()

    def close(self) -> None:
        """Have the thread end after the answer that it makes."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_closing)
                if self._is_closing:
                    return
                request, sharing = self._waiting.pop(next(iter(self._waiting)))
            began = time.monotonic()
            self._done(sharing, self._respond(request))
            rest_s = min(RESTS * (time.monotonic() - began), MOST_REST_S)
            with self._changed:
                self._changed.wait_for(lambda: self._is_closing, rest_s)


@dataclass(eq=False, slots=True, kw_only=True)
class _Connection:
    """One client.

    Attributes:
        ends_at: when it is closed; ``None`` while its answer is made.
        left_s: the time left while the answer is made.
        answer: the unsent rest of the answer; ``None`` while reading or answering.
    """

    socket: socket.socket
    is_local: bool
    ends_at: float | None
    left_s: float = DEADLINE_S
    received: bytearray = field(default_factory=bytearray)
    answer: memoryview | None = None

    @property
    def is_made(self) -> bool:
        """Whether the answer is being made."""
        return self.ends_at is None


class Connections:
    """Serves HTTP on *listeners* with one thread for all clients; closes them at the end.

    Args:
        listeners: bound and listening.
        respond: makes answers, in a separate thread.
        quick: by path, handlers that answer from memory without a lock, in the clients' thread.
        separate: paths whose answers a second thread makes, so that the others never delay them.
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
        self._worker = Worker("http answers", respond, self._deliver)
        self._probes = Worker("http probes", respond, self._deliver)
        self._made: deque[tuple[list[_Connection], bytes]] = deque()
        self._open: dict[_Connection, None] = {}  # oldest first
        self._refused: Counter[str] = Counter()
        self._paused_until: float | None = None
        self._is_closing = False
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake, selectors.EVENT_READ)
        for listener in self._listeners:
            listener.setblocking(False)
            self._selector.register(listener, selectors.EVENT_READ)
        self._thread = Thread(target=self._run, name="http", daemon=True)
        self._thread.start()

    @property
    def count(self) -> int:
        """How many connections are open."""
        return len(self._open)

    @property
    def refused(self) -> Mapping[str, int]:
        """How many were closed without an answer, by reason, since the start."""
        return {reason: self._refused[reason] for reason in ("limit", "deadline", "descriptors")}

    def close(self) -> None:
        """Stop serving and free the ports."""
        self._is_closing = True
        self._worker.close()
        self._probes.close()
        self._ring()
        self._thread.join(CLOSE_S)

    def _ring(self) -> None:
        with suppress(OSError):  # closed already
            os.eventfd_write(self._wake, 1)

    def _deliver(self, sharing: list[_Connection], answer: bytes) -> None:
        """Hand an answer over to the thread of the clients."""
        self._made.append((sharing, answer))
        self._ring()

    def _run(self) -> None:
        try:
            while not self._is_closing:
                self._step()
        finally:
            for connection in tuple(self._open):
                self._close(connection)
            for listener in self._listeners:
                listener.close()
            self._selector.close()
            os.close(self._wake)

    def _step(self) -> None:
        ready = [key for key, _ in self._selector.select(self._patience_s())]
        for key in ready:  # before others are accepted, which may cost a place
            if isinstance(key.data, _Connection) and key.data in self._open:
                self._advance(key.data)
            elif key.fd == self._wake:
                with suppress(BlockingIOError):
                    os.eventfd_read(self._wake)
        while self._made:
            sharing, answer = self._made.popleft()
            for connection in sharing:
                if connection in self._open:
                    self._start_answer(connection, answer)
        for key in ready:
            if key.fileobj in self._listeners:
                self._accept(key.fileobj)
        self._expire()

    def _patience_s(self) -> float | None:
        """Return the seconds until the next deadline; ``None`` without one."""
        due = [client.ends_at for client in self._open if client.ends_at is not None]
        if self._paused_until is not None:
            due.append(self._paused_until)
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _expire(self) -> None:
        now = time.monotonic()
        for connection in tuple(self._open):
            if connection.ends_at is not None and connection.ends_at <= now:
                self._refuse(connection, "deadline")
        if self._paused_until is not None and self._paused_until <= now:
            self._paused_until = None
            for listener in self._listeners:
                self._selector.register(listener, selectors.EVENT_READ)

    # Clients come.

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            if self._paused_until is not None:
                return
            try:
                client, _ = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _SCARCE:
                    self._pause()
                continue  # ECONNABORTED: it is gone again
            self._admit(client)

    def _pause(self) -> None:
        """Pause accepting, so that waiting clients do not wake the thread all the time."""
        self._refused["descriptors"] += 1
        self._paused_until = time.monotonic() + PAUSE_S
        for listener in self._listeners:
            self._selector.unregister(listener)

    def _admit(self, client: socket.socket) -> None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if client.fileno() >= soft - min(RESERVED, soft // 4):  # the lowest that was free
            self._refused["descriptors"] += 1
            client.close()
            return
        client.setblocking(False)
        with suppress(OSError):
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if len(self._open) >= MOST:
            self._make_room()
        if len(self._open) >= MOST:
            self._refused["limit"] += 1
            client.close()
            return
        try:
            is_local = client.getsockname()[0] in _LOCALHOST
        except OSError:
            client.close()
            return
        ends_at = time.monotonic() + DEADLINE_S
        connection = _Connection(socket=client, is_local=is_local, ends_at=ends_at)
        self._open[connection] = None
        self._selector.register(client, selectors.EVENT_READ, connection)
        self._read(connection)  # most requests are there already

    def _make_room(self) -> None:
        """Close the oldest that sends its request, else the oldest that takes its answer."""
        sending = (client for client in self._open if not client.is_made and client.answer is None)
        taking = (client for client in self._open if client.answer is not None)
        oldest = next(sending, None) or next(taking, None)
        if oldest is not None:
            self._refuse(oldest, "limit")

    # What they send and get.

    def _advance(self, connection: _Connection) -> None:
        if connection.answer is None:
            self._read(connection)
        else:
            self._write(connection)

    def _read(self, connection: _Connection) -> None:
        received = connection.received
        try:
            chunk = connection.socket.recv(MOST_HEAD)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if not chunk:  # half a request is none
            self._close(connection)
            return
        seen = max(0, len(received) - 3)
        received += chunk
        if (end := _END_OF_HEAD.search(received, seen)) is not None:
            self._take(connection, bytes(received[: end.end()]))
        elif len(received) >= MOST_HEAD:
            self._start_answer(connection, _TOO_LARGE)

    def _take(self, connection: _Connection, head: bytes) -> None:
        """Have the request *head* of *connection* answered."""
        request = Request(head=head, is_local=connection.is_local)
        connection.received.clear()
        if (quick := self._quick.get(request.path)) is not None:
            self._start_answer(connection, quick(request))
            return
        is_probe = request.path in self._separate
        waiting = sum(client.is_made for client in self._open)
        if not is_probe and waiting >= MOST_WAITING:
            self._refused["limit"] += 1
            self._start_answer(connection, _BUSY)
            return
        assert connection.ends_at is not None, "a request is read once"
        connection.left_s = connection.ends_at - time.monotonic()
        connection.ends_at = None
        self._selector.unregister(connection.socket)
        (self._probes if is_probe else self._worker).submit(request, connection)

    def _start_answer(self, connection: _Connection, answer: bytes) -> None:
        if connection.ends_at is None:
            connection.ends_at = time.monotonic() + connection.left_s
            self._selector.register(connection.socket, selectors.EVENT_WRITE, connection)
        else:
            self._selector.modify(connection.socket, selectors.EVENT_WRITE, connection)
        connection.answer = memoryview(answer)
        self._write(connection)

    def _write(self, connection: _Connection) -> None:
        left = connection.answer
        assert left is not None, "an answer is sent once it is made"
        try:
            sent = connection.socket.send(left)
        except BlockingIOError:
            return
        except OSError:  # the client hung up
            self._close(connection)
            return
        connection.answer = left[sent:]
        if not connection.answer:
            with suppress(OSError):
                connection.socket.shutdown(socket.SHUT_WR)
                connection.socket.recv(MOST_HEAD)  # bytes left unread would reset the connection
            self._close(connection)

    def _refuse(self, connection: _Connection, reason: str) -> None:
        self._refused[reason] += 1
        self._close(connection)

    def _close(self, connection: _Connection) -> None:
        del self._open[connection]
        with suppress(KeyError, ValueError):  # not registered while its answer is made
            self._selector.unregister(connection.socket)
        connection.socket.close()
