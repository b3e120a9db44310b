"""The package without one of its components, as a process sees it."""

import os
import subprocess
import sys
from pathlib import Path

import nodetopo

PACKAGE = Path(nodetopo.__file__).parent
TIMEOUT_S = 240


def without(name: str, directory: Path) -> dict[str, str]:
    """Copy the package without the component *name*; return the environment that imports it."""
    copy = directory / "nodetopo"
    left_out = {"": ("kernel", "components"), "kernel": ("components.py",), "components": (name,)}
    for folder, names in left_out.items():
        (copy / folder).mkdir()
        for entry in (PACKAGE / folder).iterdir():
            if entry.name not in (*names, "__pycache__"):
                (copy / folder / entry.name).symlink_to(entry)
    lines = (PACKAGE / "kernel" / "components.py").read_text().splitlines(keepends=True)
    kept = [line for line in lines if not line.strip().startswith(f'"{name}": ')]
    assert len(kept) == len(lines) - 1
    (copy / "kernel" / "components.py").write_text("".join(kept))
    own = {key: value for key, value in os.environ.items() if not key.startswith("NODETOPO_")}
    return {**own, "PYTHONPATH": str(directory)}


def shown(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with *arguments* in *environment*."""
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env=environment,
        check=False,
    )
