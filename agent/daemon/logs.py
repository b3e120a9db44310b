"""How log lines look: one event a line, JSON unless a person watches."""

import logging
import sys

import structlog


def configure(log_format: str, log_level: str) -> None:
    """Send structured lines to stderr.

    Args:
        log_format: ``json``, ``text``, or ``auto``, which is text on a terminal.
        log_level: a name of :mod:`logging`, in any case.
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
