"""Every rule is broken by one machine, holds on another, and never passes without its inputs."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from nodetopo.checks.engine import Result, evaluate
from nodetopo.checks.rule import Severity, Verdict
from nodetopo.components.audit.catalogue import RULES, rule
from tests.rules.bases import Bases
from tests.rules.facts import EDITS, edit_for
from tests.rules.machine import Machine

HERE = Path(__file__).parent
CODES = sorted(path.name for path in HERE.iterdir() if (path / "inputs").exists())
BROKEN = {
    Severity.ERROR: Verdict.FAIL,
    Severity.WARNING: Verdict.WARN,
    Severity.INFO: Verdict.PASS,
}


def _inputs(code: str) -> list[str]:
    lines = (HERE / code / "inputs").read_text("utf-8").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


CASES = [(code, name) for code in CODES for name in _inputs(code)]


def _judged(machine: Machine) -> Result:
    code = machine.directory.parent.name
    return evaluate(machine.snapshot(), (rule(code),)).results[0]


def test_every_rule_has_machines() -> None:
    assert sorted(one.code for one in RULES) == CODES


@pytest.mark.parametrize("code", CODES)
def test_a_rule_is_broken_by_its_failing_machine(code: str, bases: Bases) -> None:
    result = _judged(Machine(HERE / code / "fail", bases))
    assert result.findings
    assert result.verdict is BROKEN[result.severity]


@pytest.mark.parametrize("code", CODES)
def test_a_rule_holds_on_its_passing_machine(code: str, bases: Bases) -> None:
    result = _judged(Machine(HERE / code / "pass", bases))
    assert (result.verdict, result.findings, result.missing) == (Verdict.PASS, (), ())
    assert result.skipped is None


@pytest.mark.parametrize(("code", "name"), CASES)
def test_a_rule_does_not_pass_without_an_input(code: str, name: str, bases: Bases) -> None:
    machine = Machine(HERE / code / "pass", bases)
    edit = edit_for(machine.directory, name)
    if edit is None:
        lacking = replace(machine, without=frozenset({name})).snapshot()
    else:
        lacking = edit(machine.snapshot())
    result = evaluate(lacking, (rule(code),)).results[0]
    assert (result.verdict, result.findings) == (Verdict.UNKNOWN, ())
    assert result.missing


@pytest.mark.parametrize("name", EDITS)
def test_the_edit_of_an_input_equals_a_reading_without_it(name: str, bases: Bases) -> None:
    edit = EDITS[name]
    code = next(
        code for code, each in CASES if each == name and edit_for(HERE / code / "pass", name)
    )
    machine = Machine(HERE / code / "pass", bases)
    read = replace(machine, without=frozenset({name})).snapshot()
    expected = edit(machine.snapshot())
    # The agent reads only bridges above the GPUs and HCAs that it knows.
    assert set(read.bridges or ()) <= set(expected.bridges or ())
    assert set(read.issues) == set(expected.issues)
    assert read == replace(expected, bridges=read.bridges, issues=read.issues)


@pytest.mark.parametrize("code", CODES)
def test_a_rule_names_an_input(code: str) -> None:
    assert _inputs(code)
