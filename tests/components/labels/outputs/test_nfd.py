"""The feature file, as NFD's worker would read it."""

import os
import stat
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from nodetopo.components.labels.outputs.nfd import MAX_BYTES, UNSEEN_S, NfdFile
from nodetopo.errors import InputError
from tests.components.labels.outputs.desired_labels import desired

LABELS = {"nvidia.com/gpu.count": "8", "gpu.topology/interconnect": "nvswitch"}
TEXT = "gpu.topology/interconnect=nvswitch\nnvidia.com/gpu.count=8\n"


def nfd_file(path: Path) -> NfdFile:
    """Return the output, which waits for nothing."""
    return NfdFile(path, pause=lambda _seconds: None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "nodetopo"


def test_a_line_holds_one_label_and_lines_are_in_order(path: Path) -> None:
    nfd_file(path).publish(desired(LABELS))
    assert path.read_text() == TEXT


def test_a_node_without_labels_gets_no_file(path: Path) -> None:
    assert not nfd_file(path).publish(desired({}), complete=True)
    assert not path.exists()


def test_a_worker_of_another_user_can_read_the_file(path: Path) -> None:
    before = os.umask(0o077)
    try:
        nfd_file(path).publish(desired(LABELS))
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_the_same_labels_are_not_written_again(path: Path) -> None:
    nfd_file(path).publish(desired(LABELS))
    before = path.stat()
    assert not nfd_file(path).publish(desired(LABELS))
    after = path.stat()  # it was read, so its time of access is another
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_change_replaces_the_file_and_leaves_no_other(path: Path) -> None:
    nfd_file(path).publish(desired(LABELS))
    before = path.stat().st_ino
    found = nfd_file(path).publish(desired(LABELS | {"nvidia.com/gpu.count": "7"}))
    assert found.changed == {"nvidia.com/gpu.count": ("8", "7")}
    assert path.stat().st_ino != before
    assert [one.name for one in path.parent.iterdir()] == ["nodetopo"]


def test_until_it_is_whole_the_file_has_a_name_that_the_worker_skips(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def look(_descriptor: int) -> None:
        seen.extend(one.name for one in path.parent.iterdir())

    monkeypatch.setattr(os, "fsync", look)
    nfd_file(path).publish(desired(LABELS))
    (name,) = seen
    assert name.startswith(".")


def test_a_worker_that_noticed_the_writing_has_time_to_notice_the_renaming(path: Path) -> None:
    seen: list[tuple[float, str, str]] = []

    def look(seconds: float) -> None:
        (file,) = path.parent.iterdir()
        seen.append((seconds, file.name, file.read_text()))

    NfdFile(path, pause=look).publish(desired(LABELS))
    ((seconds, name, text),) = seen
    assert (seconds, name[0], text) == (UNSEEN_S, ".", TEXT)
    assert path.read_text() == TEXT


def test_a_write_that_fails_leaves_the_file_as_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nfd_file(path).publish(desired(LABELS))

    def fail(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(InputError, match="No space left"):
        nfd_file(path).publish(desired({}), complete=True)
    assert path.read_text() == TEXT
    assert [one.name for one in path.parent.iterdir()] == ["nodetopo"]


def test_what_an_earlier_crash_left_is_removed(path: Path) -> None:
    left = path.with_name(".nodetopo.a1b2.tmp")
    left.write_text("half of")
    os.utime(left, (0, 0))
    nfd_file(path).publish(desired(LABELS))
    assert [one.name for one in path.parent.iterdir()] == ["nodetopo"]


def test_a_label_missing_from_an_incomplete_scan_stays(path: Path) -> None:
    nfd_file(path).publish(desired(LABELS))
    found = nfd_file(path).publish(desired({"nvidia.com/gpu.count": "8"}))
    assert (bool(found), found.kept) == (False, {"gpu.topology/interconnect": "nvswitch"})
    assert path.read_text() == TEXT


def test_a_label_missing_from_complete_evidence_goes(path: Path) -> None:
    nfd_file(path).publish(desired(LABELS))
    nfd_file(path).publish(desired({"nvidia.com/gpu.count": "8"}), complete=True)
    assert path.read_text() == "nvidia.com/gpu.count=8\n"


@pytest.mark.parametrize(
    "text",
    [
        TEXT + "vendor.io/theirs=x\n",
        "# +expiry-time=2020-01-01T00:00:00Z\n" + TEXT,
        TEXT.replace("8", "9"),
        "",
        "\xff no label\n",
    ],
)
def test_what_somebody_else_wrote_is_put_right(path: Path, text: str) -> None:
    nfd_file(path).publish(desired(LABELS))
    path.write_text(text)
    assert nfd_file(path).publish(desired(LABELS), complete=True)
    assert path.read_text() == TEXT


def test_a_deleted_file_is_written_again(path: Path) -> None:
    ours = nfd_file(path)
    ours.publish(desired(LABELS))
    path.unlink()
    assert ours.publish(desired(LABELS)).added == LABELS


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("a.io/x", "two\nb.io/injected=1"),
        ("a.io/x", "x" * 64),
        ("a.io/x", "ends."),
        ("a.io/x=y", "1"),
        ("# a.io/x", "1"),
        ("A.io/x", "1"),
        ("a.io/", "1"),
        ("no-domain", "1"),
        (f"{'a.' * 126}io/x", "1"),
    ],
)
def test_a_poisoned_label_stays_out_and_the_others_do_not(path: Path, key: str, value: str) -> None:
    ours = nfd_file(path)
    with capture_logs() as lines:
        ours.publish(desired(LABELS | {key: value}))
        ours.publish(desired(LABELS | {key: value}))
    assert path.read_text() == TEXT
    assert ours.refused == {(key, value)}
    assert [line["event"] for line in lines] == ["label refused"]


def test_labels_at_the_limits_are_written(path: Path) -> None:
    labels = {"x.io/x": "", f"{'a' * 250}.io/{'k' * 63}": "v" * 63, "a.io/K_1.-x": "1_2.-x"}
    nfd_file(path).publish(desired(labels))
    assert path.read_text() == "".join(f"{key}={labels[key]}\n" for key in sorted(labels))


def test_a_file_that_the_worker_would_skip_is_not_written(path: Path) -> None:
    nfd_file(path).publish(desired(LABELS))
    many = {f"a.io/k{number}": "v" * 63 for number in range(MAX_BYTES // 70)}
    with pytest.raises(InputError, match="NFD reads no such file"):
        nfd_file(path).publish(desired(many), complete=True)
    assert path.read_text() == TEXT


def test_a_missing_directory_is_named_and_not_made(tmp_path: Path) -> None:
    path = tmp_path / "features.d" / "nodetopo"
    with pytest.raises(InputError, match="is NFD installed"):
        nfd_file(path).publish(desired(LABELS))
    assert not path.parent.exists()


def test_what_is_no_plain_file_is_not_waited_for(path: Path) -> None:
    os.mkfifo(path)
    with pytest.raises(InputError, match="not a regular file"):
        nfd_file(path).publish(desired(LABELS))


def test_a_link_is_not_followed(path: Path) -> None:
    target = path.with_name("secret")
    target.write_text(TEXT)
    path.symlink_to(target)
    with pytest.raises(InputError, match="cannot read"):
        nfd_file(path).publish(desired({}))
    assert target.read_text() == TEXT


def test_removal_deletes_the_file_and_tells_what_went(path: Path) -> None:
    ours = nfd_file(path)
    ours.publish(desired(LABELS))
    assert ours.remove().removed == LABELS
    assert not path.exists()
    assert ours.remove().is_there is False
