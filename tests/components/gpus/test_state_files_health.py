"""The health file: whole or not at all, and no reason to stop whatever is wrong with it."""

import os
import stat
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from nodetopo.components.gpus.health.saved import encode
from nodetopo.components.gpus.health.state import HealthState
from nodetopo.components.gpus.state_files import HealthFile
from nodetopo.deviceplugin.host_files import MAX_BYTES
from tests.components.gpus.health.gpu_history import Story, xid

STATE = Story().look().events(xid(79)).state


def test_what_was_saved_is_loaded_by_the_next_process(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "health.json"
    assert HealthFile(path).save(STATE)
    assert HealthFile(path).load() == STATE


def test_the_file_is_for_its_owner_alone_and_nothing_lies_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "health.json"
    HealthFile(path).save(STATE)
    HealthFile(path).save(HealthState())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    path = tmp_path / "health.json"
    file = HealthFile(path)
    file.save(STATE)
    with path.open(encoding="utf-8") as reader:  # whoever has the old file open keeps the old one
        file.save(HealthState())
        assert reader.read() == encode(STATE)


def test_no_file_is_no_state_and_no_complaint(tmp_path: Path) -> None:
    with capture_logs() as lines:
        assert HealthFile(tmp_path / "health.json").load() is None
    assert lines == []


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"root:x:0:0:root:/root:/bin/sh\n",
        encode(STATE).encode() + b" " * MAX_BYTES,
    ],
    ids=["empty", "cut", "binary", "foreign", "huge"],
)
def test_a_file_that_is_not_understood_is_kept_beside_and_named(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "health.json"
    path.write_bytes(content)
    file = HealthFile(path)
    assert file.load() is None
    assert str(path) in str(file.damage)
    assert file.save(STATE)
    assert (tmp_path / "health.json.bad").read_bytes() == content
    assert HealthFile(path).load() == STATE


def test_a_pipe_in_its_place_does_not_stop_the_start(tmp_path: Path) -> None:
    path = tmp_path / "health.json"
    os.mkfifo(path)
    file = HealthFile(path)
    assert file.load() is None
    assert "not a regular file" in str(file.damage)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "other.json"
    target.write_text(encode(STATE))
    path = tmp_path / "health.json"
    path.symlink_to(target)
    file = HealthFile(path)
    with capture_logs():
        assert file.load() is None
        assert not file.save(HealthState())
    assert target.read_text() == encode(STATE)
    assert path.is_symlink()


def test_a_place_that_cannot_be_written_is_named_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    file = HealthFile(tmp_path / "file" / "health.json")
    with capture_logs() as lines:
        assert [file.save(STATE) for _ in range(3)] == [False] * 3
    assert [line["event"] for line in lines] == ["state not saved"]


def test_a_directory_in_its_place_is_survived_and_nothing_lies_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "health.json"
    path.mkdir()
    (path / "kept").write_text("")
    with capture_logs():
        assert HealthFile(path).load() is None
        assert not HealthFile(path).save(STATE)
    assert list(tmp_path.iterdir()) == [path]


def test_only_a_file_that_was_there_can_have_been_removed(tmp_path: Path) -> None:
    path = tmp_path / "here" / "health.json"
    file = HealthFile(path)
    assert not file.was_removed()
    file.save(STATE)
    assert not file.was_removed()
    path.unlink()
    assert file.was_removed()
    assert not file.was_removed()


def test_a_directory_that_is_gone_is_nobodys_word(tmp_path: Path) -> None:
    path = tmp_path / "here" / "health.json"
    file = HealthFile(path)
    file.save(STATE)
    path.unlink()
    path.parent.rmdir()
    assert not file.was_removed()
    path.parent.mkdir()  # by whoever writes another file there
    assert not file.was_removed()
