"""The lab's programs: Kubernetes and etcd, compiled once from the Go module proxy and kept.

``python -m tests.lab.build`` builds them ahead of time and prints where they are.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab.namespace import unshare_flags
from tests.lab.toolchain import go_command

SOURCES = Path(__file__).parent / "go"
_PACKAGES = {
    "kubelet": "k8s.io/kubernetes/cmd/kubelet",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "fakecri": "./fakecri",
    "etcd": "./etcd",
}
_PROGRESS_EVERY_S = 30.0


def user_cache() -> Path:
    """Return this project's folder in the user's cache directory (XDG base directories)."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "nodetopo"


def kubernetes_version() -> str:
    """Return the pinned version, as go.mod names it: ``v1.36.3``."""
    text = (SOURCES / "go.mod").read_text("utf-8")
    found = re.search(r"^\s*k8s\.io/kubernetes (v[0-9.]+)$", text, re.MULTILINE)
    assert found, "tests/lab/go/go.mod does not pin k8s.io/kubernetes"
    return found[1]


def binaries() -> Path:
    """Return the folder of the compiled programs, building them if this version has none.

    A cold build takes minutes of every core; progress goes to stderr. Several processes may
    ask at once: one builds, the others wait for it.

    Raises:
        RuntimeError: a program does not compile, or there is no Go and none can be fetched.
    """
    lab = user_cache() / "lab"
    done = lab / f"{kubernetes_version()}-{_sources_hash()}"
    if done.is_dir():
        return done
    lab.mkdir(parents=True, exist_ok=True)
    with _locked(lab / "build.lock"):
        if not done.is_dir():
            _build_into(done)
    return done


def _sources_hash() -> str:
    digest = hashlib.sha256()
    for path in sorted(path for path in SOURCES.rglob("*") if path.is_file()):
        digest.update(path.relative_to(SOURCES).as_posix().encode() + b"\0")
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build_into(done: Path) -> None:
    go = go_command(done.parent)
    scratch = Path(tempfile.mkdtemp(prefix="building-", dir=done.parent))
    started = time.monotonic()
    _say(f"building {len(_PACKAGES)} programs of Kubernetes {kubernetes_version()} with {go}")
    try:
        for name, package in _PACKAGES.items():
            _compile(go, name, package, scratch)
        scratch.rename(done)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    _say(f"built all in {time.monotonic() - started:.0f} s: {done}")


def _compile(go: Path, name: str, package: str, into: Path) -> None:
    """Compile one program, saying every half minute that it is still at it."""
    started = time.monotonic()
    command: list[str | Path] = [
        go,
        "build",
        "-trimpath",
        "-buildvcs=false",
        f"-p={os.cpu_count() or 1}",
    ]
    command += ["-ldflags", _link_flags(), "-o", into / name, package]
    _say(f"{name}: compiling")
    with subprocess.Popen(command, cwd=SOURCES, env=_build_environment()) as process:
        while (code := _wait(process, _PROGRESS_EVERY_S)) is None:
            _say(f"{name}: still compiling, {time.monotonic() - started:.0f} s")
    if code:
        raise RuntimeError(f"go build {package} failed with exit code {code}; its output is above")
    _say(f"{name}: done in {time.monotonic() - started:.0f} s")


def _wait(process: subprocess.Popen[bytes], timeout_s: float) -> int | None:
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return None


def _link_flags() -> str:
    version = kubernetes_version()
    major, minor, _ = version.removeprefix("v").split(".")
    facts = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    stamps = (f"-X k8s.io/component-base/version.{key}={value}" for key, value in facts.items())
    return " ".join(("-s", "-w", *stamps))


def _build_environment() -> dict[str, str]:
    # Without cgo the result is the same with and without a C compiler on the machine.
    fixed = {"GOTOOLCHAIN": "local", "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly"}
    return {**os.environ, **fixed}


def _say(text: str) -> None:
    print(f"lab: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    if unshare_flags() is None:
        _say("nothing built: the lab needs root or user namespaces")
    else:
        print(binaries())
