"""Programs of other projects, compiled once from the Go module proxy and kept."""

import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from tests.fake_nvml.build import c_compiler
from tests.lab.toolchain import go_command

_PROGRESS_EVERY_S = 30.0


def user_cache() -> Path:
    """Return this project's folder in the user's cache directory (XDG base directories)."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "nodetopo"


class GoPrograms(Struct, frozen=True, kw_only=True):
    """The programs of one Go module of this repository, which pins what they are made of.

    Attributes:
        shelf: the folder below :func:`user_cache` that keeps them; also who speaks.
        title: what they are, for a person; the first word begins the name of their folder.
        module: the directory of ``go.mod``.
        packages: what to compile, by the name of the program.
        pins: the stem of the file in the module that takes the place of ``go.mod`` and ``go.sum``.
        tags: build constraints that hold.
        flags: for the linker.
        has_c: whether they bind NVML, which takes gcc or clang.
    """

    shelf: str
    title: str
    module: Path
    packages: Mapping[str, str]
    pins: str = "go"
    tags: str = ""
    flags: str = "-s -w"
    has_c: bool = False

    def folder(self) -> Path:
        """Return the folder of the compiled programs, building them if these sources have none.

        A cold build takes minutes of every core; progress goes to stderr. Several processes
        may ask at once: one builds, the others wait for it.

        Raises:
            RuntimeError: a program does not compile, there is no Go and none can be fetched, or
                there is no C compiler for one that takes one.
        """
        kept = user_cache() / self.shelf
        done = kept / f"{self.title.partition(' ')[0]}-{self._sources_hash()}"
        if done.is_dir():
            return done
        kept.mkdir(parents=True, exist_ok=True)
        with locked(kept / "build.lock"):
            if not done.is_dir():
                self._build_into(done)
        return done

    def _sources_hash(self) -> str:
        digest = hashlib.sha256()
        names = (f"{self.pins}.mod", f"{self.pins}.sum", "*.go")
        for path in sorted(found for name in names for found in self.module.rglob(name)):
            digest.update(path.relative_to(self.module).as_posix().encode() + b"\0")
            digest.update(path.read_bytes())
        return digest.hexdigest()[:12]

    def _build_into(self, done: Path) -> None:
        go = go_command(user_cache() / "lab")
        scratch = Path(tempfile.mkdtemp(prefix="building-", dir=done.parent))
        started = time.monotonic()
        self._say(f"building {len(self.packages)} programs of {self.title} with {go}")
        try:
            for name, package in self.packages.items():
                self._compile(go, name, package, scratch)
            scratch.rename(done)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        self._say(f"built all in {time.monotonic() - started:.0f} s: {done}")

    def _compile(self, go: Path, name: str, package: str, into: Path) -> None:
        """Compile one program, saying every half minute that it is still at it."""
        started = time.monotonic()
        command: list[str | Path] = [go, "build", "-trimpath", "-buildvcs=false"]
        command += [f"-modfile={self.pins}.mod", f"-tags={self.tags}", f"-p={os.cpu_count() or 1}"]
        command += ["-ldflags", self.flags, "-o", into / name, package]
        self._say(f"{name}: compiling")
        with subprocess.Popen(command, cwd=self.module, env=self._environment()) as process:
            while (code := _wait(process, _PROGRESS_EVERY_S)) is None:
                self._say(f"{name}: still compiling, {time.monotonic() - started:.0f} s")
        if code:
            what = f"go build {package} failed with exit code {code}"
            raise RuntimeError(f"{what}; its output is above")
        self._say(f"{name}: done in {time.monotonic() - started:.0f} s")

    def _environment(self) -> dict[str, str]:
        # Without cgo the result is the same with and without a C compiler on the machine.
        fixed = {"GOTOOLCHAIN": "local", "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly"}
        if self.has_c:
            fixed |= {"CGO_ENABLED": "1", "CC": shlex.join(self._linking_compiler())}
        return {**os.environ, **fixed}

    def _linking_compiler(self) -> list[str]:
        """Return a compiler whose linker leaves NVML's symbols to be looked up by the program."""
        command = c_compiler()
        if "ziglang" in command:  # "unsupported linker arg: --unresolved-symbols", 0.17.0
            raise RuntimeError(f"{self.title} takes gcc or clang, and PATH has neither")
        return command

    def _say(self, text: str) -> None:
        print(f"{self.shelf}: {text}", file=sys.stderr, flush=True)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _wait(process: subprocess.Popen[bytes], timeout_s: float) -> int | None:
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return None
