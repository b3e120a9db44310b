"""A copy of this tree, and the same as a release, for what changes files."""

import shutil
from pathlib import Path

from scripts.release.prepare import prepare
from scripts.release.tree import Release

ROOT = Path(__file__).parents[2]
RELEASE = Release("1.2.3", "Some-Org/NodeTopo")
DATE = "2031-05-06"

_FOLDERS = (".github", "agent", "deploy", "docs", "scripts")
_SKIPPED = shutil.ignore_patterns("__pycache__")


def copied(target: Path) -> Path:
    """Return *target* with the parts of this tree that a release changes or publishes."""
    target.mkdir()
    for name in _FOLDERS:
        shutil.copytree(ROOT / name, target / name, ignore=_SKIPPED)
    for path in ROOT.iterdir():
        if path.is_file() and path.name != ".git":
            shutil.copy2(path, target / path.name)
    return target


def released(target: Path) -> Path:
    """Return *target* with this tree, prepared as :data:`RELEASE`."""
    root = copied(target)
    log = root / "CHANGELOG.md"
    log.write_text(log.read_text("utf-8").replace("## Unreleased\n", _PENDING, 1), "utf-8")
    prepare(root, RELEASE.version, RELEASE.repository, DATE)
    return root


_PENDING = "## Unreleased\n\n### Added\n\n- A thing that only the tests add.\n"
