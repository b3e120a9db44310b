"""The hand-written pages of the documentation that the program prints from, and their reader.

``docs/`` has copies by ``scripts/generate pages``; links are relative to the copies.
"""

from functools import cache
from pathlib import Path
from typing import TypedDict

DIRECTORY = Path(__file__).parent


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
        for code, entry in entries(page, "## ").items()
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


def entries(page: str, heading: str) -> dict[str, str]:
    """Return the text below each *heading*, such as ``## ``, of *page* by the heading's words."""
    text = (DIRECTORY / page).read_text("utf-8")
    parts = (part.partition("\n\n") for part in text.split(f"\n{heading}")[1:])
    return {title: body.strip() for title, _, body in parts}
