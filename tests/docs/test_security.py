"""What the threat model claims is proven by tests that exist."""

import ast
import re
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "docs" / "internals" / "threat-model.md"
TEST = re.compile(r"`(tests/[^`]+\.py)` `(test_[a-z0-9_]+)`")


def claims() -> list[str]:
    """Return the rows of all tables, without their heads."""
    lines = MODEL.read_text("utf-8").splitlines()
    rows = [line for line in lines if line.startswith("|")]
    heads = [line for line, rule in pairwise(rows) if rule.startswith("|---")]
    return [line for line in rows if line not in heads and not line.startswith("|---")]


@cache
def names_in(path: str) -> frozenset[str]:
    """Return the names of the tests in a file."""
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    functions = (each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef))
    return frozenset(each.name for each in functions if each.name.startswith("test_"))


def test_the_model_has_claims() -> None:
    assert len(claims()) > 30


@pytest.mark.parametrize("claim", claims())
def test_every_claim_names_tests_that_exist(claim: str) -> None:
    cell = claim.strip("| ").rpartition("|")[2]
    named = TEST.findall(cell)
    assert named, "no test"
    assert len(named) == cell.count("`tests/"), "not the name of a test"
    for path, name in named:
        assert name in names_in(path), f"{path}::{name}"


def test_the_way_to_report_a_flaw_leads_to_the_model_and_back() -> None:
    policy = (ROOT / "SECURITY.md").read_text("utf-8")
    for heading in ("Report a vulnerability", "Supported versions", "In scope", "Out of scope"):
        assert f"## {heading}" in policy
    assert "docs/internals/threat-model.md" in policy
    assert "(../../SECURITY.md)" in MODEL.read_text("utf-8")
