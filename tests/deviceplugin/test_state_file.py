"""What a process leaves for the next one: known, absent, or unknown with a reason."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import Struct
from structlog.testing import capture_logs

from nodetopo.deviceplugin.state_file import Saved, StateFile, boot_file, read_boot_id
from tests.failing_files import failing


class Seen(Struct, frozen=True, kw_only=True):
    """Some content."""

    names: tuple[str, ...]
    count: int = 0


def file(
    path: Path, *, boot_id: str = "boot-1", schema: str = "nodetopo-seen/v1"
) -> StateFile[Seen]:
    return boot_file(path, Seen, what="names", schema=schema, boot_id=boot_id, loss="all are new")


def test_the_next_process_of_the_boot_reads_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "run" / "seen.json"
    assert file(path).load().is_absent
    assert file(path).save(Seen(names=("a", "b"), count=2))
    assert file(path).load() == Saved(content=Seen(names=("a", "b"), count=2))


def test_another_boot_counts_for_nothing_and_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "seen.json"
    file(path).save(Seen(names=("a",)))
    other = file(path, boot_id="boot-2")
    assert other.load().is_absent
    assert other.notices() == ()
    assert other.save(Seen(names=("c",)))
    assert other.load().content == Seen(names=("c",))


def test_what_a_file_has_is_not_written_again_by_another_release(tmp_path: Path) -> None:
    path = tmp_path / "seen.json"
    file(path).save(Seen(names=("a",)))
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "release": "0.0.1"}))
    before = path.stat().st_ino
    assert file(path).save(Seen(names=("a",)))
    assert path.stat().st_ino == before


def test_fields_of_a_newer_release_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "seen.json"
    file(path).save(Seen(names=("a",), count=4))
    path.write_text(path.read_text().replace('"count": 4', '"count": 4, "later": [1]'))
    assert file(path).load().content == Seen(names=("a",), count=4)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "\0", '"x"', "{}", '{"schema": 1}', '{"schema": "nodetopo-other/v2"}'],
)
def test_a_damaged_document_is_kept_beside_and_reported_once(tmp_path: Path, text: str) -> None:
    path = tmp_path / "seen.json"
    path.write_text(text)
    ours = file(path)
    assert ours.load().is_damaged
    assert ours.load().is_damaged
    (notice,) = ours.notices()
    assert (notice.reason, notice.is_warning) == ("StateFileUnusable", True)
    assert f"names: {path} is damaged: " in notice.message
    assert "kept as seen.json.bad: it is not known, and all are new" in notice.message
    assert path.read_text() == text  # until there is something to write, it is never missing
    assert ours.save(Seen(names=("a",)))
    assert (tmp_path / "seen.json.bad").read_text() == text
    assert file(path).load().content == Seen(names=("a",))


def test_the_latest_damage_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "seen.json"
    for text in ("first", "second"):
        path.write_text(text)
        ours = file(path)
        ours.load()
        ours.save(Seen(names=(text,)))
    assert (tmp_path / "seen.json.bad").read_text() == "second"


@pytest.mark.parametrize("code", [errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP])
def test_damage_is_kept_without_hard_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    path, bad = tmp_path / "seen.json", tmp_path / "seen.json.bad"

    def fail(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Path, "hardlink_to", fail)
    for text in ("first", "second"):
        path.write_text(text)
        file(path).load()
        assert (path.read_text(), bad.read_text()) == (text, text)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", fail)
        path.write_text("third")
        ours = file(path)
        ours.load()
        assert os.strerror(code) in ours.notices()[0].message
    assert bad.read_text() == "second"
    assert {one.name for one in tmp_path.iterdir()} == {path.name, bad.name}


def test_damage_that_two_processes_find_is_kept_once(tmp_path: Path) -> None:
    path = tmp_path / "seen.json"
    path.write_text("damage")
    assert file(path).load() == file(path).load()
    assert {one.name for one in tmp_path.iterdir()} == {"seen.json", "seen.json.bad"}


@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO, errno.EMFILE, errno.ESTALE])
def test_a_file_that_a_start_cannot_read_is_read_before_it_is_written(
    tmp_path: Path, code: int
) -> None:
    path = tmp_path / "seen.json"
    before, after = Seen(names=("a",)), Seen(names=("b",))
    file(path).save(before)
    with failing(tmp_path, code, reads=True, writes=False):
        ours = file(path)
        assert ours.load().is_unread
        assert ours.late() is None
        assert not ours.save(after)
    assert not ours.save(after)
    assert file(path).load().content == before
    assert ours.late() == before
    assert ours.late() is None
    assert ours.save(after)
    assert file(path).load().content == after


def test_a_file_that_nobody_could_read_and_is_gone_is_written(tmp_path: Path) -> None:
    path = tmp_path / "seen.json"
    path.mkdir()
    ours = file(path)
    ours.load()
    path.rmdir()
    assert ours.save(Seen(names=("b",)))
    assert (ours.late(), ours.late()) == (Seen(names=("b",)), None)


@pytest.mark.parametrize("release", ['"release": "9.1.0", ', ""])
def test_a_file_of_a_newer_schema_is_never_written_to(tmp_path: Path, release: str) -> None:
    path = tmp_path / "seen.json"
    text = f'{{"schema": "nodetopo-seen/v12", {release}"names": ["a"]}}'
    path.write_text(text)
    ours = file(path)
    assert ours.load().is_newer
    with capture_logs() as logs:
        assert [ours.save(Seen(names=("a",))) for _ in range(3)] == [False] * 3
    (notice,) = ours.notices()
    writer = "release 9.1.0" if release else "a newer release"
    assert f"has nodetopo-seen/v12, written by {writer}: it is not known" in notice.message
    assert [line["event"] for line in logs] == ["state not saved"]
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_text() == text


def make_link(path: Path) -> None:
    path.with_name("other").write_text("others'")
    path.symlink_to("other")


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, make_link])
def test_what_is_no_plain_file_is_unknown_and_not_absent(
    tmp_path: Path, make: Callable[[Path], object]
) -> None:
    path = tmp_path / "seen.json"
    make(path)
    saved = file(path).load()
    assert (saved.is_absent, saved.is_damaged, saved.is_newer) == (False, False, False)
    assert f"cannot read {path}" in str(saved.problem)


def test_the_boot_is_read_from_the_kernel(tmp_path: Path) -> None:
    assert read_boot_id(tmp_path) is None
    path = tmp_path / "sys/kernel/random/boot_id"
    path.parent.mkdir(parents=True)
    path.write_text("3f1d0b9e-0000-4000-8000-000000000000\n")
    assert read_boot_id(tmp_path) == "3f1d0b9e-0000-4000-8000-000000000000"
    path.write_text("\n")
    assert read_boot_id(tmp_path) is None


def test_the_boot_of_this_machine_has_a_name() -> None:
    assert read_boot_id(Path("/proc"))
