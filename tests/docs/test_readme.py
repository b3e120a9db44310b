"""The README shows what the program prints."""

import subprocess
import sys
from pathlib import Path

import pytest

from agent.cli.main import main

README = (Path(__file__).parents[2] / "README.md").read_text("utf-8")


def test_the_matrix_in_the_readme_is_the_one_that_is_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["topo", "matrix", "--machine", "dgx-1v", "-o", "short"]) == 0
    printed = (line.expandtabs(6).rstrip() for line in capsys.readouterr().out.splitlines())
    assert "\n".join(printed) in README


def test_the_readme_shows_what_the_daemon_prints_once() -> None:
    once = ("run", "--once", "--machine=dgx-h100", "--node-name=my-node", "--metrics-address=none")
    done = subprocess.run(
        [sys.executable, "-m", "agent", *once, "--health-file=none"],
        capture_output=True,
        text=True,
        check=True,
    )
    simulated, _blank, rest = done.stdout.partition("\n")
    assert simulated in README
    _before, said, rest = rest.partition("\na pod asks for GPUs\n")
    assert said + rest.partition("\nmetrics\n")[0] in README
