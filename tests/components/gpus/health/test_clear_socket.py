"""The socket that takes requests to clear GPUs: who may ask, and what becomes of any bytes."""

import errno
import json
import os
import socket
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from nodetopo.components.gpus.health import clear_socket
from nodetopo.components.gpus.health.clear_socket import (
    SCHEMA,
    ClearAnswer,
    ClearServer,
    ask,
    processes,
    server_of,
    sockets_in,
)
from nodetopo.components.gpus.health.clearing import ClearedGpu, ClearRequest, SaidFault
from nodetopo.errors import InputError, UnreadableError
from nodetopo.model.gpu_health import HealthClass
from nodetopo.model.pci import PciAddress
from tests.components.gpus.health.gpu_history import FINE, SOUND, A, xid
from tests.components.gpus.health.watched_gpus import Daemon
from tests.deviceplugin.eventually import eventually
from tests.failing_files import failing

FAULT = SaidFault(reason="Xid79", kind=HealthClass.REBOOT, said="it fell off the bus")
GPU = ClearedGpu(
    uuid="GPU-a",
    name="GPU0",
    pci=PciAddress(0, 1, 0, 0),
    faults=(FAULT,),
    left=(),
    is_healthy=True,
)
REQUEST = ClearRequest(gpus=("GPU0",))
GOOD = {"schema": SCHEMA, "gpus": ["GPU0"]}

Clear = Callable[[ClearRequest], tuple[Sequence[ClearedGpu], bool]]


class Asked:
    """Clears a GPU, and remembers the requests."""

    def __init__(self) -> None:
        self.requests: list[ClearRequest] = []

    def __call__(self, request: ClearRequest) -> tuple[Sequence[ClearedGpu], bool]:
        """Note *request* and clear the GPU."""
        self.requests.append(request)
        return (GPU,), False


@contextmanager
def serving(directory: Path, clear: Clear) -> Iterator[Path]:
    """Serve in *directory*, and yield the socket."""
    with running(ClearServer(directory, clear)) as path:
        yield path


@contextmanager
def running(server: ClearServer) -> Iterator[Path]:
    """Run *server*, and yield its socket."""
    directory, stopping = server.path.parent, threading.Event()
    thread = threading.Thread(target=server.run, args=(stopping,))
    thread.start()
    try:
        assert eventually(lambda: server.path in processes(sockets_in(directory)))
        yield server.path
    finally:
        stopping.set()
        server.stop()
        thread.join()


def said(path: Path, sent: bytes) -> bytes:
    """Return all that the daemon sends after *sent* and the end of it."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.fspath(path))
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        received = b""
        while part := connection.recv(65536):
            received += part
        return received


def test_a_request_and_its_answer_arrive_whole(tmp_path: Path) -> None:
    asked = Asked()
    request = ClearRequest(gpus=("0", "GPU1"), is_dry_run=True, is_confirmed=True)
    with serving(tmp_path, asked) as path:
        assert ask([path], request) == (ClearAnswer(gpus=(GPU,), is_saved=False),)
    assert asked.requests == [request]
    assert list(tmp_path.iterdir()) == []  # the socket goes with the daemon


def test_two_daemons_on_a_node_are_asked_both_and_at_once(tmp_path: Path) -> None:
    both = threading.Barrier(2)

    def clear(_request: ClearRequest) -> tuple[Sequence[ClearedGpu], bool]:
        both.wait(60)  # one that waited for the other's answer would never come here
        return (GPU,), True

    with serving(tmp_path, clear), serving(tmp_path, clear):
        assert len(ask(sockets_in(tmp_path), REQUEST)) == 2


@pytest.mark.parametrize("error", [InputError("no such GPU", "name one"), UnreadableError("no")])
def test_a_refusal_keeps_its_cause_its_cure_and_its_kind(
    tmp_path: Path, error: InputError | UnreadableError
) -> None:
    def clear(_request: ClearRequest) -> tuple[Sequence[ClearedGpu], bool]:
        raise error

    with serving(tmp_path, clear) as path:
        (answer,) = ask([path], REQUEST)
    assert (answer.problem, answer.cure) == (error.cause, error.cure or None)
    assert answer.is_input == isinstance(error, InputError)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"\n",
        b"\xff\x00\n",
        b"{\n",
        b"[1]\n",
        b"[" * 5000 + b"\n",
        b'{"schema": "nodetopo-clear/v2", "gpus": ["GPU0"]}\n',
        json.dumps({**GOOD, "gpus": []}).encode() + b"\n",
        json.dumps({**GOOD, "gpus": ["0"] * 257}).encode() + b"\n",
        json.dumps({**GOOD, "gpus": [1]}).encode() + b"\n",
        json.dumps({**GOOD, "is_dry_run": "no"}).encode() + b"\n",
        json.dumps(GOOD).encode()[:-5],
        b"x" * (clear_socket.MAX_LINE + 100_000),
    ],
    ids=range(13),
)
def test_bytes_that_are_no_request_clear_nothing_and_the_next_request_is_answered(
    tmp_path: Path, sent: bytes
) -> None:
    asked = Asked()
    with serving(tmp_path, asked) as path:
        with capture_logs():
            try:
                answer = said(path, sent)
            except OSError:  # it hung up on too many bytes
                answer = b""
        assert not answer or json.loads(answer)["problem"]
        assert asked.requests == []
        assert len(ask([path], REQUEST)) == 1


def test_fields_of_a_newer_release_are_ignored(tmp_path: Path) -> None:
    asked = Asked()
    with serving(tmp_path, asked) as path:
        said(path, json.dumps({**GOOD, "since": "later"}).encode() + b"\n")
    assert asked.requests == [REQUEST]


def test_a_silent_peer_does_not_keep_others_waiting_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clear_socket, "REQUEST_S", 0.05)
    with serving(tmp_path, Asked()) as path, socket.socket(socket.AF_UNIX) as silent:
        silent.connect(os.fspath(path))
        assert len(ask([path], REQUEST)) == 1


def test_only_the_owner_may_connect(tmp_path: Path) -> None:
    with serving(tmp_path, Asked()) as path:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_foreign_user_gets_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clear_socket, "trusted_users", lambda: frozenset({os.getuid() + 1}))
    asked = Asked()
    with capture_logs() as lines, serving(tmp_path, asked) as path:
        with pytest.raises(UnreadableError):
            ask([path], REQUEST)
        assert asked.requests == []
    assert {line["event"] for line in lines} == {"peer refused"}


def test_a_daemon_that_ends_before_it_answers_is_no_success(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as daemon:
        path = tmp_path / "clear-1.sock"
        daemon.bind(os.fspath(path))
        daemon.listen()

        def end() -> None:
            connection, _ = daemon.accept()
            connection.recv(65536)
            connection.close()

        thread = threading.Thread(target=end)
        thread.start()
        with pytest.raises(UnreadableError, match="ended before it answered"):
            ask([path], REQUEST)
        thread.join()


def test_sockets_of_killed_daemons_are_removed_by_the_next(tmp_path: Path) -> None:
    dead = tmp_path / "clear-dead.sock"
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(os.fspath(dead))
        killed.listen()
    with serving(tmp_path, Asked()) as first, serving(tmp_path, Asked()) as second:
        assert set(sockets_in(tmp_path)) == {first, second}


def test_a_directory_that_takes_no_socket_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    server, stopping = ClearServer(tmp_path / "file", Asked()), threading.Event()
    stopping.set()
    with capture_logs() as lines:
        server.run(stopping)
    assert [line["event"] for line in lines] == ["requests to clear GPUs not served"]


def test_a_socket_that_cannot_be_removed_ends_nothing(tmp_path: Path) -> None:
    server, stopping = ClearServer(tmp_path, Asked()), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        serving = pool.submit(server.run, stopping)
        assert eventually(lambda: server.path in processes(sockets_in(tmp_path)))
        with failing(tmp_path, errno.EACCES, reads=True, writes=True):
            stopping.set()
            server.stop()
            serving.result()


def test_while_the_driver_must_be_free_nothing_is_cleared(tmp_path: Path) -> None:
    daemon = Daemon()
    server = server_of(tmp_path, daemon.watch, scan=lambda: None, claim=lambda: "a driver upgrade")
    with running(server) as path:
        (answer,) = ask([path], REQUEST)
    assert answer.problem is not None
    assert "the driver must be free: a driver upgrade" in answer.problem


def test_a_request_reaches_the_health_of_the_gpus(tmp_path: Path) -> None:
    daemon = Daemon()
    daemon.watch.look(SOUND, FINE)
    daemon.watch.take_events([xid(79)])

    def scan() -> None:
        daemon.watch.look(SOUND, FINE)

    with running(server_of(tmp_path, daemon.watch, scan=scan, claim=lambda: None)) as path:
        (answer,) = ask([path], REQUEST)
    assert [gpu.label for gpu in answer.gpus] == [f"GPU0 ({A})"]
    assert daemon.reasons == {}
