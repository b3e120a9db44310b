"""The page on placement says what the program does."""

import re
from pathlib import Path

import pytest

from nodetopo.allocation.rules import Model, Policy
from nodetopo.allocation.score import Score
from scripts.generators.placement import PAGE


@pytest.mark.parametrize(
    "word",
    [*Score.__struct_fields__, *Policy, *Model, "tree", "table"],
)
def test_every_term_policy_model_and_engine_is_on_the_page(word: str) -> None:
    assert f"`{word}`" in PAGE.read_text("utf-8")


def test_every_file_and_heading_that_the_page_links_to_exists() -> None:
    text = PAGE.read_text("utf-8")
    headings = {
        re.sub(r"[^\w\- ]", "", line.lstrip("# ")).lower().replace(" ", "-")
        for line in text.splitlines()
        if line.startswith("#")
    }
    links = re.findall(r"\]\(([^)]+)\)", text)
    missing = [
        link
        for link in links
        if not (
            link[1:] in headings if link.startswith("#") else (PAGE.parent / Path(link)).exists()
        )
    ]
    assert links
    assert missing == []
