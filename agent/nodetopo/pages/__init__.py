"""The hand-written pages of the documentation that the program prints from, and their reader.

``docs/`` has copies by ``scripts/generate pages``; links are relative to the copies.
"""

import re
from functools import cache
from pathlib import Path
from typing import TypedDict

DIRECTORY = Path(__file__).parent

RUNBOOK = "operate/runbook.md"
WORDS = "operate/words.md"

_TABLE = re.compile(r"^\| --- .*\n((?:\| .*\n?)+)", re.MULTILINE)


class Texts(TypedDict):
    """The texts of a check, as :class:`nodetopo.checks.rule.Claim` has them."""

    claim: str
    why: str
    remedy: str
    reference: str


def texts_of(code: str, page: str) -> Texts:
    """Return the texts of the check *code* on *page*, such as ``reference/checks.md``.

    Raises:
        LookupError: the page has no entry for it; the module of the rule can't be imported then.
    """
    try:
        return checks(page)[code]
    except KeyError:
        raise LookupError(f"write an entry `## {code}` in {DIRECTORY / page}") from None


@cache
def checks(page: str) -> dict[str, Texts]:
    """Return the texts of the checks on *page* by code, in its order."""
    return {
        code: _texts(code, entry)
        for code, entry in _entries(_read(page), "##").items()
        if entry.startswith("**")
    }


def _texts(code: str, entry: str) -> Texts:
    try:
        claim, why, remedy, reference = entry.split("\n\n")
    except ValueError:
        raise ValueError(f"{code}: not claim, meaning, `What to do:` and `Reference:`") from None
    return Texts(
        claim=claim.strip("*"),
        why=why,
        remedy=remedy.removeprefix("What to do: ").removesuffix("."),
        reference=reference.removeprefix("Reference: ").strip("<>"),
    )


def items(page: str, section: str) -> dict[str, dict[str, str]]:
    """Return the entries of a section by name: what ``- **Means**: …`` and others say, by title."""
    return {
        name: {
            title: " ".join(text.split())
            for title, _, text in (item.partition("**: ") for item in entry.split("- **")[1:])
        }
        for name, entry in _entries(_section(page, section), "###").items()
    }


def tables(page: str, section: str) -> list[list[list[str]]]:
    """Return the cells of each row of each table in a section, without the head."""
    found = _TABLE.findall(_section(page, section))
    return [[row[2:-2].split(" | ") for row in rows.splitlines()] for rows in found]


def _section(page: str, title: str) -> str:
    return _entries(_read(page), "##")[title]


def _entries(text: str, level: str) -> dict[str, str]:
    """Return what stands below each heading of *level*, such as ``##``, by its words."""
    parts = (part.partition("\n") for part in text.split(f"\n{level} ")[1:])
    return {title: body.strip() for title, _, body in parts}


def _read(page: str) -> str:
    return (DIRECTORY / page).read_text("utf-8")
