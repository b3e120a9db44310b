"""Every promise of ``faults.md`` and every case of ``conformance.md`` has a test that exists.

Tests are found by name, wherever they live.
"""

import ast
import re
from functools import cache
from pathlib import Path

import yaml

_ROOT = Path(__file__).parents[2]
_DOCS = _ROOT / "docs" / "internals"
_NAME = re.compile(r"`(test_\w+)`")
_TEST = re.compile(r"^def (test_\w+)\(", re.MULTILINE)
_CASES = 21
"""Upstream's cases: ten and one in device_plugin_test.go, one in device_manager_test.go, seven in
device_plugin_failures_test.go, two in device_plugin_failures_pod_status_test.go (v1.36.3)."""


@cache
def files_of_tests() -> dict[str, list[str]]:
    """Return the files that define each test of the suite, by the test's name."""
    files: dict[str, list[str]] = {}
    for path in sorted((_ROOT / "tests").rglob("test_*.py")):
        for name in _TEST.findall(path.read_text("utf-8")):
            files.setdefault(name, []).append(str(path.relative_to(_ROOT)))
    return files


def names_by_fault() -> dict[str, list[str]]:
    """Return the names of the tests of each fault, as ``tests/faults.yaml`` lists them."""
    tests: dict[str, list[str]] = yaml.safe_load(
        (_ROOT / "tests" / "faults.yaml").read_text("utf-8")
    )
    return tests


def _rows(name: str) -> list[list[str]]:
    """Return the cells of every row of every table of the page *name*, headings left out."""
    text = (_DOCS / name).read_text("utf-8")
    tables = re.findall(r"^\|.*\|\n\|[-|]+\|\n((?:\|.*\|\n)+)", text, re.MULTILINE)
    lines = [line for table in tables for line in table.splitlines()]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@cache
def _docstrings(name: str) -> list[str]:
    """Return the docstrings of all tests called *name*."""
    trees = (ast.parse((_ROOT / file).read_text("utf-8")) for file in files_of_tests()[name])
    return [
        ast.get_docstring(node) or ""
        for tree in trees
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name == name
    ]


def test_every_test_named_for_a_promise_exists() -> None:
    named = [name for names in names_by_fault().values() for name in names]

    assert named
    assert [name for name in named if name not in files_of_tests()] == []


def test_every_promise_leads_to_its_tests() -> None:
    links = [re.findall(r"`([\w-]+)`", row[2]) for row in _rows("faults.md")]

    assert links == [[fault] for fault in names_by_fault()]


def test_every_upstream_case_is_repeated_once() -> None:
    cases = [row[0] for row in _rows("conformance.md")]

    assert len(cases) == len(set(cases)) == _CASES


def test_every_test_of_an_upstream_case_exists() -> None:
    named = [_NAME.findall(row[1]) for row in _rows("conformance.md")]

    assert [names for names in named if len(names) != 1 or names[0] not in files_of_tests()] == []


def test_each_test_quotes_the_upstream_case_beside_which_it_is_listed() -> None:
    wrong = []
    for case, test, _ in _rows("conformance.md"):
        (name,) = _NAME.findall(test)
        quoted = [re.search(r'It "(.+)"\.', text) for text in _docstrings(name)]
        parts = quoted[0][1].split("…") if quoted and quoted[0] else ["nothing"]
        if not all(part.strip(" ()") in case for part in parts):
            wrong.append((case, name))

    assert wrong == []
