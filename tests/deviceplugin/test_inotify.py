"""Changes of a directory end the wait for them."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic

import pytest

from nodetopo.deviceplugin.inotify import DirectoryChanges

LONG_S = 60.0
"""A wait that nothing ends would take so long, and fail by the limit of its test."""

Change = Callable[[Path], None]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "sockets").mkdir()
    (tmp_path / "sockets" / "old").touch()
    return tmp_path / "sockets"


@pytest.fixture
def changes(directory: Path) -> Iterator[DirectoryChanges]:
    changes = DirectoryChanges(directory)
    yield changes
    changes.close()


def ends_wait(changes: DirectoryChanges) -> bool:
    """Return whether something has happened that ends a wait of a minute."""
    began = monotonic()
    changes.wait(LONG_S)
    return monotonic() - began < LONG_S


def is_over(changes: DirectoryChanges) -> bool:
    """Return whether nothing more is reported: the next wait takes its time."""
    began = monotonic()
    changes.wait(0.02)
    return monotonic() - began >= 0.02


@pytest.mark.parametrize(
    "change",
    [
        lambda it: (it / "new").touch(),
        lambda it: (it / "old").unlink(),
        lambda it: (it / "old").rename(it / "renamed"),
        lambda it: (it / "old").rename(it.parent / "elsewhere"),
        lambda it: it.rename(it.parent / "moved"),
    ],
    ids=["created", "removed", "renamed", "moved away", "directory moved"],
)
def test_a_change_before_the_wait_ends_it(
    changes: DirectoryChanges, directory: Path, change: Change
) -> None:
    assert changes.follow()
    assert is_over(changes)
    change(directory)
    assert ends_wait(changes)
    assert is_over(changes)


def test_a_change_during_the_wait_ends_it(changes: DirectoryChanges, directory: Path) -> None:
    assert changes.follow()
    timer = threading.Timer(0.05, (directory / "new").touch)
    timer.start()
    assert ends_wait(changes)
    timer.join()


def test_what_is_written_into_a_file_is_no_change(
    changes: DirectoryChanges, directory: Path
) -> None:
    changes.follow()
    (directory / "old").write_text("x")
    assert is_over(changes)


def test_another_directory_of_the_name_is_followed(
    changes: DirectoryChanges, directory: Path
) -> None:
    changes.follow()
    directory.rename(directory.with_name("before"))
    assert not changes.follow()
    directory.mkdir()
    assert changes.follow()
    changes.wait(0)
    (directory / "new").touch()
    assert ends_wait(changes)


def test_a_missing_directory_is_followed_once_it_is_there(tmp_path: Path) -> None:
    changes = DirectoryChanges(tmp_path / "later")
    assert not changes.follow()
    (tmp_path / "later").mkdir()
    assert changes.follow()
    (tmp_path / "later" / "new").touch()
    assert ends_wait(changes)
    changes.close()


def test_any_thread_can_end_the_wait(changes: DirectoryChanges) -> None:
    changes.wake()
    assert ends_wait(changes)
    assert is_over(changes)


def test_without_inotify_nothing_is_followed(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refusing:
        """The C library of a user without instances of inotify left."""

        def inotify_init1(self, _flags: int) -> int:
            return -1

    monkeypatch.setattr("ctypes.CDLL", lambda *_, **__: Refusing())
    changes = DirectoryChanges(directory)
    assert not changes.follow()
    changes.wake()
    assert ends_wait(changes)
    changes.close()


def test_after_the_end_nothing_is_open_and_a_late_wake_is_harmless(directory: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    changes = DirectoryChanges(directory)
    changes.follow()
    changes.close()
    changes.wake()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
