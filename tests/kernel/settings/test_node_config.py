"""The label that names a node's config, followed over a real connection."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from nodetopo.kernel.settings.node_config import NodeConfigWatch, SeenLabel
from tests.deviceplugin.eventually import eventually
from tests.kubeapi.fake_api_server import kubeconfig
from tests.kubeapi.fake_watch import FakeWatch, watched
from tests.kubeapi.test_watch_node import Hours

KEY = "config"
WAIT_S = 60.0


class Following:
    """A watch that runs, and what it saw, in order."""

    def __init__(self, kubeconfig: Path) -> None:
        self.saw: list[SeenLabel | None] = []
        self.watch = NodeConfigWatch(kubeconfig, "gpu-1", KEY, self._note)
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.watch.run, args=(self.stopping,), daemon=True)

    def _note(self) -> None:
        self.saw.append(self.watch.seen)

    def sees(self, value: str | None) -> bool:
        """Tell whether the label has that value, and was told of it, after a while."""
        seen = SeenLabel(value)
        return eventually(lambda: self.watch.seen == seen and self.saw[-1:] == [seen], WAIT_S)

    def values(self) -> list[str | None]:
        """Return every value that was seen."""
        return [one.value for one in self.saw if one is not None]


@contextmanager
def following(kubeconfig: Path) -> Iterator[Following]:
    found = Following(kubeconfig)
    found.thread.start()
    try:
        yield found
    finally:
        found.stopping.set()
        found.thread.join(WAIT_S)
        assert not found.thread.is_alive()


@pytest.fixture
def api() -> FakeWatch:
    return FakeWatch()


def test_the_label_is_seen_as_it_is_and_as_it_changes(api: FakeWatch, tmp_path: Path) -> None:
    api.label(config="low", other="x")
    with watched(api, tmp_path) as kubeconfig, following(kubeconfig) as it:
        assert it.watch.wait(WAIT_S) == SeenLabel("low")
        api.label(config="high")
        assert it.sees("high")
        api.label(other="x")
        assert it.sees(None)
        assert it.values() == ["low", "high", None]
    assert len(api.queries) == 1


def test_only_one_watch_of_the_own_node_is_opened(api: FakeWatch, tmp_path: Path) -> None:
    api.label(config="low")
    with watched(api, tmp_path) as kubeconfig, following(kubeconfig) as it:
        assert it.sees("low")
    (query,) = api.queries
    assert query.pop("timeoutSeconds").isdecimal()
    assert query == {
        "watch": "true",
        "fieldSelector": "metadata.name=gpu-1",
        "allowWatchBookmarks": "true",
        "resourceVersion": "0",
    }
    assert "as=PartialObjectMetadata" in api.accepted[0]


def test_a_change_of_other_labels_is_no_news(api: FakeWatch, tmp_path: Path) -> None:
    api.label(config="low")
    with watched(api, tmp_path) as kubeconfig, following(kubeconfig) as it:
        assert it.sees("low")
        api.label(config="low", other="x")
        api.label(config="high", other="x")
        assert it.sees("high")
        assert it.values() == ["low", "high"]


def test_a_node_without_the_label_is_seen_as_such(api: FakeWatch, tmp_path: Path) -> None:
    with watched(api, tmp_path) as kubeconfig, following(kubeconfig) as it:
        assert it.watch.wait(WAIT_S) == SeenLabel(None)


def test_a_node_that_is_not_there_yet_is_seen_once_it_is(api: FakeWatch, tmp_path: Path) -> None:
    api.labels = None
    with watched(api, tmp_path) as kubeconfig, following(kubeconfig) as it:
        assert eventually(lambda: api.open == 1)
        assert it.watch.wait(0.2) is None
        api.label(config="low")
        assert it.sees("low")


def test_a_node_that_is_deleted_and_comes_back_is_followed(api: FakeWatch, tmp_path: Path) -> None:
    api.label(config="low")
    with watched(api, tmp_path) as kubeconfig, following(kubeconfig) as it:
        assert it.sees("low")
        api.delete()
        assert it.sees(None)
        api.label(config="low")
        assert it.sees("low")


def test_a_watch_that_ends_goes_on_from_the_last_bookmark(api: FakeWatch, tmp_path: Path) -> None:
    api.label(config="low")
    with watched(api, tmp_path) as kubeconfig, following(kubeconfig) as it:
        assert it.sees("low")
        api.bookmark()
        api.bookmark()
        version = str(api.version)
        assert eventually(lambda: it.watch._version == version)
        api.drop()
        assert eventually(lambda: len(api.queries) == 2, WAIT_S)
        assert api.queries[1]["resourceVersion"] == version
        api.label(config="high")
        assert it.sees("high")
        assert it.values() == ["low", "high"]


def test_a_change_while_no_watch_was_open_is_seen(api: FakeWatch, tmp_path: Path) -> None:
    api.label(config="low")
    with watched(api, tmp_path) as kubeconfig, following(kubeconfig) as it:
        assert it.sees("low")
        api.refuse_with = (503, {})
        api.drop()
        assert eventually(lambda: api.open == 0)
        api.label(config="high")
        api.refuse_with = None
        assert it.sees("high")


@pytest.mark.parametrize("how", ["in the stream", "as a status"])
def test_a_version_that_is_forgotten_leads_to_the_newest_and_never_back(
    api: FakeWatch, tmp_path: Path, how: str
) -> None:
    api.label(config="low")
    with watched(api, tmp_path) as kubeconfig, following(kubeconfig) as it:
        assert it.sees("low")
        api.forget()
        api.label(config="high")
        if how == "as a status":
            api.refuse_with = (410, {})
        before = len(api.queries)
        api.drop()
        assert eventually(lambda: len(api.queries) > before)
        api.refuse_with = None
        assert it.sees("high")
        assert it.values() == ["low", "high"]
    assert "" in [query["resourceVersion"] for query in api.queries[before + 1 :]]
    assert "0" not in [query["resourceVersion"] for query in api.queries[1:]]


def test_a_failure_in_the_stream_is_followed_by_another_watch(
    api: FakeWatch, tmp_path: Path
) -> None:
    api.label(config="low")
    with watched(api, tmp_path) as kubeconfig, following(kubeconfig) as it:
        assert it.sees("low")
        api.fail(500)
        assert eventually(lambda: len(api.queries) >= 2, WAIT_S)
        api.history.clear()
        api.label(config="high")
        assert it.sees("high")


@pytest.mark.parametrize("status", [403, 503])
def test_a_refusal_is_logged_once_and_retried(api: FakeWatch, tmp_path: Path, status: int) -> None:
    api.refuse_with = (status, {})
    with (
        capture_logs() as lines,
        watched(api, tmp_path) as kubeconfig,
        following(kubeconfig) as it,
    ):
        assert eventually(lambda: len(api.queries) >= 2, WAIT_S)
        problem = it.watch.problem
        api.refuse_with = None
        assert it.sees(None)
        assert it.watch.problem is None
    assert problem is not None
    assert f"failed with {status}" in problem
    said = [line for line in lines if line["event"] in ("Node not watched", "Node watched again")]
    assert [line["event"] for line in said] == ["Node not watched", "Node watched again"]
    assert ("grant `watch` on nodes" in said[0]["problem"]) is (status == 403)


def test_the_pause_that_the_server_asks_for_is_kept(api: FakeWatch, tmp_path: Path) -> None:
    api.refuse_with = (429, {"Retry-After": "3600"})
    with watched(api, tmp_path) as kubeconfig, following(kubeconfig) as it:
        assert eventually(lambda: it.watch.problem is not None)
        api.refuse_with = None
        assert it.watch.wait(2.5) is None
    assert len(api.queries) == 1


def test_a_server_that_ends_every_watch_at_once_is_asked_with_pauses(
    api: FakeWatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodetopo.kubeapi.watch.SHORT_S", 3600.0)  # "at once", on a busy machine
    api.lines = []
    with watched(api, tmp_path) as kubeconfig:
        watch = NodeConfigWatch(kubeconfig, "gpu-1", KEY, lambda: None)
        watch.run(Hours(120.0))  # type: ignore[arg-type]
    assert "it ended at once" in str(watch.problem)
    # Pauses of at most 1, 2, 4 … 60 s.
    assert 6 < len(api.queries) < 20


def test_nothing_but_silence_is_no_answer(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens there
        path = tmp_path / "kubeconfig"
        path.write_text(kubeconfig(f"http://127.0.0.1:{taken.getsockname()[1]}"))
        with following(path) as it:
            assert it.watch.wait(0.2) is None
            assert eventually(lambda: it.watch.problem is not None)


def test_an_invalid_kubeconfig_is_tried_again(tmp_path: Path, api: FakeWatch) -> None:
    with following(tmp_path / "kubeconfig") as it:
        assert eventually(lambda: it.watch.problem is not None)
        api.label(config="low")
        with watched(api, tmp_path):
            assert it.sees("low")


def test_an_open_watch_ends_with_a_stop(api: FakeWatch, tmp_path: Path) -> None:
    api.label(config="low")
    with watched(api, tmp_path) as kubeconfig:
        with following(kubeconfig) as it:
            assert it.sees("low")
            it.stopping.set()
            it.thread.join(WAIT_S)
            assert not it.thread.is_alive()
        assert eventually(lambda: api.open == 0)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([b"<html>\n"], "a line is no event"),
        ([b'["a list"]\n'], "a line is no event"),
        ([b'{"type": "ADDED", "object": [1]}\n'], "object is no object"),
        ([b'{"type": "ADDED", "object": {"metadata": "x"}}\n'], "metadata is no object"),
        (
            [b'{"type": "ADDED", "object": {"metadata": {"name": "gpu-1", "labels": [2]}}}\n'],
            "labels is no object",
        ),
        ([b"x" * 65536] * 64, "an event of over 1048576 bytes"),
    ],
)
def test_what_is_no_event_ends_the_watch_and_is_said(
    api: FakeWatch, tmp_path: Path, lines: list[bytes], words: str
) -> None:
    api.lines = lines
    with watched(api, tmp_path) as kubeconfig, following(kubeconfig) as it:
        assert eventually(lambda: it.watch.problem is not None)
        assert words in str(it.watch.problem)
        api.lines = None
        assert it.watch.wait(WAIT_S) == SeenLabel(None)  # it goes on
