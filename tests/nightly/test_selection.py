"""Who asks for the nightly tests gets them, and nobody else: they take minutes to build."""

import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
_GANGS = "tests/nightly/test_gangs.py"


@pytest.mark.parametrize("expression", ["", "not lab", "lab"])
def test_the_nightly_tests_are_left_out_unless_they_are_named(expression: str) -> None:
    assert "no tests collected" in _collected(expression)


def test_the_nightly_tests_are_there_for_who_names_them() -> None:
    found = _collected("nightly")
    assert "[kueue]" in found
    assert "[kai]" in found


def _collected(expression: str) -> str:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", _GANGS, "-m", expression]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    return done.stdout
