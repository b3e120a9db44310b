"""The labels as a feature file, which NFD's worker on the node reads and publishes.

NFD (v0.19, source/local/local.go) takes ``key`` or ``key=value``, a line each, out of every file of
its directory whose name begins with no dot, and of none over 64 KiB. A line that begins with ``#``
is a comment or a directive. One of these, ``# +expiry-time=…``, ends the labels below it at a time;
we write none: labels would then be lost whenever this program is away, and the file would have
to be written again and again.
"""

import os
import stat
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent.errors import InputError
from agent.publish.labels.label_screen import LabelScreen, passes
from agent.publish.labels.label_wish import NOTHING, LabelWish
from agent.publish.labels.output import LabelChanges, compare
from agent.publish.labels.output_names import NFD_FILE

MAX_BYTES = 65536
"""NFD skips a larger file (the same place, MaxFeatureFileSize)."""

UNSEEN_S = 1.1
"""NFD's worker looks at its directory as soon as anything happens there, and then takes no notice
of anything for up to a second (the same place, runNotifier). It would notice that a file is begun,
and not that it gets its name; until it looks by itself, a minute later, or never where its
``core.sleepInterval`` is 0. A little longer than a second, because that is a timer's."""


class NfdFile:
    """Keeps one file, all of whose content is ours; a LabelOutput.

    Nothing but :meth:`remove` ever deletes it: labels outlive this program.
    """

    name = NFD_FILE
    needs_api = False
    is_on_node = False

    def __init__(self, path: Path, *, pause: Callable[[float], None] = time.sleep) -> None:
        """Touch nothing yet; a write takes a *pause* of :data:`UNSEEN_S`."""
        self._path = path
        self._pause = pause
        self._screen = LabelScreen(str(path))

    @property
    def place(self) -> str:
        """The file."""
        return str(self._path)

    @property
    def refused(self) -> frozenset[tuple[str, str]]:
        """Labels, as (key, value), that NFD would not take; not written."""
        return self._screen.refused

    def changes(self, wish: LabelWish, *, complete: bool = False) -> LabelChanges:
        """Return what :meth:`publish` would change.

        Raises:
            InputError: the file cannot be read.
        """
        text = self._read()
        there = _parsed(text or "")
        wanted = self._screen.passing(wish.labels)
        found = compare(
            there,
            there,
            wanted,
            keep=wish.unread if complete else None,
            is_there=text is not None,
        )
        return replace(found, is_stale=text != _text({**found.kept, **wanted}))

    def publish(self, wish: LabelWish, *, complete: bool = False) -> LabelChanges:
        """Make the file hold the labels of *wish*; return what that changed.

        Raises:
            InputError: the file cannot be read or written; what was there stays.
        """
        found = self.changes(wish, complete=complete)
        if found:
            self._write(_text({**found.kept, **self._screen.passing(wish.labels)}))
        return found

    def remove(self) -> LabelChanges:
        """Delete the file; return what went with it.

        Raises:
            InputError: it is still there.
        """
        found = self.changes(NOTHING, complete=True)
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            raise self._error("delete", error) from None
        return found

    def is_disturbed(self, node: Mapping[str, Any]) -> bool:
        """Return ``False``: the Node says nothing of the file."""
        del node
        return False

    def _read(self) -> str | None:
        """Return the file's text; ``None`` without one; never waits for what is no plain file."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._error("read", error) from None
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise self._error("read", OSError(0, "not a regular file"))
            return file.read(MAX_BYTES + 1).decode(errors="replace")

    def _write(self, text: str) -> None:
        """Replace the file as a whole, under a name that NFD does not read until it is."""
        if len(text.encode()) > MAX_BYTES:
            raise InputError(f"{self._path}: over {MAX_BYTES} bytes", "NFD reads no such file")
        temporary = self._path.with_name(f".{self._path.name}.new")
        try:
            with suppress(FileNotFoundError):
                temporary.unlink()
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            with os.fdopen(os.open(temporary, flags, 0o600), "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fchmod(file.fileno(), 0o644)  # NFD's worker is another user
                os.fsync(file.fileno())  # or a crash of the machine could leave it empty
            self._pause(UNSEEN_S)
            temporary.replace(self._path)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink()
            raise self._error("write", error) from None

    def _error(self, verb: str, error: OSError) -> InputError:
        cure = f"is NFD installed, and its directory {self._path.parent} mounted with write access?"
        return InputError(f"cannot {verb} {self._path}: {error.strerror}", cure)


def _text(labels: Mapping[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in sorted(labels.items()))


def _parsed(text: str) -> dict[str, str]:
    """Return the labels in *text*; what is no label that we could have written is left out."""
    lines = (line.strip() for line in text.split("\n"))
    pairs = (line.split("=", 1) for line in lines if not line.startswith("#") and "=" in line)
    return {key: value for key, value in pairs if passes(key, value)}
