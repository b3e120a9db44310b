"""Programs that Debian packages: unpacked below the cache, or installed where that is not enough.

A package that is unpacked starts no service, and needs no root; it must bring all it needs, as
Prometheus does. A program with libraries of its own, such as Chromium, is installed by apt-get.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.lab.go_program import locked, user_cache

_APT_TIMEOUT_S = 600
"""Of one call. Chromium and what it needs are some 120 MB."""


@cache
def extracted(package: str) -> Path:
    """Return the folder into which Debian's *package* is unpacked, downloading it the first time.

    Raises:
        RuntimeError: apt-get is not there or cannot download it, or the package does not unpack.
    """
    kept = user_cache() / "debian"
    done = kept / f"{package}-{_codename()}"
    if not done.is_dir():
        kept.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f"{package}-", dir=kept) as scratch:
            _download(package, Path(scratch))
            files = list(Path(scratch).glob("*.deb"))
            if not files:
                raise RuntimeError(f"apt-get download {package} left no file")
            tree = Path(scratch) / "tree"
            _run(["dpkg-deb", "--extract", str(files[0]), str(tree)], scratch)
            try:
                tree.rename(done)
            except OSError:  # another process was quicker
                if not done.is_dir():
                    raise
    return done


@cache
def ensure_installed(package: str, *, program: str) -> Path:
    """Return *program*, installing Debian's *package* as root where PATH does not have it.

    Raises:
        RuntimeError: there is no such program and it cannot be installed.
    """
    if not shutil.which(program):
        if os.geteuid() != 0:
            raise RuntimeError(f"no {program} on PATH — run: sudo apt-get install -y {package}")
        user_cache().mkdir(parents=True, exist_ok=True)
        with locked(user_cache() / "apt-get.lock"):  # apt-get does not wait for another one
            if not shutil.which(program):
                _say(f"installing {package}")
                _apt_get("update", "-qq")
                _apt_get("install", "-y", "-qq", "--no-install-recommends", package)
    path = shutil.which(program)
    if not path:
        raise RuntimeError(f"Debian's package {package} brought no {program}")
    return Path(path)


@cache
def mirror() -> str:
    """Return the address of the archive of Debian that apt installs from.

    Raises:
        RuntimeError: apt's sources have none; of Ubuntu's archive no Debian is made.
    """
    options = ("indextargets", "--format", "$(REPO_URI)")
    found = _run(["apt-get", *options, "Created-By: Packages", "Label: Debian"], None).split()
    if not found:
        raise RuntimeError("apt's sources name no archive of Debian — run the lab on Debian")
    return found[0]


def _download(package: str, into: Path) -> None:
    """Download the *package* with package lists of our own, which need no root."""
    state, archives = into / "state", into / "cache"
    for folder in (state / "lists" / "partial", archives / "archives" / "partial"):
        folder.mkdir(parents=True)
    options = [
        f"-oDir::State::Lists={state / 'lists'}",
        f"-oDir::Cache={archives}",
        "-oAPT::Sandbox::User=",  # or apt reads its folders as the user _apt, where it may not
    ]
    _say(f"downloading {package}")
    _apt_get(*options, "update", "-qq", folder=into)
    _apt_get(*options, "download", "-qq", package, folder=into)


def _apt_get(*arguments: str, folder: Path | None = None) -> None:
    if not shutil.which("apt-get"):
        raise RuntimeError("no apt-get on PATH — run the lab on Debian or Ubuntu")
    _run(["apt-get", *arguments], folder)


def _run(command: Sequence[str], folder: str | Path | None) -> str:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    ended = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=_APT_TIMEOUT_S,
    )
    if ended.returncode:
        raise RuntimeError(f"{' '.join(command)}: {ended.stderr.strip()[-2000:]}")
    return ended.stdout


def _codename() -> str:
    """Return the release of this machine, ``bookworm``; packages of another would not run."""
    lines = Path("/etc/os-release").read_text("utf-8").splitlines()
    fields = dict(line.split("=", 1) for line in lines if "=" in line)
    return fields.get("VERSION_CODENAME", "unknown").strip('"')


def _say(text: str) -> None:
    print(f"lab: {text}", file=sys.stderr, flush=True)
