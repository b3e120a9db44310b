"""Check that a tag is that of a prepared tree: ``python -m scripts.release.check v1.2.3``.

Prints what is wrong, a line each, and exits with 1 if anything is. In a workflow, it hands on the
version and the place of charts.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from scripts.release import changelog
from scripts.release.tree import ReleaseError, checked, faults, read

ROOT = Path(__file__).parents[2]


def problems(root: Path, tag: str, repository: str) -> Iterator[str]:
    """Yield what keeps the tree at *root* from being released as *tag* by *repository*."""
    version = tag.removeprefix("v")
    if version == tag:
        yield f"the tag {tag} does not begin with v"
        return
    try:
        release = checked(version, repository)
    except ReleaseError as error:
        yield str(error)
        return
    yield from faults(root, release)
    if not changelog.section((root / "CHANGELOG.md").read_text("utf-8"), version):
        yield f"CHANGELOG.md has no section {version}"


def main(arguments: list[str]) -> int:
    """Check the tag that *arguments* name."""
    (tag,) = arguments
    found = list(problems(ROOT, tag, os.environ.get("GITHUB_REPOSITORY", "")))
    for line in found:
        print(f"error: {line}", file=sys.stderr)
    if not found and (outputs := os.environ.get("GITHUB_OUTPUT")):
        release = read(ROOT)
        with Path(outputs).open("a", encoding="utf-8") as lines:
            lines.write(f"version={release.version}\ncharts={release.charts}\n")
    if found:
        cure = f"python -m scripts.release.prepare {tag.removeprefix('v')}"
        print(f"run `{cure}`, commit, and tag that commit", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
