"""The manual pages: made from the parsers, whole, and of macros that every roff knows."""

import re

import pytest

from nodetopo.cli.main import COMMANDS, parser
from nodetopo.cli.words import levels
from scripts.generators.man import pages

PAGES = pages()
MACROS = {"TH", "SH", "SS", "TP", "PP", "B", "I", "BR", "nf", "fi"}
"""Of man(7), those that the pages use."""


def test_every_command_has_a_page() -> None:
    assert PAGES.keys() == {"nodetopo.1", *(f"nodetopo-{one.name}.1" for one in COMMANDS)}


@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_page_is_well_formed(name: str) -> None:
    lines = PAGES[name].splitlines()
    requests = [line[1:].split()[0] for line in lines if line.startswith((".", "'"))]
    assert {macro for macro in requests if not macro.startswith('\\"')} <= MACROS
    assert [line for line in lines if not line or not line.isascii() or line != line.strip()] == []
    escapes = {match for line in lines for match in re.findall(r"\\(.)", line)}
    assert escapes <= set('-e&f["')
    fonts = re.findall(r"\\f(.)", PAGES[name])
    assert fonts[1::2] == ["R"] * (len(fonts) // 2), "each font ends"
    sections = [line[4:] for line in lines if line.startswith(".SH ")]
    assert sections[:3] == ["NAME", "SYNOPSIS", "DESCRIPTION"]


def test_a_page_has_every_option_of_its_command() -> None:
    lacking = []
    for level in levels(parser()):
        if not level.path:
            continue
        page = PAGES[f"nodetopo-{level.path.split()[0]}.1"].replace("\\", "")
        for action in level.parser._actions:
            if action.help != "==SUPPRESS==":
                lacking += [name for name in action.option_strings if f"fB{name}fR" not in page]
    assert lacking == []
