"""The README shows what the program prints."""

import re
from pathlib import Path

import pytest

from agent.cli.main import main

README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")


def test_the_matrix_in_the_readme_is_the_one_that_is_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["topo", "matrix", "--machine", "dgx-1v", "-o", "short"]) == 0
    printed = (line.expandtabs(6).rstrip() for line in capsys.readouterr().out.splitlines())
    assert "\n".join(printed) in README


def test_every_file_that_the_readme_links_to_exists() -> None:
    links = re.findall(r"\]\(([^)#]+)", README)
    missing = [link for link in links if not (Path(__file__).parents[1] / link).exists()]
    assert missing == []
