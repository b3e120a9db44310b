"""The README and the pages beside it show what the program prints."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from nodetopo.cli.main import main

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
TRY = (ROOT / "docs/operate/try.md").read_text("utf-8")
CLI = (ROOT / "docs/reference/cli.md").read_text("utf-8")


def test_the_matrix_of_the_command_line_page_is_the_one_that_is_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["topo", "matrix", "--machine", "dgx-1v", "-o", "short"]) == 0
    printed = (line.expandtabs(6).rstrip() for line in capsys.readouterr().out.splitlines())
    assert "\n".join(printed) in CLI


def test_the_pages_show_what_the_daemon_prints_once() -> None:
    once = ("run", "--once", "--machine=dgx-h100", "--node-name=my-node", "--metrics-address=none")
    done = subprocess.run(
        [sys.executable, "-m", "nodetopo", *once, "--health-file=none"],
        capture_output=True,
        text=True,
        check=True,
    )
    simulated, _blank, rest = done.stdout.partition("\n")
    assert simulated in TRY
    _before, said, rest = rest.partition("\na pod asks for GPUs\n")
    assert said + rest.partition("\nmetrics\n")[0] in TRY
    _before, said, rest = README.partition("\na pod asks for GPUs\n")
    assert said + rest.partition("```")[0] in TRY


def test_the_command_line_page_has_a_row_for_every_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--help"]) == 0
    commands = re.findall(r"^    (\w[\w-]*)", capsys.readouterr().out, re.MULTILINE)
    assert commands
    assert re.findall(r"^\| `(\w[\w-]*)` \|", CLI, re.MULTILINE) == commands
