"""Waits for changes of a directory with inotify(7), without cost while nothing changes."""

import ctypes
import os
import select
from contextlib import suppress
from pathlib import Path

_CREATE, _DELETE, _MOVED = 0x100, 0x200, 0x80 | 0x40  # sys/inotify.h, also the next two
_DELETE_SELF, _MOVE_SELF = 0x400, 0x800
_ONLY_DIRECTORY = 0x1000000
_WANTED = _CREATE | _DELETE | _MOVED | _DELETE_SELF | _MOVE_SELF | _ONLY_DIRECTORY

_BUFFER = 1 << 14
"""Bytes read at a time: 50 events with the longest names (inotify(7), NAME_MAX)."""


class DirectoryChanges:
    """Waits until an entry of *directory* is created, renamed or removed; for one thread.

    The directory can be missing, or be replaced. No change between two waits is missed.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._waker = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._waker, select.POLLIN)
        self._libc = ctypes.CDLL(None, use_errno=True)
        # -1 where a user's instances are used up (fs.inotify.max_user_instances).
        self._queue: int = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._queue >= 0:
            self._poll.register(self._queue, select.POLLIN)
        self._watched: tuple[int, int] | None = None
        self._watch = -1

    def follow(self) -> bool:
        """Watch the current directory; return whether it exists and can be watched."""
        try:
            status = self._directory.stat()
        except OSError:
            self._watched = None
            return False
        directory = status.st_dev, status.st_ino
        if directory != self._watched and self._queue >= 0:
            if self._watch >= 0:
                self._libc.inotify_rm_watch(self._queue, self._watch)  # fails if it is gone
            path = os.fsencode(self._directory)
            self._watch = self._libc.inotify_add_watch(self._queue, path, _WANTED)
            self._watched = directory if self._watch >= 0 else None
        return self._watched is not None

    def wait(self, seconds: float) -> None:
        """Wait for a change, for :meth:`wake`, or for at most *seconds*."""
        for descriptor, _ in self._poll.poll(seconds * 1000):
            with suppress(BlockingIOError):
                os.read(descriptor, 8 if descriptor == self._waker else _BUFFER)

    def wake(self) -> None:
        """End the current wait, or the next one; any thread can call it."""
        with suppress(OSError, ValueError):  # closed
            os.eventfd_write(self._waker, 1)

    def close(self) -> None:
        descriptors, self._queue, self._waker = (self._queue, self._waker), -1, -1
        for descriptor in descriptors:
            if descriptor >= 0:
                os.close(descriptor)
