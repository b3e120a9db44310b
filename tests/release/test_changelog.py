"""The changelog is cut at a release, and its section becomes the release's notes."""

import pytest

from scripts.release.changelog import cut, section
from scripts.release.tree import ReleaseError

LOG = """\
# Changelog

## Unreleased

### Added

- New.

## 0.1.0 - 2026-01-02

### Added

- Old.
"""


def test_a_section_ends_where_the_next_begins() -> None:
    assert section(LOG, "Unreleased") == "### Added\n\n- New."
    assert section(LOG, "0.1.0") == "### Added\n\n- Old."
    assert section(LOG, "0.2.0") is None


def test_what_is_unreleased_becomes_the_section_of_the_release() -> None:
    after = cut(LOG, "0.2.0", "2026-03-04")
    assert section(after, "Unreleased") == ""
    assert section(after, "0.2.0") == "### Added\n\n- New."
    assert section(after, "0.1.0") == section(LOG, "0.1.0")
    assert "## 0.2.0 - 2026-03-04\n" in after


def test_a_section_that_is_cut_stays_as_it_is() -> None:
    once = cut(LOG, "0.2.0", "2026-03-04")
    assert cut(once, "0.2.0", "2026-05-06") == once


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("# Changelog\n", "no section Unreleased"),
        ("## Unreleased\n\n## 0.1.0 - 2026-01-02\n\n- Old.\n", "nothing under Unreleased"),
    ],
)
def test_a_release_without_changes_is_refused(log: str, said: str) -> None:
    with pytest.raises(ReleaseError, match=said):
        cut(log, "0.2.0", "2026-03-04")


def test_lines_that_came_after_the_cut_are_not_left_out() -> None:
    with pytest.raises(ReleaseError, match="move them"):
        cut(LOG, "0.1.0", "2026-03-04")
