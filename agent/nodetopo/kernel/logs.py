"""The log: its format, its limits, and the capture of other writes to standard error."""

import logging
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import structlog

from nodetopo.formats.harmless import clean, harmless
from nodetopo.kernel.log_writer import LogWriter, unblock_stderr

LONGEST_VALUE = 4096
"""Characters of one value of a line: of a longer one the middle is left out."""

LONGEST_TRACEBACK = 16_384

_DEEPEST = 4
"""Levels of lists and objects in a value; deeper ones are written as Python shows them."""

DRAIN_S = 0.2
"""How long the end of the process waits for the last lines to be written."""

_WRITER = LogWriter()
"""Of the daemon; structlog's configuration is the process's too."""


def configure(
    log_format: str, log_level: str, copy: Path | None = None, *, in_background: bool = False
) -> None:
    """Send structured log lines to standard error, one event a line.

    Args:
        log_format: ``json``, ``text``, or ``auto``, which is text on a terminal.
        log_level: a level name of :mod:`logging`, in any case.
        copy: file for a copy of the last lines, written in the background; ``None`` for none.
        in_background: whether a thread writes them, so that no caller waits or fails: for a daemon,
            inside :func:`own_stderr`.
    """
    file: TextIO | LogWriter = _WRITER if in_background else sys.stderr
    if copy is not None:
        _WRITER.keep_copy(copy)
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


@contextmanager
def own_stderr() -> Iterator[None]:
    """Redirect Python's and libraries' writes to standard error to the log.

    These are tracebacks of threads, warnings, and records of :mod:`logging` such as gRPC's about a
    failed call. Writes by C code cannot be caught, but do not block. At the end, the last lines are
    written.
    """
    before = sys.unraisablehook, threading.excepthook, warnings.showwarning, logging.lastResort
    unblock_stderr()
    sys.unraisablehook = _log_unraisable
    threading.excepthook = _log_thread_exception
    warnings.showwarning = _log_warning
    logging.lastResort = _LogHandler(logging.WARNING)
    try:
        yield
    finally:
        _WRITER.drain(DRAIN_S)
        (sys.unraisablehook, threading.excepthook, warnings.showwarning, logging.lastResort) = (
            before
        )


def dropped() -> int:
    """Return how many lines of the background were lost, because standard error took none."""
    return _WRITER.dropped


def _log_thread_exception(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is not None and args.exc_type is not SystemExit:
        name = None if args.thread is None else args.thread.name
        info = (args.exc_type, args.exc_value, args.exc_traceback)
        structlog.get_logger().error("thread failed", thread=name, exc_info=info)


def _log_unraisable(args: "sys.UnraisableHookArgs") -> None:
    about = args.err_msg or "exception ignored"
    info = (args.exc_type, args.exc_value, args.exc_traceback)
    structlog.get_logger().error(about, where=repr(args.object), exc_info=info)


def _log_warning(  # noqa: PLR0917 - as warnings.showwarning is called
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    del file, line
    where = f"{filename}:{lineno}"
    structlog.get_logger().warning(str(message), kind=category.__name__, where=where)


class _LogHandler(logging.Handler):
    """Passes on records of standard library loggers without another handler."""

    def emit(self, record: logging.LogRecord) -> None:
        structlog.get_logger().log(
            record.levelno, record.getMessage(), logger=record.name, exc_info=record.exc_info
        )


def _make_harmless(
    _logger: Any, _method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Remove terminal control sequences from every text, since other programs wrote some."""
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
            return [_harmless(item, level + 1) for item in value]
    return harmless(repr(value), LONGEST_VALUE)


def _write_traceback(file: TextIO, exception: structlog.typing.ExcInfo) -> None:
    """Write the traceback of *exception*, whose message is untrusted text."""
    lines = structlog.processors.format_exc_info(None, "", {"exc_info": exception})
    text = str(lines["exception"])
    if len(text) > LONGEST_TRACEBACK:
        text = f"{text[: LONGEST_TRACEBACK // 2]}…{text[-LONGEST_TRACEBACK // 2 :]}"
    file.write("\n".join(map(clean, text.split("\n"))))
