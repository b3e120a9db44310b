"""The pages of checks: an entry for each one, with a command that takes its code."""

import re

import pytest

from nodetopo.checks.rule import PAGE as CHECKS
from nodetopo.checks.rule import Claim, Severity, rule
from nodetopo.cli.main import main
from nodetopo.pages import checks
from nodetopo.tools.cluster.doctor.catalogue import RULES as DOCTOR_RULES
from nodetopo.tools.cluster.doctor.rule import PAGE as DOCTOR
from nodetopo.tools.node_rules import node_rules
from scripts.generators.pages import DOCS

CLAIMS: tuple[Claim, ...] = (*node_rules(), *DOCTOR_RULES)


def command(claim: Claim) -> str:
    """Return the command in the entry of *claim* on its page, below ``docs/``."""
    page = (DOCS.parent / claim.url.partition("#")[0]).read_text("utf-8")
    (entry,) = re.findall(rf"^## {claim.code}\n\n(.*)", page, re.MULTILINE)
    (found,) = re.findall(r"· `nodetopo ([^`]+)`", entry)
    return str(found)


def test_every_check_has_an_entry_and_every_entry_a_check() -> None:
    assert list(checks(CHECKS)) == [claim.code for claim in node_rules()]
    assert list(checks(DOCTOR)) == [claim.code for claim in DOCTOR_RULES]
    lacking = [
        (claim.code, name)
        for claim in CLAIMS
        for name in ("claim", "why", "remedy", "reference")
        if not getattr(claim, name)
    ]
    assert lacking == []


def test_a_rule_without_an_entry_cannot_be_defined() -> None:
    with pytest.raises(LookupError, match=r"write an entry `## GPU-999` in .*reference/checks\.md"):
        rule("GPU-999", Severity.ERROR)(lambda _: iter(()))


@pytest.mark.parametrize("code", ["NVL-001", "KUB-003"])
def test_the_command_of_an_entry_judges_that_check(
    code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (claim,) = (claim for claim in CLAIMS if claim.code == code)
    main([*command(claim).split(), "--machine", "dgx-h100", "-o", "json"])
    printed = capsys.readouterr().out
    assert re.findall(r'"id": "([^"]+)"', printed) == [code]


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.code)
def test_the_command_of_an_entry_is_the_one_that_runs_the_check(claim: Claim) -> None:
    assert command(claim) == f"{claim.command} --only {claim.code}"
