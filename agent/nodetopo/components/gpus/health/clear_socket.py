"""The socket on which a running daemon takes requests to clear GPUs, and its client.

It lies in the health file's directory, so that no network reaches it: a connection needs the right
to write the socket, mode 0600, and the kernel names the peer's user (SO_PEERCRED, unix(7)). Each
daemon has a socket of its own, because several can run on a node during a rollout. One request is
one line of JSON, and so is its answer.
"""

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Annotated, Any, TypeVar

import structlog
from msgspec import Struct

from nodetopo.components.gpus.health.clearing import ClearedGpu, ClearRequest
from nodetopo.components.gpus.health.monitor import GpuHealthMonitor
from nodetopo.deviceplugin import sockets
from nodetopo.deviceplugin.peers import peer_of, trusted_users
from nodetopo.errors import AgentError, DecodeError, InputError, UnreadableError
from nodetopo.formats.harmless import harmless
from nodetopo.model import strict_json
from nodetopo.model.limits import MAX_GPUS, Count
from nodetopo.model.plain import from_plain, to_plain

SCHEMA = "nodetopo-clear/v1"

PATTERN = "clear-*.sock"
"""Names of the sockets, beside the health file."""

MAX_LINE = 1 << 20
"""Bytes of a line: 256 GPUs with 64 faults each fill half of it."""

REQUEST_S = 5.0
"""How long a peer may take to send its request; it is one small write."""

PATIENCE_S = 30.0
"""How long a request waits for a scan. A scan takes a second, a hanging driver any time."""

ANSWER_S = 2 * PATIENCE_S
"""How long a client waits for its answer; another client's request can be ahead of it."""

_LONGEST = 1000
"""Characters of a problem in an answer: drivers wrote parts of some."""

_Record = TypeVar("_Record")


class ClearAnswer(Struct, frozen=True, kw_only=True):
    """The answer of one daemon: either *gpus* or a *problem*."""

    gpus: Annotated[tuple[ClearedGpu, ...], Count(0, MAX_GPUS)] = ()  # those that the request named
    is_saved: bool = True  # whether the change outlives the daemon's process
    # problem, cure: why nothing was changed; ``None`` after a success.
    problem: str | None = None
    cure: str | None = None
    is_input: bool = False  # the problem is the request, not the node


class ClearServer:
    """Answers requests, one after another, until it is told to stop.

    Args:
        directory: of the health file.
        clear: does what a request asks for; raises :class:`AgentError` if it cannot.
    """

    def __init__(
        self, directory: Path, clear: Callable[[ClearRequest], tuple[Sequence[ClearedGpu], bool]]
    ) -> None:
        self.path = directory / PATTERN.replace("*", token_hex(4))
        self._clear = clear
        self._listener: socket.socket | None = None
        self._users = trusted_users()
        self._is_stopping = False

    def run(self, stopping: threading.Event) -> None:
        """Serve until *stopping* is set and :meth:`stop` is called."""
        try:
            self._listener = self._bound()
        except OSError as error:
            text = str(error.strerror or error)
            structlog.get_logger().warning(
                "requests to clear GPUs not served", path=str(self.path), problem=text
            )
        while self._listener is not None and not (stopping.is_set() or self._is_stopping):
            try:
                connection, _ = self._listener.accept()
            except OSError:  # it was shut down, or a peer hung up first
                continue
            with connection, suppress(OSError):
                self._serve(connection)
        stopping.wait()
        if self._listener is not None:
            self._listener.close()
            with suppress(OSError):
                self.path.unlink()

    def stop(self) -> None:
        """Have :meth:`run` look whether to stop; safe in any thread."""
        self._is_stopping = True
        if self._listener is not None:
            with suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)

    def _bound(self) -> socket.socket:
        """Return a listening socket; those of daemons that were killed are removed."""
        self.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        for left in sockets_in(self.path.parent):
            if not sockets.is_listening(left):
                left.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        try:
            listener.bind(os.fspath(self.path))  # the daemon's umask lets nobody else connect
            self.path.chmod(0o600)
            listener.listen()
        except OSError:
            listener.close()
            raise
        return listener

    def _serve(self, connection: socket.socket) -> None:
        _, user = peer_of(connection)
        if user not in self._users:
            structlog.get_logger().warning("peer refused", socket=self.path.name, user=user)
            return
        connection.settimeout(REQUEST_S)
        line = _line(connection)
        if line is None:  # somebody looked whether this daemon listens
            return
        try:
            request = _decoded(ClearRequest, line)
            log = structlog.get_logger()
            log.info("clear requested", gpus=list(request.gpus), dry_run=request.is_dry_run)
            gpus, is_saved = self._clear(request)
            answer = ClearAnswer(gpus=tuple(gpus), is_saved=is_saved)
        except AgentError as error:
            answer = ClearAnswer(
                problem=harmless(error.cause, _LONGEST),
                cure=harmless(error.cure, _LONGEST) or None,
                is_input=isinstance(error, InputError),
            )
        connection.settimeout(REQUEST_S)
        connection.sendall(_encoded(answer))


def server_of(
    directory: Path,
    health: GpuHealthMonitor,
    *,
    scan: Callable[[], None],
    claim: Callable[[], str | None],
) -> ClearServer:
    """Return the server that has *health* clear GPUs.

    Args:
        scan: asks for a scan of the node.
        claim: returns why NVML is closed now; ``None`` without a reason.
    """

    def clear(request: ClearRequest) -> tuple[Sequence[ClearedGpu], bool]:
        if (reason := claim()) is not None:
            cause = f"NVML is closed, because the driver must be free: {reason}"
            raise UnreadableError(cause, "repeat when the driver is in use again")
        return health.clear(request, scan, patience_s=PATIENCE_S)

    return ClearServer(directory, clear)


def sockets_in(directory: Path) -> tuple[Path, ...]:
    """Return the sockets of daemons in *directory*, dead ones included."""
    return tuple(path for path in sockets.all_in(directory) if path.match(PATTERN))


def processes(paths: Sequence[Path]) -> dict[Path, int]:
    """Return the process that listens on each of *paths*, without those where none does.

    It is 0 for a process outside this PID namespace.
    """
    found = {}
    for path in paths:
        with suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(REQUEST_S)
            probe.connect(os.fspath(path))
            found[path] = peer_of(probe)[0]
    return found


def ask(paths: Sequence[Path], request: ClearRequest) -> tuple[ClearAnswer, ...]:
    """Send *request* to the daemons on *paths*, at the same time; return their answers.

    Raises:
        UnreadableError: a daemon ended, or gave no usable answer.
    """
    with _connected(paths) as connections:
        for connection in connections:
            connection.sendall(_encoded(request))
        return tuple(map(_answer, connections))


@contextmanager
def _connected(paths: Sequence[Path]) -> Iterator[list[socket.socket]]:
    connections: list[socket.socket] = []
    try:
        for path in paths:
            connection = socket.socket(socket.AF_UNIX)
            connections.append(connection)
            connection.settimeout(ANSWER_S)
            connection.connect(os.fspath(path))
        yield connections
    except OSError as error:
        cause = f"the daemon was asked and gave no answer ({error.strerror or error})"
        raise UnreadableError(cause, _REPEAT) from None
    finally:
        for connection in connections:
            connection.close()


_REPEAT = "look at the GPU with --dry-run, and repeat; a repeated request does no harm"


def _answer(connection: socket.socket) -> ClearAnswer:
    line = _line(connection)
    if line is None:
        raise UnreadableError("the daemon ended before it answered", _REPEAT)
    try:
        return _decoded(ClearAnswer, line)
    except DecodeError as error:
        raise UnreadableError(f"the daemon's answer is not understood: {error}", _REPEAT) from None


def _line(connection: socket.socket) -> bytes | None:
    """Return the line that the peer sends; ``None`` if it hangs up without one."""
    received = b""
    while not received.endswith(b"\n"):
        part = connection.recv(65536)
        if not part or len(received) > MAX_LINE:
            return received or None
        received += part
    return received


def _encoded(record: ClearRequest | ClearAnswer) -> bytes:
    plain = {"schema": SCHEMA, **to_plain(record)}
    return json.dumps(plain).encode() + b"\n"


def _decoded(record: type[_Record], line: bytes) -> _Record:
    """Return the *record* in *line*; fields of a newer release are ignored."""
    try:
        plain: Any = strict_json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise DecodeError("", f"not JSON: {error}") from None
    if not isinstance(plain, dict) or plain.pop("schema", None) != SCHEMA:
        raise DecodeError("schema", f"expected {SCHEMA!r}")
    return from_plain(record, plain, [])
