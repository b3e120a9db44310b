"""Turn a tree into a release: ``python -m scripts.release.prepare 1.2.3``.

Changes the files in place: version, repository, image, links of the alerts, changelog, and what is
generated from them. Review the diff, commit it, and push the tag ``v1.2.3``.
"""

import argparse
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from scripts.release import changelog
from scripts.release.tree import ReleaseError, checked, faults, stamp

ROOT = Path(__file__).parents[2]

GENERATED = ("distributions", "chart", "alerts")
"""Generators whose files name the version, the repository or the image."""


def prepare(root: Path, version: str, repository: str, date: str) -> None:
    """Make the tree at *root* that of a release.

    Raises:
        ReleaseError: it cannot be one.
    """
    release = checked(version, repository)
    log = root / "CHANGELOG.md"
    log.write_text(changelog.cut(log.read_text("utf-8"), version, date), "utf-8")
    stamp(root, release)
    path = os.pathsep.join((str(root / "agent"), str(root)))
    subprocess.run(
        [sys.executable, "-m", "scripts.generators", *GENERATED],
        cwd=root,
        env={**os.environ, "PYTHONPATH": path},
        check=True,
        stdout=subprocess.DEVNULL,
    )
    if left := list(faults(root, release)):
        raise ReleaseError("; ".join(left))


def main() -> int:
    """Prepare the release that the command line names; 1 if that is not possible."""
    parser = argparse.ArgumentParser(prog="python -m scripts.release.prepare")
    parser.add_argument("version", help="such as 1.2.3")
    parser.add_argument(
        "--repository",
        default=os.environ.get("GITHUB_REPOSITORY", ""),
        metavar="OWNER/NAME",
        help="where it is published; default $GITHUB_REPOSITORY",
    )
    arguments = parser.parse_args()
    try:
        today = f"{datetime.now(UTC):%Y-%m-%d}"
        prepare(ROOT, arguments.version, arguments.repository, today)
    except ReleaseError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"review the diff, commit it, and tag it v{arguments.version}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
