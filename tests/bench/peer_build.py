"""The comparison program over go-gpuallocator: compiled once for its sources, and kept.

Its library binds NVML through cgo, so this takes a C compiler; NVML itself is not needed, it
is looked up when first called, which is never.
"""

import fcntl
import hashlib
import os
import shlex
import subprocess
import sys
from pathlib import Path

from tests.fake_nvml.build import _compiler
from tests.lab.build import user_cache
from tests.lab.toolchain import go_command

SOURCES = Path(__file__).parent / "gpuallocator"


def program() -> Path:
    """Return the compiled program, building it if its sources changed; some 30 s.

    Several processes may ask at once: one builds, the others wait.

    Raises:
        RuntimeError: it does not compile, or there is no Go and none can be fetched.
    """
    kept = user_cache() / "bench"
    done = kept / f"gpuallocator-{_sources_hash()}"
    if done.exists():
        return done
    kept.mkdir(parents=True, exist_ok=True)
    with (kept / "build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            _compile(done)
    return done


def _sources_hash() -> str:
    digest = hashlib.sha256()
    for path in sorted(SOURCES.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def _compile(done: Path) -> None:
    go = go_command(user_cache() / "lab")
    partial = done.with_suffix(".partial")
    print(f"bench: building {done.name} with {go}", file=sys.stderr, flush=True)
    command: list[str | Path] = [go, "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w"]
    command += ["-o", partial, "."]
    environment = {
        **os.environ,
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "-mod=readonly",
        "CGO_ENABLED": "1",
        "CC": shlex.join(_compiler()),
    }
    finished = subprocess.run(
        command, cwd=SOURCES, env=environment, capture_output=True, text=True, check=False
    )
    if finished.returncode:
        raise RuntimeError(f"go build of {SOURCES.name} failed:\n{finished.stderr}")
    partial.rename(done)
