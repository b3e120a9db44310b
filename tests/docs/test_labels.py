"""The reference page."""

from pathlib import Path

from scripts.docs.labels import page

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "labels.md"


def test_the_page_in_docs_is_the_generated_one() -> None:
    # To refresh: python -c "from scripts.docs.labels import page; print(page(), end='')"
    assert PAGE.read_text("utf-8") == page()
