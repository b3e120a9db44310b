"""Failures in a row, of which the log needs the beginning and the end."""

import structlog

from nodetopo.errors import AgentError


class Outage:
    """Tells when to report a failure: once for each problem in a row, not at every attempt.

    Args:
        after: failures in a row from which on they are reported. A kubelet that restarts does not
            answer for some seconds, which is no problem.
    """

    def __init__(self, after: int = 1) -> None:
        self._after = after
        self._failures = 0
        self._reported: str | None = None

    def failed(self, problem: str = "") -> bool:
        """Count a failure; return whether to report *problem* now."""
        self._failures += 1
        if self._failures < self._after:
            return False
        before, self._reported = self._reported, problem
        return problem != before

    def raised(self, event: str, error: Exception) -> None:
        """Count *error* as a failure, and log it as *event*, with what only a bug needs.

        A bug is what nobody foresaw; an :class:`AgentError` says what to do.
        """
        log = structlog.get_logger()
        if not self.failed(repr(error)):
            return
        if isinstance(error, AgentError):
            log.warning(event, problem=str(error))
        else:
            event += ": a bug in nodetopo"
            log.error(event, problem=repr(error), exc_info=error)

    def ended(self) -> int:
        """Count a success; return the failures before it, 0 if none of them was reported."""
        failures = 0 if self._reported is None else self._failures
        self._failures, self._reported = 0, None
        return failures

    def changed(self, problem: str | None) -> bool:
        """Count an attempt, which failed unless *problem* is ``None``.

        Returns whether there is something to report: a new problem, or the end of one.
        """
        return self.ended() > 0 if problem is None else self.failed(problem)
