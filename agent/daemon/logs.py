"""The log: how a line looks, and a problem that is reported once."""

import logging
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

import structlog

from agent.formats.harmless import clean, harmless

LONGEST_VALUE = 4096
"""Characters of one value of a line: of a longer one the middle is left out."""

LONGEST_TRACEBACK = 16_384

_DEEPEST = 4
"""Levels of lists and objects in a value; deeper ones are written as Python shows them."""

LOG_FILE = "log"
"""Beside the health file: the last lines of the log, which ``nodetopo support`` takes."""

OLDER = ".1"
"""Ends the name of the file with the lines before those."""

LOG_BYTES = 128 << 10
"""Of each of the two files; some 500 lines. They are on tmpfs, and so is their memory."""


def configure(log_format: str, log_level: str, copy: Path | None = None) -> None:
    """Send structured log lines to standard error, one event a line.

    Args:
        log_format: ``json``, ``text``, or ``auto``, which is text on a terminal.
        log_level: a level name of :mod:`logging`, in any case.
        copy: where the last lines are kept as well; ``None`` for nowhere.
    """
    file: TextIO | LogCopy = sys.stderr if copy is None else LogCopy(sys.stderr, copy)
    is_text = log_format == "text" or (log_format == "auto" and sys.stderr.isatty())
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), pad_event_to=0, exception_formatter=_write_traceback
        )
        if is_text
        else structlog.processors.JSONRenderer()
    )
    processors: list[structlog.typing.Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _make_harmless,
    ]
    if not is_text:
        processors.append(structlog.processors.format_exc_info)
    structlog.configure(
        processors=[*processors, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[log_level.upper()],
        ),
        logger_factory=structlog.WriteLoggerFactory(file=file),  # type: ignore[arg-type]
        cache_logger_on_first_use=False,
    )


def _make_harmless(
    _logger: Any, _method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Take out of every text what steers a terminal: drivers, pods and servers wrote some."""
    return {
        _harmless(key): value if key == "exc_info" else _harmless(value)
        for key, value in event.items()
    }


def _harmless(value: Any, level: int = 0) -> Any:
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            return harmless(value, LONGEST_VALUE)
        case Mapping() if level < _DEEPEST:
            return {_harmless(str(key)): _harmless(it, level + 1) for key, it in value.items()}
        case list() | tuple() if level < _DEEPEST:
            return [_harmless(it, level + 1) for it in value]
    return harmless(repr(value), LONGEST_VALUE)


def _write_traceback(file: TextIO, exception: structlog.typing.ExcInfo) -> None:
    """Write the traceback of *exception*; its message may be anybody's."""
    lines = structlog.processors.format_exc_info(None, "", {"exc_info": exception})
    text = str(lines["exception"])
    if len(text) > LONGEST_TRACEBACK:
        text = f"{text[: LONGEST_TRACEBACK // 2]}…{text[-LONGEST_TRACEBACK // 2 :]}"
    file.write("\n".join(map(clean, text.split("\n"))))


class LogCopy:
    """A stream that keeps the last lines in a file too, for a person who asks later.

    The file is private, and is never followed through a link. What cannot be kept is left: the log
    itself is on the *stream*.
    """

    def __init__(self, stream: TextIO, path: Path) -> None:
        self._stream = stream
        self._path = path
        self._descriptor: int | None = None
        self._bytes = 0
        with suppress(OSError):
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            self._open()

    def write(self, text: str) -> int:
        """Write *text*, the lines of one event; return its length."""
        written = self._stream.write(text)
        with suppress(OSError):
            self._keep(text.encode("utf-8", "replace"))
        return written

    def flush(self) -> None:
        """Flush the stream; the file has no buffer."""
        self._stream.flush()

    def close(self) -> None:
        """Close the file; the stream stays open."""
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        self._descriptor = os.open(self._path, flags | os.O_CLOEXEC, 0o600)
        self._bytes = os.fstat(self._descriptor).st_size

    def _keep(self, line: bytes) -> None:
        if self._descriptor is None:
            return
        if self._bytes + len(line) > LOG_BYTES:
            self.close()
            self._path.replace(self._path.with_name(self._path.name + OLDER))
            self._open()
        self._bytes += os.write(self._descriptor, line[:LOG_BYTES])


class LastProblem:
    """The problem that something has now, so that one that lasts is reported once."""

    def __init__(self) -> None:
        self._problem: str | None = None

    def is_new(self, problem: str | None) -> bool:
        """Remember *problem*, ``None`` for none; return whether it differs from the last."""
        before, self._problem = self._problem, problem
        return problem != before


class Outage:
    """Attempts that fail: one that lasts is reported once, and so is its end.

    A kubelet that restarts does not answer for some seconds, which is nobody's problem.

    Args:
        attempts: failures in a row from which on it lasts.
    """

    def __init__(self, attempts: int) -> None:
        self._attempts = attempts
        self._failures = 0

    def has_failed(self) -> bool:
        """Count a failure; return whether the outage is to be reported now."""
        self._failures += 1
        return self._failures == self._attempts

    def has_ended(self) -> bool:
        """Count a success; return whether it ends an outage that was reported."""
        failures, self._failures = self._failures, 0
        return failures >= self._attempts
