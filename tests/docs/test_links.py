"""Every link and path inside the documentation leads somewhere, and every page is linked."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INDEX = ROOT / "docs" / "index.md"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", CONTRIBUTING, *DOCS]
CODE = re.compile(r"`((?:agent|deploy|docs|scripts|tests)/[^`\s]*)`")
"""A path of this repository in prose."""


def anchors(page: Path) -> set[str]:
    """Return what the headings of *page* are called in links (GitHub's way)."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}


def links(page: Path) -> list[str]:
    """Return the targets of all links of *page* inside this repository."""
    found = re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8"))
    return [link for link in found if not link.startswith("https://")]


def missing(page: Path) -> list[str]:
    """Return the paths that *page* names and that are not there; ``*``, ``{a,b}``, ``<name>``."""
    return [
        path
        for named in CODE.findall(page.read_text("utf-8"))
        for path in alternatives(re.sub(r"<\w+>", "*", named))
        if not list(ROOT.glob(path.rstrip("/")))
    ]


def alternatives(path: str) -> list[str]:
    """Return *path* with each word of its braces: ``test_{a,b}.py`` is two paths."""
    head, _, rest = path.partition("{")
    words, _, tail = rest.partition("}")
    return [head + word + tail for word in words.split(",")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file_and_a_heading_that_exist(page: Path) -> None:
    for link in links(page):
        name, _hash, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_every_page_is_reachable_from_the_index() -> None:
    reached, waiting = set[Path](), [INDEX]
    while waiting:
        page = waiting.pop()
        reached.add(page)
        targets = {(page.parent / link.partition("#")[0]).resolve() for link in links(page)}
        waiting += [target for target in targets if target in DOCS and target not in reached]
    assert set(DOCS) - reached == set()


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.name)
def test_a_page_names_files_that_exist(page: Path) -> None:
    assert missing(page) == []


def test_contributing_names_files_that_exist() -> None:
    assert missing(CONTRIBUTING) == []


def test_every_schema_is_listed() -> None:
    listed = {Path(link).name for link in links(ROOT / "docs/reference/schema.md")}
    assert listed == {path.name for path in (ROOT / "docs/reference/schema").iterdir()}
