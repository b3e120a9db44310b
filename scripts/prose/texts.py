"""What a person reads: pages, the help of every command, and the messages of the log."""

import argparse
import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from nodetopo.cli.main import parser
from nodetopo.cli.words import levels

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "agent" / "nodetopo"

_RECORD = "CHANGELOG.md"
"""Released entries stay as they were published."""
_LEVELS = ("debug", "info", "warning", "error", "exception", "critical")


class Text(NamedTuple):
    """One sentence or phrase of the code, and where a person finds it."""

    place: str
    words: str


def pages() -> list[Path]:
    """Return the Markdown pages that Git tracks, without the record of changes."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = [ROOT / line for line in listed.stdout.splitlines() if line != _RECORD]
    return [path for path in paths if path.is_file()]


def of_the_code() -> Iterator[Text]:
    """Yield the help of every command and option, then each constant message of the log."""
    yield from _help()
    yield from _messages()


def _help() -> Iterator[Text]:
    seen: set[str] = set()
    for level in levels(parser()):
        command = f"nodetopo{level.path} --help"
        for words in (level.parser.description, level.parser.epilog):
            if words:
                yield Text(command, words)
        for action in level.parser._actions:  # noqa: SLF001 - argparse has no public way
            words = action.help
            # Sources and outputs are options of many commands; one report is enough.
            if words and words != argparse.SUPPRESS and words not in seen:
                seen.add(words)
                yield Text(f"{command}, {'/'.join(action.option_strings) or action.dest}", words)


def _messages() -> Iterator[Text]:
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id="log" | "_log"), attr=level),
                    args=[ast.Constant(value=str(words)), *_],
                ) if level in _LEVELS:
                    yield Text(f"{path.relative_to(ROOT)}:{node.lineno}", words)
