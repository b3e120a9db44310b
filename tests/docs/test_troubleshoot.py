"""The page of symptoms answers an operator's questions in two steps, with real output."""

import re

import pytest

from tests.cli.test_explain import QUESTIONS
from tests.docs.test_commands import blocks
from tests.docs.test_links import ROOT, links

PAGE = ROOT / "docs" / "operate" / "troubleshoot.md"
TEXT = PAGE.read_text("utf-8")
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("start", ["README.md", "docs/index.md"])
def test_the_page_is_one_step_away(start: str) -> None:
    page = ROOT / start
    assert PAGE in {(page.parent / link.partition("#")[0]).resolve() for link in links(page)}


def test_every_symptom_leads_to_a_section_and_every_section_is_led_to() -> None:
    rows = re.findall(r"^\| .* \| \[(.*)\]\(#.*\) \|$", TEXT, re.MULTILINE)
    assert rows == list(SECTIONS)
    assert len(rows) == len(QUESTIONS)


@pytest.mark.parametrize("title", SECTIONS)
def test_a_section_has_symptom_command_and_cure(title: str) -> None:
    section = SECTIONS[title]
    places = [section.index(f"**{word}**") for word in ("You see", "Run", "Do")]
    assert places == sorted(places)
    assert "```" in section


def test_the_sections_show_output() -> None:
    """Its generator renews it, and ``test_generated.py`` compares it."""
    shown = [block for block in blocks(PAGE) if block.startswith("$ nodetopo ")]
    assert len(shown) >= len(SECTIONS) - 3
