"""The watch and its file: verdicts outlive the process, and a person can end them."""

import errno
from pathlib import Path

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from nodetopo.components.gpus.health.saved import decode, verdicts
from nodetopo.model.nvml_event import NvmlTrouble
from tests.components.gpus.health.gpu_history import FAILED, FINE, SOUND, A, B, seen, trouble, xid
from tests.components.gpus.health.watched_gpus import Daemon
from tests.failing_files import failing

REFUSED = trouble(NvmlTrouble.REFUSED, 1, 999)


@pytest.fixture
def daemon(tmp_path: Path) -> Daemon:
    return Daemon(tmp_path / "health.json")


def test_a_verdict_outlives_the_process(daemon: Daemon) -> None:
    daemon.watch.look(SOUND, FINE)
    daemon.watch.take_events([xid(79)])
    daemon.wait(1)
    daemon.restart()
    assert daemon.reasons == {A: "Xid79"}
    assert daemon.watch.notices() == ()


def test_another_boot_ends_it(daemon: Daemon) -> None:
    daemon.watch.take_events([xid(79)])
    daemon.wait(1)
    daemon.boot_id, daemon.now = "two", 10.0
    daemon.restart()
    assert daemon.reasons == {}


def test_events_are_taken_without_touching_the_disk(daemon: Daemon) -> None:
    daemon.watch.take_events([xid(79)])
    assert daemon.path is not None
    assert not daemon.path.exists()
    daemon.watch.tick()
    assert daemon.path.exists()


def test_the_file_is_written_only_when_a_verdict_changes(daemon: Daemon) -> None:
    daemon.watch.look(SOUND, FINE)
    daemon.wait(1)
    assert daemon.path is not None
    assert not daemon.path.exists()
    daemon.watch.take_events([xid(95)])
    daemon.wait(1)
    inode = daemon.path.stat().st_ino
    for _ in range(50):
        daemon.watch.take_events([xid(95), xid(13)])
        daemon.watch.look(SOUND, FINE)
        daemon.wait(1)
    assert daemon.path.stat().st_ino == inode


def test_a_restart_alone_writes_nothing(daemon: Daemon) -> None:
    daemon.watch.take_events([xid(79)])
    daemon.wait(1)
    assert daemon.path is not None
    inode = daemon.path.stat().st_ino
    daemon.restart()
    daemon.wait(1)
    assert daemon.path.stat().st_ino == inode


def test_a_place_that_cannot_be_written_is_tried_at_looks_and_then_used(tmp_path: Path) -> None:
    parent = tmp_path / "place"
    parent.write_text("")
    daemon = Daemon(parent / "health.json")
    with capture_logs() as lines:
        daemon.watch.take_events([xid(79)])
        for _ in range(5):
            daemon.wait(1)
            daemon.watch.look(SOUND, FINE)
    assert len(lines) == 1
    assert daemon.reasons == {A: "Xid79"}
    parent.unlink()
    daemon.wait(1)
    assert not parent.exists()
    daemon.watch.look(SOUND, FINE)
    assert (parent / "health.json").exists()


def test_a_file_that_is_removed_ends_verdicts_at_the_next_look(daemon: Daemon) -> None:
    daemon.watch.look(SOUND, FINE)
    daemon.watch.take_events([xid(79), xid(95, on=B)])
    daemon.wait(1)
    assert daemon.path is not None
    daemon.path.unlink()
    daemon.wait(1)
    assert set(daemon.reasons) == {A, B}
    daemon.watch.notices()
    daemon.watch.look(seen(remapped_rows=FAILED), FINE)
    assert daemon.reasons == {A: "RowRemapFailed"}
    told = [notice.reason for notice in daemon.watch.notices()]
    assert told == ["HealthForgotten", "GpuUnhealthy", "GpuRecovered"]


def test_a_directory_that_is_gone_ends_nothing_and_is_made_anew(daemon: Daemon) -> None:
    assert daemon.path is not None
    path = daemon.path = daemon.path.parent / "run" / "health.json"
    daemon.restart()
    daemon.watch.look(SOUND, FINE)
    daemon.watch.take_events([xid(79)])
    daemon.wait(1)
    path.unlink()
    path.parent.rmdir()
    daemon.watch.look(SOUND, FINE)
    daemon.wait(1)
    daemon.watch.look(SOUND, FINE)
    daemon.restart()
    assert daemon.reasons == {A: "Xid79"}


def test_a_gpu_that_is_lost_is_not_healthy_for_a_moment_when_the_file_is_removed(
    daemon: Daemon,
) -> None:
    daemon.watch.look(seen(is_lost=True), FINE)
    assert daemon.path is not None
    daemon.path.unlink()
    daemon.changes = 0
    daemon.watch.look(seen(is_lost=True), FINE)
    assert (daemon.reasons, daemon.changes) == ({A: "GpuLost"}, 0)


def test_a_fresh_container_is_wanted_once_and_not_again_by_the_next_process(
    daemon: Daemon,
) -> None:
    wanted = []
    for minute in range(130):
        daemon.watch.look(SOUND, REFUSED)
        daemon.wait(60)
        if daemon.watch.wants_fresh_container:
            wanted.append(minute)
            daemon.restart()
    assert wanted == [1, 61, 121]


def test_without_a_memory_no_fresh_container_is_wanted(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (None, tmp_path / "file" / "health.json"):
        daemon = Daemon(path)
        with capture_logs():
            daemon.watch.look(SOUND, REFUSED)
            daemon.wait(300)
            daemon.watch.look(SOUND, REFUSED)
        assert not daemon.watch.wants_fresh_container


DAMAGE = pytest.mark.parametrize(
    "content", [b"", b"{", b"\0\xff{{{"], ids=["empty", "cut", "binary"]
)


def told(daemon: Daemon) -> list[str]:
    return [notice.reason for notice in daemon.watch.notices()]


@DAMAGE
def test_a_file_that_is_damaged_meanwhile_is_written_again_and_reported(
    daemon: Daemon, content: bytes
) -> None:
    daemon.watch.look(SOUND, FINE)
    daemon.watch.take_events([xid(79)])
    daemon.wait(1)
    assert daemon.path is not None
    whole = verdicts(decode(daemon.path.read_text("utf-8")))
    told(daemon)
    daemon.path.write_bytes(content)
    daemon.watch.look(SOUND, FINE)
    assert verdicts(decode(daemon.path.read_text("utf-8"))) == whole == {A: {"Xid79"}}
    assert told(daemon) == ["HealthFileDamaged"]
    daemon.watch.look(SOUND, FINE)
    assert told(daemon) == []
    daemon.restart()
    assert daemon.reasons == {A: "Xid79"}


def test_a_file_that_another_process_may_not_have_changed_is_left_alone(daemon: Daemon) -> None:
    daemon.watch.look(SOUND, FINE)
    daemon.watch.take_events([xid(79)])
    daemon.wait(1)
    daemon.restart()
    assert daemon.path is not None
    inode = daemon.path.stat().st_ino
    daemon.watch.look(SOUND, FINE)
    daemon.watch.look(SOUND, FINE)
    assert daemon.path.stat().st_ino == inode
    assert "HealthFileDamaged" not in told(daemon)


@DAMAGE
def test_after_garbage_every_gpu_is_unhealthy_until_it_has_looked_sound_for_a_while(
    daemon: Daemon, content: bytes
) -> None:
    assert daemon.path is not None
    daemon.path.write_bytes(content)
    with capture_logs():
        daemon.restart()
    daemon.watch.look(SOUND, FINE)
    assert daemon.reasons == dict.fromkeys((gpu.id for gpu in SOUND.gpus), "HealthNotKnown")
    assert told(daemon) == ["HealthFileDamaged"]
    daemon.wait(30)
    daemon.watch.look(SOUND, FINE)
    assert set(daemon.reasons) == {gpu.id for gpu in SOUND.gpus}
    daemon.wait(31)
    daemon.watch.look(SOUND, FINE)
    assert daemon.reasons == {}
    assert set(told(daemon)) == {"GpuRecovered"}
    assert all(record.falls == () for record in daemon.watch._state.gpus.values())


def test_verdicts_of_a_newer_schema_are_unknown_and_stay_in_their_file(daemon: Daemon) -> None:
    assert daemon.path is not None
    text = '{"schema": "nodetopo-health/v2", "release": "9.1.0"}'
    daemon.path.write_text(text)
    daemon.restart()
    with capture_logs() as logs:
        daemon.watch.look(SOUND, FINE)
        (notice,) = daemon.watch.notices()
        assert "release 9.1.0" in notice.message
        assert set(daemon.reasons.values()) == {"HealthNotKnown"}
        daemon.wait(61)
        daemon.watch.look(SOUND, FINE)
    assert daemon.reasons == {}
    assert set(told(daemon)) == {"GpuRecovered"}
    assert [line["event"] for line in logs] == ["state not saved"]
    assert daemon.path.read_text() == text
    assert list(daemon.path.parent.iterdir()) == [daemon.path]


@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO, errno.ESTALE])
def test_a_file_that_cannot_be_read_meanwhile_is_neither_removed_nor_changed_by_another(
    daemon: Daemon, code: int
) -> None:
    daemon.watch.look(SOUND, FINE)
    daemon.watch.take_events([xid(79)])
    daemon.wait(1)
    told(daemon)
    assert daemon.path is not None
    with failing(daemon.path.parent, code, reads=True, writes=True), capture_logs():
        daemon.watch.look(SOUND, FINE)
        (notice,) = daemon.watch.notices()
        assert notice.message.startswith(f"cannot read {daemon.path}")
        daemon.watch.look(SOUND, FINE)
        assert told(daemon) == []
    assert daemon.reasons == {A: "Xid79"}
    daemon.restart()
    assert daemon.reasons == {A: "Xid79"}


@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO, errno.EMFILE])
def test_verdicts_that_a_start_cannot_read_are_joined_at_a_later_look(
    daemon: Daemon, code: int
) -> None:
    assert daemon.path is not None
    daemon.watch.look(seen(remapped_rows=FAILED), FINE)
    document = daemon.path.read_text()
    with failing(daemon.path.parent, code, reads=True, writes=False):
        daemon.restart()
        for _ in range(3):
            daemon.watch.look(SOUND, FINE)
            daemon.watch.take_events([xid(79, on=B)])
            daemon.wait(10)
        assert daemon.reasons == {A: "HealthNotKnown", B: "Xid79"}
    assert daemon.path.read_text() == document
    daemon.watch.look(SOUND, FINE)
    assert daemon.reasons == {A: "RowRemapFailed", B: "Xid79"}
    daemon.restart()
    assert daemon.reasons == {A: "RowRemapFailed", B: "Xid79"}


def test_doubt_outlives_the_next_process_too(daemon: Daemon) -> None:
    assert daemon.path is not None
    daemon.path.write_bytes(b"{")
    with capture_logs():
        daemon.restart()
    daemon.watch.look(SOUND, FINE)
    daemon.restart()
    assert set(daemon.reasons.values()) == {"HealthNotKnown"}


def test_a_gpu_in_doubt_that_is_not_sound_stays_unhealthy(daemon: Daemon) -> None:
    assert daemon.path is not None
    daemon.path.write_bytes(b"{")
    with capture_logs():
        daemon.restart()
    broken = seen(remapped_rows=FAILED)
    for _ in range(3):
        daemon.watch.look(broken, FINE)
        daemon.wait(61)
    daemon.watch.look(broken, FINE)
    assert daemon.reasons == {A: "RowRemapFailed"}


def test_doubt_waits_for_the_first_reading_of_nvml(daemon: Daemon) -> None:
    assert daemon.path is not None
    daemon.path.write_bytes(b"{")
    with capture_logs():
        daemon.restart()
    daemon.watch.look(replace(SOUND, gpus=()), REFUSED)
    assert told(daemon) == []
    daemon.watch.look(SOUND, FINE)
    assert set(daemon.reasons.values()) == {"HealthNotKnown"}


def test_without_a_file_no_gpu_is_in_doubt(daemon: Daemon) -> None:
    daemon.watch.look(SOUND, FINE)
    assert (daemon.reasons, told(daemon)) == ({}, [])


def test_the_file_that_another_instance_wrote_with_the_same_verdicts_is_left_alone(
    daemon: Daemon,
) -> None:
    """Manifests and chart on one node share the directory of the state."""
    assert daemon.path is not None
    other = Daemon(daemon.path)
    for number, each in enumerate((daemon, other)):
        each.watch.look(SOUND, FINE)
        each.wait(1 + number)
        each.watch.take_events([xid(79)])
        each.wait(1)
        told(each)
    theirs = daemon.path.read_bytes()

    daemon.watch.look(SOUND, FINE)

    assert daemon.path.read_bytes() == theirs
    assert told(daemon) == []
