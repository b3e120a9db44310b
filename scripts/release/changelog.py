"""The sections of CHANGELOG.md: one a release, and what is not released yet."""

import re

from scripts.release.tree import ReleaseError

UNRELEASED = "Unreleased"

_HEADING = re.compile(r"^## (\S+)(?: - [0-9]{4}-[0-9]{2}-[0-9]{2})?$", re.MULTILINE)


def section(text: str, name: str) -> str | None:
    """Return what the section *name* of the changelog *text* says; ``None`` without one."""
    headings = list(_HEADING.finditer(text))
    ends = [heading.start() for heading in headings[1:]] + [len(text)]
    for heading, end in zip(headings, ends, strict=False):
        if heading[1] == name:
            return text[heading.end() : end].strip()
    return None


def cut(text: str, version: str, date: str) -> str:
    """Return the changelog *text* with what is unreleased as the section *version* of *date*.

    An empty section for later changes stays above it. If *version* has a section already, nothing
    is to be cut.

    Raises:
        ReleaseError: there is nothing to release, or something besides the section of *version*.
    """
    pending, existing = section(text, UNRELEASED), section(text, version)
    if pending is None:
        raise ReleaseError(f"CHANGELOG.md has no section {UNRELEASED}: add `## {UNRELEASED}`")
    if existing is not None:
        if pending:
            raise ReleaseError(
                f"CHANGELOG.md has a section {version}, and lines under {UNRELEASED}: move them"
            )
        return text
    if not pending:
        raise ReleaseError(f"CHANGELOG.md has nothing under {UNRELEASED} to release")
    heading = f"## {UNRELEASED}\n"
    return text.replace(heading, f"{heading}\n## {version} - {date}\n", 1)
