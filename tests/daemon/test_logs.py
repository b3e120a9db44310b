"""A problem that lasts is reported once, and one that passes soon is not."""

import stat
from io import StringIO
from pathlib import Path

from agent.daemon.logs import LOG_BYTES, LastProblem, LogCopy, Outage


def test_a_problem_is_new_when_it_begins_changes_or_ends() -> None:
    problem = LastProblem()
    seen = [problem.is_new(each) for each in (None, "a", "a", "b", "b", None, None, "b")]
    assert seen == [False, True, False, True, False, True, False, True]


def test_an_outage_is_reported_when_it_lasts_and_when_it_ends() -> None:
    outage = Outage(attempts=3)
    assert [outage.has_failed() for _ in range(2)] == [False, False]
    assert not outage.has_ended()
    assert [outage.has_failed() for _ in range(5)] == [False, False, True, False, False]
    assert [outage.has_ended() for _ in range(2)] == [True, False]
    assert not outage.has_failed()


def test_the_last_lines_are_kept_in_two_private_files_of_bounded_size(tmp_path: Path) -> None:
    path, stream = tmp_path / "state" / "log", StringIO()
    copy = LogCopy(stream, path)
    lines = [f"{number:06d} {'x' * 100}\n" for number in range(5000)]
    for line in lines:
        copy.write(line)
    copy.flush()
    copy.close()
    older = path.with_name("log.1")
    assert max(path.stat().st_size, older.stat().st_size) <= LOG_BYTES
    assert "".join(lines).endswith(older.read_text("utf-8") + path.read_text("utf-8"))
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["log", "log.1"]
    assert {stat.S_IMODE(file.stat().st_mode) for file in (path, older)} == {0o600}
    assert stream.getvalue() == "".join(lines)


def test_lines_of_an_earlier_process_stay(tmp_path: Path) -> None:
    for line in ("before\n", "after\n"):
        copy = LogCopy(StringIO(), tmp_path / "log")
        copy.write(line)
        copy.close()
    assert (tmp_path / "log").read_text("utf-8") == "before\nafter\n"


def test_a_link_in_the_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    other, stream = tmp_path / "other", StringIO()
    other.write_text("theirs\n", "utf-8")
    (tmp_path / "log").symlink_to(other)
    copy = LogCopy(stream, tmp_path / "log")
    copy.write("a line\n")
    assert (other.read_text("utf-8"), stream.getvalue()) == ("theirs\n", "a line\n")


def test_a_file_that_cannot_be_written_keeps_no_line_from_the_log(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    stream = StringIO()
    LogCopy(stream, tmp_path / "file" / "log").write("a line\n")
    assert stream.getvalue() == "a line\n"
