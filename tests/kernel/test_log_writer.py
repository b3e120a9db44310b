"""The log never makes its callers wait, whatever standard error does."""

import logging
import os
import re
import stat
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import StringIO
from pathlib import Path
from typing import TextIO

import pytest
import structlog

from nodetopo.kernel import logs
from nodetopo.kernel.log_writer import LOG_BYTES, QUEUE_BYTES, LogCopy, LogWriter
from tests.deviceplugin.eventually import eventually
from tests.generous_deadlines import PATIENCE_S

LINE = "x" * 99 + "\n"
MORE_THAN_FITS = 2 * QUEUE_BYTES // len(LINE)


@contextmanager
def pipe() -> Iterator[tuple[int, TextIO]]:
    """Yield a pipe that nobody reads yet: its end to read, and the stream to write to."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "w", encoding="utf-8") as stream:
        try:
            yield reading, stream
        finally:
            with suppress(OSError):
                os.close(reading)


def read_all(descriptor: int, into: list[bytes]) -> None:
    while chunk := os.read(descriptor, 65536):
        into.append(chunk)


def test_lines_are_written_in_order() -> None:
    stream = StringIO()
    writer = LogWriter(stream)
    for number in range(500):
        writer.write(f"{number}\n")
    assert writer.drain(PATIENCE_S)
    assert stream.getvalue() == "".join(f"{number}\n" for number in range(500))
    assert writer.dropped == 0


def test_a_reader_that_stalls_holds_nobody_up_and_lines_beyond_the_queue_are_counted() -> None:
    with pipe() as (reading, stream):
        writer = LogWriter(stream)
        for _ in range(MORE_THAN_FITS):
            writer.write(LINE)
        assert not writer.drain(0)
        lost = writer.dropped
        assert 0 < lost < MORE_THAN_FITS
        got: list[bytes] = []
        reader = threading.Thread(target=read_all, args=(reading, got), daemon=True)
        reader.start()
        assert writer.drain(PATIENCE_S)
        stream.close()
        reader.join(PATIENCE_S)
        assert b"".join(got).count(LINE.encode()) == MORE_THAN_FITS - lost


def test_once_lines_get_through_again_one_says_how_many_were_lost(tmp_path: Path) -> None:
    before = structlog.get_config()
    with pipe() as (reading, stream):
        writer = LogWriter(stream)
        writer.keep_copy(tmp_path / "log")
        structlog.configure(
            processors=[structlog.processors.JSONRenderer()],
            logger_factory=structlog.WriteLoggerFactory(file=writer),  # type: ignore[arg-type]
        )
        try:
            for _ in range(MORE_THAN_FITS):
                writer.write(LINE)
            lost = writer.dropped
            reader = threading.Thread(target=read_all, args=(reading, []), daemon=True)
            reader.start()
            kept = tmp_path / "log"

            def reported() -> int:
                """Return the lines that were reported as lost, also between two losses."""
                text = kept.read_text("utf-8") if kept.exists() else ""
                return sum(
                    map(int, re.findall(r'"lines": (\d+), "event": "log lines dropped', text))
                )

            assert eventually(lambda: reported() == lost)
            stream.close()
            reader.join(PATIENCE_S)
        finally:
            structlog.configure(**before)


def test_a_reader_that_is_gone_costs_lines_alone(tmp_path: Path) -> None:
    with pipe() as (reading, stream):
        os.close(reading)
        writer = LogWriter(stream)
        writer.keep_copy(tmp_path / "log")
        for _ in range(10):
            writer.write(LINE)
        assert writer.drain(PATIENCE_S)
        assert writer.dropped == 10
        assert (tmp_path / "log").read_text("utf-8") == 10 * LINE


def test_a_full_disk_costs_lines_alone() -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as stream:
        writer = LogWriter(stream)
        for _ in range(10):
            writer.write(LINE)
        assert writer.drain(PATIENCE_S)
        assert writer.dropped == 10


def test_the_copy_is_kept_while_the_stream_stalls(tmp_path: Path) -> None:
    lines = LOG_BYTES // len(LINE)  # more than a pipe holds
    with pipe() as (_, stream):
        writer = LogWriter(stream)
        writer.keep_copy(tmp_path / "log")
        for _ in range(lines):
            writer.write(LINE)
        kept = tmp_path / "log"
        assert eventually(lambda: kept.exists() and kept.read_text("utf-8") == lines * LINE)
        assert not writer.drain(0)


def test_what_libraries_say_goes_to_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = StringIO()
    monkeypatch.setattr(logs, "_WRITER", LogWriter(stream))
    before = structlog.get_config()

    def fail() -> None:
        raise KeyError("in a thread")

    try:
        with logs.own_stderr():
            logs.configure("json", "info", in_background=True)
            thread = threading.Thread(target=fail, name="lost")
            thread.start()
            thread.join()
            warnings.showwarning("old", DeprecationWarning, "here.py", 3)
            assert logging.lastResort is not None
            said = {"name": "grpc._server", "msg": "call %s failed", "args": (7,)}
            logging.lastResort.handle(logging.makeLogRecord({**said, "levelno": logging.ERROR}))
    finally:
        structlog.configure(**before)
    for text in ("in a thread", '"thread": "lost"', "here.py:3", '"event": "call 7 failed"'):
        assert text in stream.getvalue(), text


def test_the_last_lines_are_kept_in_two_private_files_of_bounded_size(tmp_path: Path) -> None:
    path = tmp_path / "state" / "log"
    copy = LogCopy(path)
    lines = [f"{number:06d} {'x' * 100}\n" for number in range(5000)]
    for line in lines:
        copy.keep(line.encode())
    copy.close()
    older = path.with_name("log.1")
    assert max(path.stat().st_size, older.stat().st_size) <= LOG_BYTES
    assert "".join(lines).endswith(older.read_text("utf-8") + path.read_text("utf-8"))
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["log", "log.1"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in (path, older)} == {0o600}


def test_a_file_that_was_removed_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "state" / "log"
    copy = LogCopy(path)
    for text in ("first", "second", "third"):
        copy.keep(f"{text}\n".encode())
        assert path.read_text("utf-8") == f"{text}\n"
        path.unlink()
        if text == "second":
            path.parent.rmdir()
    copy.close()


def test_a_file_that_another_process_moved_is_left_to_it(tmp_path: Path) -> None:
    path, copy = tmp_path / "log", LogCopy(tmp_path / "log")
    copy.keep(b"first\n")
    path.rename(tmp_path / "log.1")
    copy.keep(b"second\n")
    copy.close()
    assert (tmp_path / "log.1").read_text("utf-8") == "first\n"
    assert path.read_text("utf-8") == "second\n"


def test_a_file_that_cannot_be_renamed_begins_again(tmp_path: Path) -> None:
    (tmp_path / "log.1" / "in the way").mkdir(parents=True)
    copy = LogCopy(tmp_path / "log")
    for number in range(5000):
        copy.keep(f"{number:06d} {'x' * 100}\n".encode())
    copy.close()
    text = (tmp_path / "log").read_text("utf-8")
    assert len(text) <= LOG_BYTES
    assert text.splitlines()[-1].startswith("004999")


def test_at_the_limit_of_threads_lines_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = StringIO()
    writer = LogWriter(stream)

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as limit:
        limit.setattr(threading.Thread, "start", refuse)
        writer.write("a\n")
    writer.write("b\n")
    assert writer.drain(PATIENCE_S)
    assert stream.getvalue() == "a\nb\n"


def test_lines_of_an_earlier_process_stay(tmp_path: Path) -> None:
    for line in (b"before\n", b"after\n"):
        copy = LogCopy(tmp_path / "log")
        copy.keep(line)
        copy.close()
    assert (tmp_path / "log").read_text("utf-8") == "before\nafter\n"


def test_a_link_in_the_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    other, stream = tmp_path / "other", StringIO()
    other.write_text("theirs\n", "utf-8")
    (tmp_path / "log").symlink_to(other)
    writer = LogWriter(stream)
    writer.keep_copy(tmp_path / "log")
    writer.write("a line\n")
    assert writer.drain(PATIENCE_S)
    assert (other.read_text("utf-8"), stream.getvalue()) == ("theirs\n", "a line\n")


def test_a_file_that_cannot_be_written_keeps_no_line_from_the_log(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    stream = StringIO()
    writer = LogWriter(stream)
    writer.keep_copy(tmp_path / "file" / "log")
    writer.write("a line\n")
    assert writer.drain(PATIENCE_S)
    assert stream.getvalue() == "a line\n"
