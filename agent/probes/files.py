"""Reads of single files under `/sys` and `/proc` that never raise, and say what went wrong."""

from collections.abc import Iterator
from errno import ENOENT, ENOTDIR, errorcode
from os import strerror
from pathlib import Path
from typing import BinaryIO

from agent.model.numa import CpuSet
from agent.model.snapshot import ProbeIssue

MAX_BYTES = 4 * 1024 * 1024
"""Most that is read of one file; `/proc/cpuinfo` of 512 CPUs is under 1 MiB."""

_CHUNK_BYTES = 64 * 1024
"""Of one read. Files under `/proc/sys` refuse a read of KMALLOC_MAX_SIZE, 4 MiB on x86, with
ENOMEM (kernel fs/proc/proc_sysctl.c, proc_sys_call_handler)."""

_ABSENT = (ENOENT, ENOTDIR)


class Files:
    """One probe's view of a tree, which remembers what it could not read.

    A file that is not there is ``None`` and no issue: kernels differ in what they offer.
    Every other failure, and every content that is not what the file should hold, is ``None``
    and a :class:`ProbeIssue` that names the file relative to the root.
    """

    def __init__(self, probe: str, root: Path) -> None:
        self.root = root
        self._probe = probe
        self._issues: list[ProbeIssue] = []

    @property
    def issues(self) -> tuple[ProbeIssue, ...]:
        """What went wrong so far, in order."""
        return tuple(self._issues)

    def report(self, subject: str, reason: str) -> None:
        """Remember an issue that the caller found; the same one is kept once."""
        issue = ProbeIssue(probe=self._probe, subject=subject, reason=reason)
        if issue not in self._issues:
            self._issues.append(issue)

    def content(self, path: str) -> bytes | None:
        """Return the bytes of a file; they may be none."""
        try:
            with (self.root / path).open("rb") as stream:
                return b"".join(_chunks(stream))
        except OSError as error:
            self._failed(path, error)
            return None

    def text(self, path: str) -> str | None:
        """Return the text of a file without white space around it; empty counts as text."""
        content = self.content(path)
        return None if content is None else content.decode("utf-8", "replace").strip()

    def number(self, path: str) -> int | None:
        """Return the decimal number that a file holds."""
        text = self.text(path)
        if text is None:
            return None
        try:
            return int(text)
        except ValueError:
            self.report(path, f"not a number: {text[:40]!r}")
            return None

    def hex_id(self, path: str) -> str | None:
        """Return a PCI id or class without its ``0x``, in lower case: ``0x10DE`` is ``10de``."""
        text = self.text(path)
        return None if text is None else text.lower().removeprefix("0x")

    def cpus(self, path: str) -> CpuSet | None:
        """Return the CPUs of a file in the kernel's list format."""
        text = self.text(path)
        if text is None:
            return None
        try:
            return CpuSet.parse(text)
        except ValueError as error:
            self.report(path, str(error))
            return None

    def names(self, path: str) -> tuple[str, ...] | None:
        """Return the sorted names in a directory."""
        try:
            return tuple(sorted(entry.name for entry in (self.root / path).iterdir()))
        except OSError as error:
            self._failed(path, error)
            return None

    def real(self, path: str) -> str | None:
        """Return where *path* really is, relative to the root; ``None`` when it is not there."""
        try:
            place = (self.root / path).resolve(strict=True)
            return place.relative_to(self.root.resolve()).as_posix()
        except OSError as error:
            self._failed(path, error)
        except (ValueError, RuntimeError):
            # RuntimeError: how Python 3.11 and 3.12 report a loop of links.
            self.report(path, "leads out of the tree, or in a circle")
        return None

    def _failed(self, path: str, error: OSError) -> None:
        if error.errno not in _ABSENT:
            code = error.errno or 0
            self.report(path, f"{errorcode.get(code, code)}: {strerror(code)}")


def _chunks(stream: BinaryIO) -> Iterator[bytes]:
    left = MAX_BYTES
    while left > 0 and (chunk := stream.read(min(left, _CHUNK_BYTES))):
        left -= len(chunk)
        yield chunk
