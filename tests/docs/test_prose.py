"""The prose linter finds each habit that it has a rule for, where a person can mend it."""

from pathlib import Path

import pytest

from scripts.prose.__main__ import findings
from scripts.prose.texts import Text

HABITS = {
    "A new error begins the count anew.": "Habits",
    "Each GPU has a folder of its own.": "Habits",
    "Run it beside the plugin.": "Habits",
    "The plugin may offer the GPU.": "Habits",
    "The latency of one list is that of a call.": "Habits",
    "What the driver told holds while a call is open.": "Openings",
    "Whether they did is on the page.": "Openings",
    "Set the option, e.g. in the file.": "Plain",
    "The daemon will start the plugin.": "Tense",
    f"The daemon reads {'the file and '.join(' ' for _ in range(20))} the end.": "Length",
}
PLAIN = (
    "nodetopo rejects device lists that exceed the kubelet's limit, and keeps the previous list."
)


@pytest.mark.parametrize("sentence", HABITS)
def test_a_habit_is_found_on_a_page(sentence: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n\n{PLAIN}\n\n{sentence}\n", "utf-8")
    (found,) = findings([page])
    assert found.startswith(f"{page}:5: {HABITS[sentence]}: ")


def test_code_on_a_page_is_no_prose(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n\n{PLAIN}\n\n```\nthe plugin may begin anew\n```\n", "utf-8")
    assert list(findings([page])) == []


def test_a_text_of_the_code_is_found_at_its_place() -> None:
    texts = [
        Text("nodetopo run --help, --first", "read the file"),
        Text("nodetopo run --help, --second", "begin anew"),
        Text("agent/nodetopo/here.py:7", "the file was read"),
    ]
    (found,) = findings([], texts)
    assert found.startswith("nodetopo run --help, --second: Habits: ")
