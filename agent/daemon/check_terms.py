"""How the daemon judges: on the terms of ``checks-file``, into what metrics tell of a report."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path

import structlog

from agent.checks.engine import evaluate
from agent.checks.rule import Rule, Verdict
from agent.checks.waivers import USUAL, Terms
from agent.config.data_files import check, load_checks
from agent.errors import AgentError
from agent.health.notices import Notice
from agent.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What became of some rules.

    Attributes:
        counts: ``pass``, ``warn``, ``fail``, ``unknown``, ``waived`` and ``skipped`` (says nothing
            about this node) → results; all are there.
        broken: code of each rule that fails or warns and is not waived → ``fail`` or ``warn``.
    """

    counts: Mapping[str, int]
    broken: Mapping[str, str]


def judged(snapshot: Snapshot, rules: Iterable[Rule], terms: Terms) -> Judged:
    """Return what *rules* say of *snapshot* on *terms*."""
    report = evaluate(snapshot, rules, terms)
    found = report.summary
    return Judged(
        counts={
            "pass": found.passed,
            "warn": found.warned,
            "fail": found.failed,
            "unknown": found.unknown,
            "waived": found.waived,
            "skipped": found.skipped,
        },
        broken={
            result.rule.code: result.verdict.value
            for result in report.results
            if result.waived is None and result.verdict in (Verdict.FAIL, Verdict.WARN)
        },
    )


def _today() -> date:
    return datetime.now(UTC).date()


class TermsFile:
    """The terms of ``checks-file``, read anew whenever the file is another one.

    What does not do changes nothing, and is told once: in the log, and as a notice. Any thread may
    ask.
    """

    def __init__(self, path: Path | None, *, today: Callable[[], date] = _today) -> None:
        """Look at it, where a file is named at all; whether its codes are known is seen later.

        Raises:
            InputError: it cannot be read, or says something else.
        """
        self._path = path
        self._today = today
        self._lock = threading.Lock()
        self._seen: tuple[int, ...] | None = ()  # none yet
        self._terms = USUAL
        self._problem: str | None = None
        self._notices: deque[Notice] = deque(maxlen=1)
        if path is not None:
            check(path)

    def terms(self) -> Terms:
        """Return the terms of today; who asks is about to load the rules."""
        if self._path is None:
            return USUAL
        today = self._today()
        with self._lock:  # who read an older file must not have the last word
            found = _state(self._path)
            if found != self._seen:
                self._seen = found
                self._take(self._path, today)
            return replace(self._terms, today=today)

    def notices(self) -> tuple[Notice, ...]:
        """Return what a person should learn, and forget it."""
        return (self._notices.popleft(),) if self._notices else ()

    def _take(self, path: Path, today: date) -> None:
        before, problem = replace(self._terms, today=today), self._problem
        try:
            self._terms, self._problem = load_checks(path, today), None
        except AgentError as error:
            self._problem = str(error)
            if self._problem != problem:
                self._tell(self._problem)
            return
        if problem is not None or self._terms != before:
            structlog.get_logger().info("checks-file taken", path=str(path))

    def _tell(self, problem: str) -> None:
        structlog.get_logger().warning("checks-file not taken", problem=problem)
        self._notices.append(
            Notice(
                reason="ConfigRefused",
                message=problem,
                is_warning=True,
                gpu=None,
                key="checks-file",
            )
        )


def _state(path: Path) -> tuple[int, ...] | None:
    """Return what is another one for another content, or where another may read it.

    A ConfigMap's file is another one behind the same link.
    """
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size
