"""The runbook of checks: an entry for each one, with a command that takes its code."""

import re

import pytest

from nodetopo.checks.rule import Claim
from nodetopo.cli.main import main
from nodetopo.tools.cluster.doctor.catalogue import RULES as DOCTOR_RULES
from nodetopo.tools.node_rules import node_rules
from scripts.generators.check_runbook import PAGE

CLAIMS: tuple[Claim, ...] = (*node_rules(), *DOCTOR_RULES)


def entries() -> dict[str, str]:
    """Return code → entry of the page that is stored."""
    parts = re.split(r"^## ([A-Z]{3}-[0-9]{3})$", PAGE.read_text("utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_every_check_has_an_entry_that_means_confirms_and_fixes() -> None:
    found = entries()
    assert sorted(found) == sorted(claim.code for claim in CLAIMS)
    parts = ("**Meaning**: ", "**Confirm**: `", "**Fix**: ")
    lacking = [
        (code, part) for code, text in found.items() for part in parts if text.count(part) != 1
    ]
    assert lacking == []


@pytest.mark.parametrize("code", ["NVL-001", "KUB-003"])
def test_the_command_of_an_entry_judges_that_check(
    code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (command,) = re.findall(r"\*\*Confirm\*\*: `nodetopo ([^`]+)`", entries()[code])
    main([*command.split(), "--machine", "dgx-h100", "-o", "json"])
    printed = capsys.readouterr().out
    assert re.findall(r'"id": "([^"]+)"', printed) == [code]


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.code)
def test_the_command_of_an_entry_is_the_one_that_runs_the_check(claim: Claim) -> None:
    assert f"`nodetopo {claim.command} --only {claim.code}`" in entries()[claim.code]
