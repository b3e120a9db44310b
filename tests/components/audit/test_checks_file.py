"""The file of severities and waivers."""

from datetime import date
from pathlib import Path

import pytest

from nodetopo.checks.rule import Severity
from nodetopo.checks.waivers import Overrides, Waiver
from nodetopo.components.audit.checks_file import check, load_checks
from nodetopo.errors import InputError

TODAY = date(2026, 11, 21)
WAIVER = "waivers: [{code: KUB-001, reason: ticket 7, until: 2027-01-31"


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "checks.yaml"
    path.write_text(text, "utf-8")
    return path


def test_severities_and_waivers_are_read(tmp_path: Path) -> None:
    text = f"severities: {{kub-004: info}}\n{WAIVER}, subject: 'GPU3*'}}]\n"
    assert load_checks(written(tmp_path, text), TODAY) == Overrides(
        severities={"KUB-004": Severity.INFO},
        waivers=(
            Waiver(code="KUB-001", reason="ticket 7", until=date(2027, 1, 31), subject="GPU3*"),
        ),
        today=TODAY,
    )


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "{}"])
def test_an_empty_file_says_nothing(tmp_path: Path, text: str) -> None:
    assert load_checks(written(tmp_path, text), TODAY) == Overrides(today=TODAY)


UNKNOWN = (
    ("severities: {KUB-0001: info}", "unknown check 'KUB-0001' — did you mean 'KUB-001'"),
    (f"{WAIVER.replace('KUB-001', 'KUB')}}}]", "unknown check 'KUB'"),
)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "severity: {}",
            r":1:11: severity: unknown key 'severity' — keys are .*; did you mean 'severities'",
        ),
        ("severities: {KUB-001: loud}", "expected one of error, warning, info, found the text"),
        ("severities: [KUB-001]", "expected a mapping, found"),
        ("waivers: {code: KUB-001}", "expected a list, found a mapping"),
        ("waivers: [{code: KUB-001, until: 2027-01-31}]", "a waiver without 'reason'"),
        ("waivers: [{code: KUB-001, reason: why}]", "a waiver without 'until'"),
        ("waivers: [{code: KUB-001, reason: '', until: 2027-01-31}]", "expected a text"),
        (f"{WAIVER[:-10]}soon}}]", "expected a date such as 2027-01-31"),
        (f"{WAIVER}, subjects: x}}]", "unknown key 'subjects'"),
        (f"{WAIVER}, code: KUB-003}}]", "a key twice"),
        ("severities: {KUB-001: info, KUB-001: error}", "a key twice"),
        ("a: [", "not YAML"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, text: str, problem: str) -> None:
    path = written(tmp_path, text)
    for read in (check, lambda path: load_checks(path, TODAY)):
        with pytest.raises(InputError, match=problem) as found:
            read(path)
        assert str(found.value).startswith(f"{path}")


@pytest.mark.parametrize(("text", "problem"), UNKNOWN)
def test_a_code_that_no_rule_has_is_named_where_rules_may_be_loaded(
    tmp_path: Path, text: str, problem: str
) -> None:
    path = written(tmp_path, text)
    check(path)
    with pytest.raises(InputError, match=problem) as found:
        load_checks(path, TODAY)
    assert str(found.value).startswith(f"{path}:1:")


def test_a_file_that_is_not_there_is_an_error_and_no_empty_file(tmp_path: Path) -> None:
    for read in (check, lambda path: load_checks(path, TODAY)):
        with pytest.raises(InputError, match="is not a file"):
            read(tmp_path / "checks.yaml")
