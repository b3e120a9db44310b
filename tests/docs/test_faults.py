"""``docs/faults.md`` and ``docs/conformance.md``: every test that they name is there."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_PAGES = ("faults.md", "conformance.md")
_ID = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
_CASES = 21
"""Upstream's cases: ten and one in device_plugin_test.go, one in device_manager_test.go, seven in
device_plugin_failures_test.go, two in device_plugin_failures_pod_status_test.go (v1.36.3)."""


def _rows(page: str) -> list[list[str]]:
    """Return the cells of every row of every table of *page*, headings left out."""
    text = _ROOT.joinpath("docs", page).read_text("utf-8")
    tables = re.findall(r"^\|.*\|\n\|[-|]+\|\n((?:\|.*\|\n)+)", text, re.MULTILINE)
    lines = [line for table in tables for line in table.splitlines()]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@cache
def _tests(path: str) -> dict[str, str]:
    """Return the docstring of every test in the file at *path*, by its name."""
    tree = ast.parse(_ROOT.joinpath(path).read_text("utf-8"))
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    return {function.name: ast.get_docstring(function) or "" for function in functions}


@pytest.mark.parametrize("page", _PAGES)
def test_every_test_that_a_page_names_is_there(page: str) -> None:
    named = _ID.findall(_ROOT.joinpath("docs", page).read_text("utf-8"))

    missing = [f"{path}::{name}" for path, name in named if name not in _tests(path)]
    assert named
    assert missing == []


@pytest.mark.parametrize("page", _PAGES)
def test_every_row_names_a_test(page: str) -> None:
    rows = _rows(page)

    assert rows
    assert [row for row in rows if not _ID.search(" ".join(row[1:]))] == []


def test_every_upstream_case_is_told_anew_once() -> None:
    cases = [row[0] for row in _rows("conformance.md")]

    assert len(cases) == len(set(cases)) == _CASES


def test_each_test_quotes_the_upstream_case_beside_which_it_is_listed() -> None:
    wrong = []
    for case, test, _ in _rows("conformance.md"):
        ((path, name),) = _ID.findall(test)
        quoted = re.search(r'It "(.+)"\.', _tests(path)[name])
        parts = quoted[1].split("…") if quoted else ["nothing"]
        if not all(part.strip(" ()") in case for part in parts):
            wrong.append((case, name))

    assert wrong == []
