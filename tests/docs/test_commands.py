"""Commands in the documentation are commands of this program, and print what the pages show."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodetopo.cli.main import main, parsed
from nodetopo.errors import InputError

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SHOWN = [ROOT / "docs" / name for name in ("concepts.md", "compare.md", "operate/bandwidth.md")]
"""Pages that show what commands on bundled machines print."""

_FENCED = re.compile(r"^( *)```\w*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
_CUT = "…"
"""A line of its own stands for any number of lines."""
_PLACEHOLDER = re.compile(r"[<>\[\]{}|…]|\.\.\.")


def blocks(page: Path) -> Iterator[str]:
    for _indent, block in _FENCED.findall(page.read_text("utf-8")):
        yield re.sub(r"\\\n\s*", "", block)


def commands(page: Path) -> Iterator[str]:
    """Yield the arguments of each line `nodetopo …` of the page's blocks, but for synopses."""
    for block in blocks(page):
        for line in block.splitlines():
            if found := re.match(r"\s*(?:\$ )?(?:\.venv/bin/)?nodetopo (\S.*)", line):
                arguments = re.split(r" [|>]|  +| # |;", found[1])[0]
                if not _PLACEHOLDER.search(arguments):
                    yield arguments


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_of_a_page_can_be_parsed(page: Path) -> None:
    for arguments in commands(page):
        try:
            parsed(shlex.split(arguments))
        except (InputError, SystemExit) as error:
            pytest.fail(f"nodetopo {arguments}: {error}")


def test_commands_are_found() -> None:
    assert sum(1 for page in PAGES for _ in commands(page)) > 50


@pytest.mark.parametrize("page", SHOWN, ids=lambda page: page.name)
def test_a_page_shows_what_its_commands_print(
    page: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for block in blocks(page):
        if not block.startswith("$ nodetopo "):
            continue
        command, _, shown = block.partition("\n")
        main(shlex.split(command.removeprefix("$ nodetopo ")))
        printed = capsys.readouterr().out
        for part in shown.split(f"{_CUT}\n"):
            assert part in printed, command
