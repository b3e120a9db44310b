"""Results of checks as text."""

import dataclasses
from datetime import date

from msgspec.structs import replace

from nodetopo.checks.engine import evaluate
from nodetopo.checks.rule import Area, Skip
from nodetopo.checks.waivers import Overrides, Waiver
from nodetopo.cli.output import Style
from nodetopo.cli.reports import answer
from nodetopo.components.audit.catalogue import RULES, rule
from nodetopo.model.pci import PcieLink
from nodetopo.model.pod import Container, Pod
from nodetopo.model.snapshot import Snapshot
from tests.cli.conftest import Cli
from tests.components.audit.judge import healthy, with_gpu

PLAIN = Style(is_on=False)


def narrow() -> Snapshot:
    """Return the healthy node with one GPU on half its lanes."""
    link = PcieLink(generation=5, width=8, max_generation=5, max_width=16)
    return with_gpu(healthy(), 2, lambda gpu: replace(gpu, pcie=link))


def test_a_failure_shows_what_was_seen_and_what_to_do() -> None:
    checked = rule("PCI-001")
    lines = answer(evaluate(narrow(), (checked,)), PLAIN).table.splitlines()
    assert lines[0] == f"pcie       ✗ PCI-001 {checked.claim}"
    assert "observed x8" in lines[1]
    assert "expected x16" in lines[1]
    assert lines[2] == f"               → {checked.remedy}; `nodetopo explain PCI-001`"


def test_failures_come_first_and_passes_are_counted() -> None:
    """A warning of an earlier area stands below a failure of a later one."""
    gpus = with_gpu(narrow(), 0, lambda gpu: replace(gpu, persistence=False))
    report = evaluate(gpus, RULES)
    *rows, footer = answer(report, PLAIN).table.splitlines()
    marks = [line[11] for line in rows if line[11] != " "]
    assert marks == sorted(marks, key="✗!?~".index)
    assert set(marks) >= {"✗", "!"}
    counts = report.summary
    assert f"{counts.passed} passed · {counts.skipped} not applicable (--all lists them)" in footer


def test_a_list_of_all_has_a_row_for_every_rule() -> None:
    report = evaluate(narrow(), RULES)
    table = answer(report, PLAIN, is_whole=True).table
    assert all(f" {result.rule.code} {result.rule.claim}" in table for result in report.results)
    assert "--all" not in table


def test_the_short_form_of_a_good_node_is_empty() -> None:
    assert answer(evaluate(healthy(), RULES), PLAIN).short == ""


def test_the_short_form_has_a_line_for_each_problem() -> None:
    short = answer(evaluate(narrow(), RULES), PLAIN).short
    assert [line.split()[1] for line in short.splitlines()] == ["PCI-001"]


def waived(*, until: date, subject: str | None = None) -> Overrides:
    """Return the terms of a waiver for GPUs with half their lanes."""
    waiver = Waiver(code="PCI-001", reason="riser ordered", until=until, subject=subject)
    return Overrides(waivers=(waiver,), today=date(2026, 11, 21))


def test_a_waived_failure_is_no_problem_and_says_why() -> None:
    report = evaluate(narrow(), RULES, waived(until=date(2026, 12, 1)))
    shown = answer(report, PLAIN)
    assert shown.short == ""
    assert "~ PCI-001" in shown.table
    assert "(waived: riser ordered; until 2026-12-01)" in shown.table


def test_an_expired_waiver_is_shown_below_the_failure() -> None:
    report = evaluate(narrow(), (rule("PCI-001"),), waived(until=date(2026, 11, 1)))
    table = answer(report, PLAIN).table
    assert "✗ PCI-001" in table
    assert "waiver expired: riser ordered; until 2026-11-01" in table


def test_a_rule_that_does_not_apply_says_why_and_is_no_pass() -> None:
    found = dataclasses.replace(rule("PCI-001"), judge=lambda _: iter([Skip("no GPU")]))
    table = answer(evaluate(narrow(), (found,)), PLAIN, is_whole=True).table
    assert f"· PCI-001 {found.claim} (does not apply: no GPU)" in table
    assert "0 passed" in table
    assert "1 not applicable" in table


def test_names_from_a_stranger_s_file_do_not_steer_the_terminal(cli: Cli) -> None:
    assert cli("health", "--machine", "dgx-1v").code == 0
    hostile = replace(narrow(), node="\x1b[2Jnode")
    assert "\x1b" not in answer(evaluate(hostile, RULES), PLAIN).table


def test_every_area_is_named_once() -> None:
    text = answer(evaluate(healthy(), RULES), PLAIN, is_whole=True).table
    areas = [line.split()[0] for line in text.splitlines()[:-1] if not line.startswith(" ")]
    assert len(set(areas)) == len(areas)


def test_inputs_that_many_pods_lack_are_one_line() -> None:
    pods = tuple(
        Pod(
            namespace="ml",
            name=f"job-{at}",
            phase="Running",
            containers=(Container(name="c", requests={"nvidia.com/gpu": 1}, devices=None),),
        )
        for at in range(1000)
    )
    aligned = [it for it in RULES if it.area is Area.ALIGNMENT]
    found = answer(evaluate(replace(healthy(), pods=pods), aligned), PLAIN)
    unknown = [line for line in found.table.splitlines() if line.startswith("? not known")]
    assert len(unknown) == 1
    assert unknown[0].startswith("? not known: the devices of ml/job-0 container c, ml/job-1 ")
    assert " and 995 more: ALN-001, " in unknown[0]
    assert len(found.plain["missing"]) == 1000
    assert found.short == f"{unknown[0]}\n"
