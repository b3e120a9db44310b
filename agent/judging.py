"""How the daemon judges: on the terms of ``checks-file``, into what metrics tell of a report."""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path

import structlog

from agent.checks.engine import evaluate
from agent.checks.rule import Rule, Verdict
from agent.checks.terms import USUAL, Terms
from agent.errors import AgentError
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

    What cannot be read then changes nothing, and is logged once. Any thread may ask.
    """

    def __init__(self, path: Path | None, *, today: Callable[[], date] = _today) -> None:
        """Read it, where a file is named at all.

        Raises:
            InputError: it cannot be read, or says something else.
        """
        self._path = path
        self._today = today
        self._lock = threading.Lock()
        self._seen = None if path is None else _state(path)
        self._terms = USUAL if path is None else _load(path, today())
        self._problem: str | None = None

    def terms(self) -> Terms:
        """Return the terms of today."""
        if self._path is None:
            return USUAL
        today = self._today()
        with self._lock:  # who read an older file must not have the last word
            found = _state(self._path)
            if found != self._seen:
                self._seen = found
                self._take(self._path, today)
            return replace(self._terms, today=today)

    def _take(self, path: Path, today: date) -> None:
        before, problem = replace(self._terms, today=today), self._problem
        try:
            self._terms, self._problem = _load(path, today), None
        except AgentError as error:
            self._problem = str(error)
            if self._problem != problem:
                structlog.get_logger().warning("checks-file not taken", problem=self._problem)
            return
        if problem is not None or self._terms != before:
            structlog.get_logger().info("checks-file taken", path=str(path))


def _state(path: Path) -> tuple[int, ...] | None:
    """Return what is another one for another content, or where another may read it.

    A ConfigMap's file is another one behind the same link.
    """
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size


def _load(path: Path, today: date) -> Terms:
    from agent.config.checks_file import load  # noqa: PLC0415 - loads every rule, 0.4 s of CPU

    return load(path, today)
