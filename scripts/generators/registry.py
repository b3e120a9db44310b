"""Every generator by name, and what they would change in the tree."""

import re
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]

GENERATORS = (
    "protos",
    "compose",
    "snapshots",
    "outputs",
    "claims",
    "completion",
    "man",
    "settings",
    "labels",
    "pages",
    "health",
    "metrics",
    "alerts",
    "troubleshoot",
    "once",
    "distributions",
    "chart",
    "own-node",
    "rbac",
    "drawings",
    "placement",
)
"""In an order in which each finds the files that it reads renewed."""

LAB = ("manifests",)
"""Those that ask a real API server; they run only when they are named."""


class Change(NamedTuple):
    """A file that is not as its generator makes it: *text* is ``None`` if it is to be removed."""

    path: Path
    text: str | None

    def __str__(self) -> str:
        """Return what happens to the file."""
        what = "remove" if self.text is None else "change" if self.path.exists() else "add"
        return f"{what} {self.path.relative_to(ROOT)}"

    def apply(self) -> None:
        """Bring the file up to date."""
        if self.text is None:
            self.path.unlink()
        else:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(self.text, encoding="utf-8")


def changes(name: str) -> Iterator[Change]:
    """Yield each file that the generator *name* would change."""
    generator = import_module(f"scripts.generators.{name.replace('-', '_')}")
    texts = generator.made()
    left_over = {path for path in generator.owned() if path.exists()} - texts.keys()
    for path, text in texts.items():
        if not path.exists() or path.read_text("utf-8") != text:
            yield Change(path, text)
    yield from (Change(path, None) for path in sorted(left_over))


def with_rows(page: Path, tables: Mapping[str, Iterable[str]]) -> str:
    """Return the text of *page* with new rows in its *tables*, each named by its first line.

    Raises:
        ValueError: the page has no such table, or several.
    """
    text = page.read_text("utf-8")
    for head, rows in tables.items():
        found = re.findall(rf"^{re.escape(head)}\n\|[-| ]*\n(?:\|.*\n)*", text, re.MULTILINE)
        if len(found) != 1:
            raise ValueError(f"{page} has {len(found)} tables with the head {head}")
        first, rule, *_ = found[0].splitlines(keepends=True)
        text = text.replace(found[0], "".join((first, rule, *rows)))
    return text


def hint(name: str) -> str:
    """Return what a test says about a stale file of the generator *name*."""
    return f"stale: run `scripts/generate {name}` and review the diff"
