"""The settings that a kubelet runs with, asked of it as seldom as they can change."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from agent.errors import AgentError
from agent.model.kubelet import KubeletSettings
from agent.model.snapshot import ProbeIssue, Snapshot
from agent.probes.kubelet.configz import settings_from_configz
from agent.probes.kubelet.kubelet_answers import with_running

AGAIN_S = 86_400.0
"""Longest that an answer is trusted, should a start of the kubelet go unseen: it reads its settings
when it starts, and then its socket is another one. To each question it asks the API server whether
we may."""

RETRY_S = 300.0
"""After a question that was not answered: mostly a right that is missing."""


class RunningKubelet:
    """Asks one kubelet; for one thread.

    Args:
        configz: asks; raises :class:`~agent.errors.AgentError`.
        socket: one that the kubelet makes anew whenever it starts.
        clock: monotonic seconds.
    """

    def __init__(
        self, configz: Callable[[], str], socket: Path, *, clock: Callable[[], float]
    ) -> None:
        """Ask nothing yet."""
        self._configz = configz
        self._socket = socket
        self._clock = clock
        self._start: tuple[int, int] | None = None
        self._due = float("-inf")
        self._answer: KubeletSettings | None = None
        self._problem: str | None = None

    def put_into(self, snapshot: Snapshot) -> Snapshot:
        """Return *snapshot* with what the kubelet last told, and an issue where it would not.

        A kubelet that started anew has other settings perhaps: until it tells, those of its
        files count.
        """
        start = self._seen()
        if start != self._start:
            self._start, self._answer, self._due = start, None, float("-inf")
        if self._clock() >= self._due:
            self._ask()
        found = with_running(snapshot, self._answer)
        if self._problem is None:
            return found
        issue = ProbeIssue(probe="kubelet", subject="configz", reason=self._problem)
        return replace(found, issues=(*found.issues, issue))

    def _ask(self) -> None:
        try:
            self._answer = settings_from_configz(self._configz())
            self._problem, self._due = None, self._clock() + AGAIN_S
        except AgentError as error:
            self._problem, self._due = error.cause, self._clock() + RETRY_S

    def _seen(self) -> tuple[int, int] | None:
        try:
            found = self._socket.stat()
        except OSError:
            return self._start  # gone for the seconds that a start takes
        return found.st_ino, found.st_ctime_ns
