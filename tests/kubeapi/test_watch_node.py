"""What a watch of the Node survives, and how often it asks."""

import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import pytest

from nodetopo.backoff import Backoff, note_answer
from nodetopo.errors import ApiUnavailable
from nodetopo.kubeapi.client import LONGEST_PAUSE_S, Api, Refused
from nodetopo.kubeapi.watch import QUIET_S, SILENCE_S, NodeWatch
from tests.deviceplugin.eventually import eventually
from tests.kubeapi.fake_api_server import FakeApi, kubeconfig, serving
from tests.kubeapi.fake_watch import FakeWatch, watched

WAIT_S = 60.0


@contextmanager
def answering(reply: bytes, directory: Path) -> Iterator[Path]:
    """Answer every request with *reply*, and hang up; yields a kubeconfig."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection, suppress(OSError):  # a client that is told to stop hangs up
                    connection.recv(1 << 16)
                    connection.sendall(reply)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        path = directory / "kubeconfig"
        path.write_text(kubeconfig(f"http://127.0.0.1:{server.getsockname()[1]}"))
        yield path
        server.shutdown(socket.SHUT_RDWR)
    thread.join(WAIT_S)


@contextmanager
def running(watch: NodeWatch) -> Iterator[threading.Thread]:
    stopping = threading.Event()
    thread = threading.Thread(target=watch.run, args=(stopping,), daemon=True)
    thread.start()
    try:
        yield thread
    finally:
        stopping.set()
        thread.join(WAIT_S)
        assert not thread.is_alive()


def test_a_refusal_that_breaks_off_is_a_refusal(tmp_path: Path) -> None:
    cut = b'HTTP/1.1 503 Busy\r\nContent-Length: 100\r\n\r\n{"mess'
    with answering(cut, tmp_path) as path:
        watch = NodeWatch(path, "gpu-1")
        with running(watch) as thread:
            assert eventually(lambda: watch.problem is not None)
            assert "HTTP 503" in str(watch.problem)
            assert thread.is_alive()


@pytest.mark.parametrize("asked", ["9" * 20, "9" * 400])
def test_no_pause_is_longer_than_a_minute_whoever_asks_for_it(tmp_path: Path, asked: str) -> None:
    reply = f"HTTP/1.1 429 Busy\r\nRetry-After: {asked}\r\nContent-Length: 0\r\n\r\n"
    with answering(reply.encode(), tmp_path) as path:
        watch = NodeWatch(path, "gpu-1")
        with pytest.raises(ApiUnavailable) as caught:
            watch._opened()
    assert caught.value.retry_after_s == LONGEST_PAUSE_S == 60


def test_an_event_and_an_answer_end_the_pauses_of_others(tmp_path: Path) -> None:
    pause, api = Backoff(1.0, 1.0), FakeWatch()
    with watched(api, tmp_path) as path:
        pause.next_s(60.0)
        with NodeWatch(path, "gpu-1")._opened() as stream:
            assert pause.relief_s() == 0
            api.label(a="b")
            next(stream.events())
        assert pause.relief_s() == 60
    with serving(FakeApi(), tmp_path) as path:
        pause.next_s(60.0)
        Api(path).get_metadata("/api/v1/nodes/gone", {})
        assert pause.relief_s() == 0
        Api(path).get_metadata("/api/v1/nodes/gpu-1", {})
        assert pause.relief_s() == 60


class Quiet:
    """An API server whose watches send *events* and then nothing, until they are given up."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, events: Sequence[Mapping[str, Any]]
    ) -> None:
        self.events_ = events
        self.silences: list[float] = []
        self.now_s = 1000.0
        monkeypatch.setattr("nodetopo.kubeapi.watch.time.monotonic", lambda: self.now_s)

    def watch_metadata(self, _path: str, _query: object, silence_s: float) -> "Quiet":
        """Open a watch."""
        self.silences.append(silence_s)
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def events(self) -> Iterator[Mapping[str, Any]]:
        """Yield the events, and fail after the silence."""
        yield from self.events_
        self.now_s += self.silences[-1]
        raise ApiUnavailable("no data")


INITIAL_END = {"k8s.io/initial-events-end": "true"}


@pytest.mark.parametrize(
    ("annotations", "silences"),
    [({}, [SILENCE_S] * 3), (INITIAL_END, [SILENCE_S, QUIET_S, QUIET_S])],
    ids=["bookmarks", "none but the first"],
)
def test_a_silent_watch_is_lost_sooner_where_bookmarks_come(
    monkeypatch: pytest.MonkeyPatch, annotations: Mapping[str, str], silences: Sequence[float]
) -> None:
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"annotations": annotations}}}
    watch, api = NodeWatch(None, "gpu-1"), Quiet(monkeypatch, [bookmark])
    watch._api = api  # type: ignore[assignment]
    for _ in silences:
        with pytest.raises(ApiUnavailable):
            watch._follow(threading.Event())
    assert api.silences == silences
    assert SILENCE_S == 90


class Hours:
    """A stop that comes after some seconds of waiting, which take no time."""

    def __init__(self, seconds: float) -> None:
        self.left_s = seconds

    def is_set(self) -> bool:
        """Tell whether they are over."""
        return self.left_s <= 0

    def wait(self, timeout_s: float | None = None) -> bool:
        """Let them pass; what waits for the stop itself does not."""
        self.left_s -= timeout_s or 0.0
        return self.is_set()


class Refusing:
    """An API server that answers every watch with *error*."""

    def __init__(self, error: ApiUnavailable) -> None:
        self.error = error
        self.asked = 0
        self.on_request: Callable[[], None] = lambda: None

    def watch_metadata(self, *_: object) -> None:
        """Count, and refuse."""
        self.asked += 1
        self.on_request()
        raise self.error


def asked(error: ApiUnavailable, hours: int) -> int:
    """Return how often a watch is asked for in so many hours that end with *error*."""
    watch, api = NodeWatch(None, "gpu-1"), Refusing(error)
    watch._api = api  # type: ignore[assignment]
    watch.run(Hours(3600.0 * hours))  # type: ignore[arg-type]
    return api.asked


class Others(Hours):
    """The same, while another request is answered after *seconds*."""

    def __init__(self, seconds: float) -> None:
        super().__init__(3600.0)
        self.answered_at = 3600.0 - seconds

    def wait(self, timeout_s: float | None = None) -> bool:
        """Let them pass."""
        is_over = super().wait(timeout_s)
        if timeout_s and self.left_s <= self.answered_at:
            note_answer()
        return is_over


@pytest.mark.parametrize("error", [ApiUnavailable, Refused])
def test_a_watch_sits_out_no_pause_once_the_server_answers_others(
    error: type[ApiUnavailable],
) -> None:
    api, stop = Refusing(error("busy", retry_after_s=60.0)), Others(10.0)
    watch = NodeWatch(None, "gpu-1")
    watch._api = api  # type: ignore[assignment]
    times: list[float] = []
    api.on_request = lambda: times.append(3600.0 - stop.left_s)
    watch.run(stop)  # type: ignore[arg-type]
    assert times[0] == 0
    assert 10 <= times[1] <= 12, "not before another answer, nor a minute later"


def test_an_account_that_may_not_watch_asks_ever_less() -> None:
    first = [asked(Refused("no"), 1) for _ in range(10)]
    assert 8 < sum(first) / len(first) < 20
    assert asked(Refused("no"), 100) < 300
    assert asked(ApiUnavailable("away"), 1) > 60  # a server that is away is soon back


def test_a_forbidden_watch_is_refused(tmp_path: Path) -> None:
    api = FakeWatch(refuse_with=(403, {}))
    with watched(api, tmp_path) as path, pytest.raises(Refused, match="failed with 403"):
        NodeWatch(path, "gpu-1")._opened()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            b'{"type":"ADDED","object":{"metadata":{"name":"gpu-1","labels":{"a":5}}}}\n',
            "labels.a is no text",
        ),
        (b"[" * 100_000 + b"\n", "a line is no event"),
    ],
)
def test_an_invalid_event_ends_the_watch_but_not_its_thread(
    tmp_path: Path, line: bytes, words: str
) -> None:
    api = FakeWatch(lines=[line])
    with watched(api, tmp_path) as path:
        watch = NodeWatch(path, "gpu-1")
        with running(watch) as thread:
            assert eventually(lambda: watch.problem is not None)
            assert words in str(watch.problem)
            assert thread.is_alive()
            assert not watch.is_sound


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_watch_that_has_died_is_not_trusted(tmp_path: Path) -> None:
    def stumble(_node: Mapping[str, Any] | None) -> None:
        raise AssertionError

    with watched(FakeWatch(), tmp_path) as path:
        watch = NodeWatch(path, "gpu-1")
        watch.subscribe(stumble)
        with running(watch) as thread:
            thread.join(WAIT_S)
            assert not thread.is_alive()
    assert not watch.is_sound
