"""The checks in the daemon: a summary of their results, under the overrides of ``checks-file``."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path

import structlog
from msgspec.structs import replace

from nodetopo.checks.engine import Report, evaluate
from nodetopo.checks.rule import Rule, Verdict
from nodetopo.checks.waivers import NO_OVERRIDES, Overrides
from nodetopo.components.audit.checks_file import check, load_checks
from nodetopo.errors import AgentError
from nodetopo.model.notice import Notice
from nodetopo.model.snapshot import Snapshot
from nodetopo.outage import Outage


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSummary:
    """The results of some rules, for metrics and the status page.

    Attributes:
        counts: ``pass``, ``warn``, ``fail``, ``unknown``, ``waived`` and ``skipped`` (does not
            apply to this node) → results; all keys are there.
        broken: code of each rule that fails or warns and is not waived → ``fail`` or ``warn``.
        report: all of it; two summaries that count alike are equal without it.
    """

    counts: Mapping[str, int]
    broken: Mapping[str, str]
    report: Report = field(compare=False)


def summarize(snapshot: Snapshot, rules: Iterable[Rule], overrides: Overrides) -> CheckSummary:
    """Evaluate *rules* on *snapshot* under *overrides*."""
    report = evaluate(snapshot, rules, overrides)
    summary = report.summary
    return CheckSummary(
        counts={
            "pass": summary.passed,
            "warn": summary.warned,
            "fail": summary.failed,
            "unknown": summary.unknown,
            "waived": summary.waived,
            "skipped": summary.skipped,
        },
        broken={
            result.rule.code: result.verdict.value
            for result in report.results
            if result.waived is None and result.verdict in (Verdict.FAIL, Verdict.WARN)
        },
        report=report,
    )


def _today() -> date:
    return datetime.now(UTC).date()


class OverridesFile:
    """The overrides of ``checks-file``, read again whenever the file changes.

    An invalid file is rejected and the current overrides stay active; that is reported once, in the
    log and as a notice. Any thread can use it.
    """

    def __init__(self, path: Path | None, *, today: Callable[[], date] = _today) -> None:
        """Validate the file, if set; its codes are checked at the first use.

        Raises:
            InputError: it cannot be read, or has another form.
        """
        self._path = path
        self._today = today
        self._lock = threading.Lock()
        self._seen: tuple[int, ...] | None = ()  # none yet
        self._overrides = NO_OVERRIDES
        self._reported = Outage()
        self._notices: deque[Notice] = deque(maxlen=1)
        if path is not None:
            check(path)

    def current(self) -> Overrides:
        """Return today's overrides; this can load every rule."""
        if self._path is None:
            return NO_OVERRIDES
        today = self._today()
        with self._lock:  # a thread that read an older file must not have the last word
            state = _state(self._path)
            if state != self._seen:
                self._seen = state
                before = replace(self._overrides, today=today)
                try:
                    self._overrides, problem = load_checks(self._path, today), None
                except AgentError as error:
                    problem = str(error)
                is_new = self._reported.changed(problem)
                if problem is not None and is_new:
                    self._report(problem)
                elif problem is None and (is_new or self._overrides != before):
                    structlog.get_logger().info("checks-file taken", path=str(self._path))
            return replace(self._overrides, today=today)

    def notices(self) -> tuple[Notice, ...]:
        """Return the notices since the last call, and forget them."""
        return (self._notices.popleft(),) if self._notices else ()

    def _report(self, problem: str) -> None:
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
    """Return a value that changes with the file or its permissions; ``None`` without a file.

    An updated ConfigMap has a new file behind the same link.
    """
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size
