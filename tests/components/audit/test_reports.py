"""The checks in the daemon while the node, the overrides and the rules change."""

import os
import threading
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from nodetopo.checks.rule import Severity
from nodetopo.checks.waivers import NO_OVERRIDES, Overrides, Waiver
from nodetopo.components.audit import check_terms, health_loop
from nodetopo.components.audit.alignment.loop import MeasuredPods
from nodetopo.components.audit.catalogue import AUDIT
from nodetopo.components.audit.check_terms import CheckSummary, OverridesFile, summarize
from nodetopo.components.audit.checks_file import load_checks
from nodetopo.components.audit.component import Audit
from nodetopo.components.audit.health_loop import LOOK_S, HealthLoop
from nodetopo.errors import InputError
from nodetopo.kernel.store import SnapshotStore
from tests.deviceplugin.machines import node
from tests.kernel.running import WHOLE, added, kernel_of

BROKEN = node("h100x8-nvswitch-2numa-broken")


class FixedOverrides(OverridesFile):
    """Overrides that a test sets; the last are in force."""

    def __init__(self, terms: Sequence[Overrides]) -> None:
        super().__init__(None)
        self._of_test = terms

    def current(self) -> Overrides:
        """Return the overrides in force."""
        return self._of_test[-1]


def health_of(store: SnapshotStore, terms: Sequence[Overrides] = (NO_OVERRIDES,)) -> HealthLoop:
    """Return the health checks of *store*, with the last of *terms* in force."""
    return HealthLoop(store, FixedOverrides(terms))


def step(loop: HealthLoop) -> CheckSummary:
    """Evaluate once, and return the results."""
    loop.step()
    assert loop.found is not None
    return loop.found


def audit_on(directory: Path, **settings: Any) -> Audit:
    """Return the component on a node whose metrics are served."""
    kernel = kernel_of(directory, **settings)
    kernel.metrics_url = "http://127.0.0.1:1/metrics"
    kernel.store.publish(WHOLE)
    found = added(kernel, "audit")
    assert isinstance(found, Audit)
    return found


def test_waivers_count_until_they_end() -> None:
    store = SnapshotStore()
    store.publish(BROKEN)
    terms = [NO_OVERRIDES]
    loop = health_of(store, terms)
    usual = step(loop)
    code = next(iter(usual.broken))
    waiver = Waiver(code=code, reason="known", until=date(2026, 11, 21))
    terms.append(Overrides(waivers=(waiver,), today=date(2026, 11, 21)))
    waived = step(loop)
    assert waived.counts["waived"] == 1
    assert code not in waived.broken
    terms.append(Overrides(waivers=(waiver,), today=date(2026, 11, 22)))
    assert step(loop).counts == usual.counts


def test_a_checks_file_counts_as_soon_as_it_is_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "checks.yaml"
    path.write_text("{}", "utf-8")
    terms = OverridesFile(path)
    with monkeypatch.context() as forbidden, capture_logs() as logs:

        def refuse(*_: object) -> Overrides:
            raise InputError(f"cannot read {path}: Permission denied", "check the path")

        forbidden.setattr(check_terms, "load_checks", refuse)
        path.write_text("severities: {KUB-004: info}", "utf-8")
        path.chmod(0o000)
        assert [dict(terms.current().severities) for _ in range(2)] == [{}, {}]
        before = path.stat()
        while path.stat().st_ctime_ns == before.st_ctime_ns:  # the clock of files is coarse
            path.chmod(0o444)
    assert [line["event"] for line in logs] == ["checks-file not taken"]
    assert dict(terms.current().severities) == {"KUB-004": Severity.INFO}


def test_a_checks_file_that_is_only_touched_is_no_news(tmp_path: Path) -> None:
    path, good = tmp_path / "checks.yaml", "severities: {KUB-004: info}"
    path.write_text(good, "utf-8")
    terms = OverridesFile(path, today=lambda: date(2026, 11, 21))
    terms.current()
    with capture_logs() as logs:
        for seconds, text in enumerate((good, "loud", "loud", good, good, "loud")):
            path.write_text(text, "utf-8")
            os.utime(path, (seconds, seconds))
            assert dict(terms.current().severities) == {"KUB-004": Severity.INFO}
    said = ["checks-file not taken", "checks-file taken", "checks-file not taken"]
    assert [line["event"] for line in logs] == said


def test_a_thread_that_read_an_older_file_does_not_have_the_last_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "checks.yaml"
    path.write_text("{}", "utf-8")
    terms, texts = OverridesFile(path), ["severities: {KUB-005: info}"]
    newer = threading.Thread(target=terms.current)

    def changed_meanwhile(*asked: Any) -> Overrides:
        found = load_checks(*asked)
        if texts:
            path.with_suffix(".new").write_text(texts.pop(), "utf-8")
            path.with_suffix(".new").replace(path)
            newer.start()
            newer.join(0.5)  # it has to wait for us
        return found

    monkeypatch.setattr(check_terms, "load_checks", changed_meanwhile)
    path.write_text("severities: {KUB-004: info}", "utf-8")
    terms.current()
    newer.join()
    assert dict(terms.current().severities) == {"KUB-005": Severity.INFO}


def test_a_fault_in_a_check_is_logged_once_and_ends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = SnapshotStore()
    store.publish(WHOLE)

    def broken(*_: object) -> CheckSummary:
        raise ZeroDivisionError("a rule")

    loop = health_of(store)
    with monkeypatch.context() as broken_rules, capture_logs() as logs:
        broken_rules.setattr(health_loop, "summarize", broken)
        assert [loop.step() for _ in range(2)] == [LOOK_S, LOOK_S]
        assert loop.found is None
    step(loop)
    assert [line["event"] for line in logs] == ["health not checked: a bug in nodetopo"]


def test_the_verdicts_of_the_checks_are_those_of_the_latest_snapshot() -> None:
    store = SnapshotStore()
    loop = health_of(store)
    loop.step()
    assert loop.found is None
    store.publish(WHOLE)
    sound = step(loop).counts
    store.publish(BROKEN)
    broken = step(loop).counts
    assert sound["fail"] == 0
    assert broken["fail"] > 0


def test_the_audit_is_among_the_reports_once_there_is_one(tmp_path: Path) -> None:
    component = audit_on(tmp_path, measure_pods=False)
    assert component.observed().check_counts == {}
    assert component.health is not None
    assert component.audit is not None
    component.health.step()
    assert set(component.observed().check_counts) == {"health"}
    component.audit.found = summarize(replace(WHOLE, kubelet=None), AUDIT, NO_OVERRIDES)
    reading = component.observed()
    assert set(reading.check_counts) == {"health", "audit"}
    assert reading.check_counts["audit"] == component.audit.found.counts
    assert reading.checks_broken["audit"] == component.audit.found.broken


def test_measurements_and_explanations_are_counted(tmp_path: Path) -> None:
    component = audit_on(tmp_path, explain_rejections=True, publish_pod_events=True)
    alignment, rejections, events = component.alignment, component.rejections, component.events
    assert alignment is not None
    assert rejections is not None
    assert events is not None
    alignment.errors, rejections.explained, rejections.given_up = 4, 5, 6
    alignment.found = MeasuredPods(verdicts={"misaligned": 3}, reasons={"shared-cpus": 3})
    events._posted = 2
    reading = component.observed()
    assert (reading.pod_errors, reading.rejections_explained, reading.rejections_given_up) == (
        *(4, 5, 6),
    )
    assert reading.pods_measured == {"misaligned": 3}
    assert reading.pods_misaligned == {"shared-cpus": 3}
    assert sum(writer.posted for writer in component.kernel.writers) == 2
