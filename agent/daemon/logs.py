"""The log: how a line looks, and a problem that is reported once."""

import logging
import sys

import structlog


def configure(log_format: str, log_level: str) -> None:
    """Send structured log lines to standard error, one event a line.

    Args:
        log_format: ``json``, ``text``, or ``auto``, which is text on a terminal.
        log_level: a level name of :mod:`logging`, in any case.
    """
    is_text = log_format == "text" or (log_format == "auto" and sys.stderr.isatty())
    renderer: structlog.typing.Processor = (
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=0)
        if is_text
        else structlog.processors.JSONRenderer()
    )
    processors: list[structlog.typing.Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if not is_text:
        processors.append(structlog.processors.format_exc_info)
    structlog.configure(
        processors=[*processors, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[log_level.upper()],
        ),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=False,
    )


class LastProblem:
    """The problem that something has now, so that one that lasts is reported once."""

    def __init__(self) -> None:
        self._problem: str | None = None

    def is_new(self, problem: str | None) -> bool:
        """Remember *problem*, ``None`` for none; return whether it differs from the last."""
        before, self._problem = self._problem, problem
        return problem != before
