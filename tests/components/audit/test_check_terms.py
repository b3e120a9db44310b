"""The daemon's reports: what is counted, and on which terms."""

import os
import subprocess
import sys
from collections import Counter
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from nodetopo.checks.engine import evaluate
from nodetopo.checks.rule import Severity, Verdict
from nodetopo.checks.waivers import NO_OVERRIDES, Overrides, Waiver
from nodetopo.components.audit.catalogue import AUDIT, HEALTH
from nodetopo.components.audit.check_terms import OverridesFile, summarize
from nodetopo.errors import InputError
from nodetopo.model.notice import Notice
from tests.deviceplugin.machines import node

BROKEN = node("h100x8-nvswitch-2numa-broken")
DAY = date(2026, 11, 21)
WAIVER = Waiver(code="NVL-001", reason="ticket 7", until=date(2027, 1, 31))


@pytest.mark.parametrize("rules", [HEALTH, AUDIT], ids=["health", "audit"])
def test_every_rule_is_counted_once_and_what_is_broken_is_named(rules: tuple[object, ...]) -> None:
    found = summarize(BROKEN, rules, NO_OVERRIDES)  # type: ignore[arg-type]
    assert sum(found.counts.values()) == len(rules)
    assert len(found.broken) == found.counts["fail"] + found.counts["warn"] > 0
    results = evaluate(BROKEN, rules, NO_OVERRIDES).results  # type: ignore[arg-type]
    kinds = Counter("skipped" if one.skipped else one.verdict.value for one in results)
    words = ("pass", "warn", "fail", "unknown", "waived", "skipped")
    assert found.counts == {word: kinds[word] for word in words}
    verdicts = {result.rule.code: result.verdict for result in results}
    assert all(verdicts[code] is Verdict(word) for code, word in found.broken.items())


def test_what_is_waived_is_counted_apart_and_not_broken() -> None:
    usual = summarize(BROKEN, HEALTH, NO_OVERRIDES)
    code = next(iter(usual.broken))
    waiver = Waiver(code=code, reason="known", until=DAY)
    found = summarize(BROKEN, HEALTH, Overrides(waivers=(waiver,), today=DAY))
    assert (usual.counts["waived"], found.counts["waived"]) == (0, 1)
    assert set(usual.broken) - set(found.broken) == {code}


class File:
    """A file of checks, and the day on which it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.day = DAY
        self._writes = 0
        self.write("severities: {KUB-004: info}")
        self.terms = OverridesFile(path, today=lambda: self.day)
        self.terms.current()

    def write(self, text: str) -> None:
        """Replace it, as a ConfigMap's is, by one of another time."""
        self._writes += 1
        new = self.path.with_suffix(f".{self._writes}")
        new.write_text(text, "utf-8")
        os.utime(new, ns=(self._writes, self._writes))
        new.replace(self.path)


@pytest.fixture
def file(tmp_path: Path) -> File:
    return File(tmp_path / "checks.yaml")


def test_without_a_file_nothing_is_changed() -> None:
    assert OverridesFile(None).current() is NO_OVERRIDES


def test_a_file_that_cannot_be_read_ends_the_start(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a file"):
        OverridesFile(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    ("text", "problem"), [("severities: {KUB-004: loud}", "loud"), ("waivers: [{}]", "without")]
)
def test_a_file_that_says_something_else_ends_the_start(
    tmp_path: Path, text: str, problem: str
) -> None:
    path = tmp_path / "checks.yaml"
    path.write_text(text, "utf-8")
    with pytest.raises(InputError, match=problem):
        OverridesFile(path)


def test_the_start_loads_no_rule(tmp_path: Path) -> None:
    path = tmp_path / "checks.yaml"
    path.write_text("severities: {KUB-004: info}", "utf-8")
    program = (
        "import sys; from pathlib import Path\n"
        "from nodetopo.components.audit.check_terms import OverridesFile\n"
        "terms = OverridesFile(Path(sys.argv[1]))\n"
        "print('nodetopo.components.audit.catalogue' in sys.modules)\n"
        "print(*terms.current().severities)"
    )
    command = [sys.executable, "-c", program, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    first, *_logged, last = done.stdout.splitlines()
    assert (first, last) == ("False", "KUB-004")


def test_an_unknown_check_code_is_reported_once_the_rules_are_loaded(
    file: File,
) -> None:
    text = "severities: {KUB-0004: info, KUB-005: info}"
    file.write(text)
    terms = OverridesFile(file.path, today=lambda: DAY)
    assert terms.notices() == ()
    with capture_logs() as logs:
        assert [terms.current() for _ in range(2)] == [Overrides(today=DAY)] * 2
    problem = f"{file.path}:1:24: severities.KUB-0004: unknown check 'KUB-0004'"
    (line,) = logs
    assert (line["event"], line["log_level"]) == ("checks-file not taken", "warning")
    assert line["problem"].startswith(problem)
    assert terms.notices() == (
        Notice(
            reason="ConfigRefused",
            message=line["problem"],
            is_warning=True,
            gpu=None,
            key="checks-file",
        ),
    )
    assert terms.notices() == ()
    file.write(text.replace("0004", "004"))
    assert set(terms.current().severities) == {"KUB-004", "KUB-005"}
    assert terms.notices() == ()


def test_a_file_that_is_gone_before_it_was_taken_is_told_of(file: File) -> None:
    terms = OverridesFile(file.path, today=lambda: DAY)
    file.path.unlink()
    with capture_logs() as logs:
        assert terms.current() == Overrides(today=DAY)
    assert [line["event"] for line in logs] == ["checks-file not taken"]


def test_a_changed_file_is_taken_and_the_day_is_always_todays(file: File) -> None:
    assert file.terms.current() == Overrides(severities={"KUB-004": Severity.INFO}, today=DAY)
    file.write("waivers: [{code: NVL-001, reason: ticket 7, until: 2027-01-31}]")
    file.day = date(2027, 2, 1)
    found = file.terms.current()
    assert found == Overrides(waivers=(WAIVER,), today=file.day)
    assert found.expired("NVL-001") == (WAIVER,)


def test_a_file_that_stays_the_same_is_not_taken_again(file: File) -> None:
    with capture_logs() as logs:
        assert file.terms.current() == file.terms.current()
    assert logs == []


@pytest.mark.parametrize(
    ("text", "is_moved", "written_ns"),
    [
        ("severities: {KUB-005: info}", True, 1),
        ("severities: {KUB-005: info}", False, 2),
        ("severities: {KUB-005: error}", False, 1),
    ],
    ids=["another inode", "another time", "another size"],
)
def test_a_file_that_is_another_in_one_way_alone_is_taken(
    file: File, text: str, is_moved: bool, written_ns: int
) -> None:
    place = file.path.with_suffix(".new") if is_moved else file.path
    place.write_text(text, "utf-8")
    os.utime(place, ns=(written_ns, written_ns))
    place.replace(file.path)
    with capture_logs() as logs:
        assert [set(file.terms.current().severities) for _ in range(2)] == [{"KUB-005"}] * 2
    assert [(line["event"], line["path"]) for line in logs] == [
        ("checks-file taken", str(file.path))
    ]


def test_the_day_is_todays_where_nobody_says_another(tmp_path: Path) -> None:
    path = tmp_path / "checks.yaml"
    path.write_text("{}", "utf-8")
    before = datetime.now(UTC).date()
    found = OverridesFile(path).current().today
    assert found is not None
    assert before <= found <= datetime.now(UTC).date()


def test_what_does_not_do_changes_nothing_and_is_logged_once(file: File) -> None:
    before = file.terms.current()
    file.write("severities: {KUB-004: loud}")
    with capture_logs() as logs:
        assert [file.terms.current() for _ in range(3)] == [before] * 3
    assert [(line["event"], line["log_level"]) for line in logs] == [
        ("checks-file not taken", "warning")
    ]
    assert "loud" in logs[0]["problem"]
    file.path.unlink()
    with capture_logs() as logs:
        assert [file.terms.current() for _ in range(2)] == [before] * 2
    assert len(logs) == 1
    file.write("severities: {}")
    assert file.terms.current() == Overrides(today=DAY)
