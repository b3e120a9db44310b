"""The appendix of docs/internals/faults.md: which test verifies which promise.

``tests/faults.yaml`` lists tests by name; this looks up their files.
"""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import yaml

_ROOT = Path(__file__).parents[2]
PAGE = _ROOT / "docs" / "internals" / "fault-tests.md"
_TEST = re.compile(r"^def (test_\w+)\(", re.MULTILINE)
_INTRODUCTION = """\
# Tests of the promises

This page lists the tests that verify each promise of [faults.md](faults.md).

This page is generated from `tests/faults.yaml` by `scripts/generate`.
"""


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
    text = (_ROOT / "tests" / "faults.yaml").read_text("utf-8")
    tests: dict[str, list[str]] = yaml.safe_load(text)
    return tests


def page() -> str:
    """Return the page as Markdown, one section for each fault."""
    return _INTRODUCTION + "".join(
        f"\n## {fault}\n\n" + "".join(map(_line, names))
        for fault, names in names_by_fault().items()
    )


def _line(name: str) -> str:
    files = ", ".join(f"`{file}`" for file in files_of_tests().get(name, ()))
    return f"- `{name}` in {files}\n"


def made() -> Mapping[Path, str]:
    """Return the page."""
    return {PAGE: page()}


def owned() -> Iterable[Path]:
    """Return the file of this generator."""
    return (PAGE,)
