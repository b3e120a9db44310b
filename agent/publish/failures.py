"""An action that keeps failing is one line of the log, and one more when it works again."""

import structlog

__all__ = ["Failures"]


class Failures:
    """Counts the failures of one action in a row; one thread uses it.

    Args:
        event: the log line of a failure.
        context: more keys of each line.
    """

    def __init__(self, event: str, **context: str) -> None:
        """Count from 0."""
        self._event = event
        self._context = context
        self._count = 0
        self._error: str | None = None

    def failed(self, error: str) -> None:
        """Count a failure, and log it if the one before did not say the same."""
        self._count += 1
        before, self._error = self._error, error
        if error != before:
            structlog.get_logger().warning(self._event, **self._context, error=error)

    def succeeded(self) -> None:
        """Log how many failures came before this success, if any did."""
        if self._count:
            structlog.get_logger().info("published again", **self._context, failed=self._count)
        self._count, self._error = 0, None
