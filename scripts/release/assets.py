"""Write the files of a release's page: ``python -m scripts.release.assets DIRECTORY IMAGE@DIGEST``.

The wheel and the source archive, ``install.yaml`` with the image by its digest, the plugin for krew
and its manifest, the notes, and the checksums of all. hatchling and kubectl must be there.
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from scripts.release import changelog, krew
from scripts.release.tree import Release, ReleaseError, read

ROOT = Path(__file__).parents[2]

NOTES, SUMS, INSTALL, PLUGIN = "notes.md", "SHA256SUMS", "install.yaml", "krew.yaml"

_NOTES = """\
{changes}

## Install

```
kubectl apply -k "{url}//deploy/daemonset?ref=v{version}"
helm install nodetopo oci://{charts}/nodetopo --version {version} -n nodetopo --create-namespace
pipx install nodetopo=={version}
```

Image: `{image}`
"""


def notes(release: Release, log: str, image: str) -> str:
    """Return the text of the release's page: its section of the changelog *log*, how to install.

    Raises:
        ReleaseError: *log* has no section of *release*.
    """
    changes = changelog.section(log, release.version)
    if not changes:
        raise ReleaseError(f"CHANGELOG.md has no section {release.version}")
    return _NOTES.format(
        changes=changes,
        url=release.url,
        charts=release.charts,
        version=release.version,
        image=image,
    )


def write(root: Path, directory: Path, image: str, time: int) -> None:
    """Write all files of the tree at *root* into *directory*; *time* is that of the commit.

    Raises:
        ReleaseError: the changelog has nothing about it.
        subprocess.CalledProcessError: a program failed.
    """
    release = read(root)
    directory.mkdir(parents=True, exist_ok=True)
    log = (root / "CHANGELOG.md").read_text("utf-8")
    (directory / NOTES).write_text(notes(release, log, image), "utf-8")
    rendered = subprocess.run(
        [root / "scripts" / "manifests", image], check=True, capture_output=True, text=True
    )
    (directory / INSTALL).write_text(rendered.stdout, "utf-8")
    packed = krew.archive(release, (root / "LICENSE").read_bytes(), time)
    (directory / krew.ARCHIVE).write_bytes(packed)
    (directory / PLUGIN).write_text(krew.manifest(release, packed), "utf-8")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", directory.resolve()],
        cwd=root,
        env={**os.environ, "SOURCE_DATE_EPOCH": str(time)},
        check=True,
        stdout=subprocess.DEVNULL,
    )
    files = sorted(path for path in directory.iterdir() if path.name not in (NOTES, SUMS))
    sums = (f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)
    (directory / SUMS).write_text("".join(sums), "utf-8")


def main(arguments: list[str]) -> int:
    """Write the files that *arguments* ask for."""
    directory, image = arguments
    try:
        write(ROOT, Path(directory), image, int(os.environ["SOURCE_DATE_EPOCH"]))
    except ReleaseError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
