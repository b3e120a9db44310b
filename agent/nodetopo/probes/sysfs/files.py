"""Files under `/sys` and `/proc`: reads that never raise, and report errors as issues."""

import re
from collections.abc import Callable
from errno import ENOENT, ENOTDIR, errorcode
from os import strerror
from pathlib import PurePosixPath
from typing import TypeVar

from nodetopo.model.digits import whole_number
from nodetopo.model.numa import CpuSet
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.probes.sysfs.tree import Root, Tree

T = TypeVar("T")

_ABSENT = (ENOENT, ENOTDIR)
_GROUP = re.compile(r"(?:0x)?([0-9a-f]{1,8})", re.IGNORECASE)
_MAX_GROUPS = 2048
"""Of a CPU mask, 32 CPUs each: as many CPUs as a CpuSet accepts."""


_PAGE_BYTES = 4096
"""Of a file of sysfs (kernel Documentation/filesystems/sysfs.rst, reading attributes)."""


def plain_text(content: bytes) -> str:
    """Return the text of a kernel's file without white space around it, and without NULs behind it.

    Strings of a device tree end in NUL (``/proc/device-tree/model``), and so do files of some
    drivers, which copy a buffer and not a string. None is longer than a page.
    """
    behind = "\0 \t\r\n\v\f" if len(content) <= _PAGE_BYTES else None
    return content.decode("utf-8", "replace").rstrip(behind).lstrip()


class Files:
    """One probe's view of a tree; collects read errors.

    A missing file is ``None`` without an issue: kernels differ in their files. Every other failure,
    and every invalid content, is ``None`` and a :class:`ProbeIssue` that names the file relative to
    the root.
    """

    def __init__(self, probe: str, root: Root) -> None:
        self._tree = Tree.of(root)
        self._probe = probe
        self._issues: list[ProbeIssue] = []

    @property
    def issues(self) -> tuple[ProbeIssue, ...]:
        """The errors so far, in order."""
        return tuple(self._issues)

    def report(self, subject: str, reason: str) -> None:
        """Add an issue of the caller, once."""
        issue = ProbeIssue(probe=self._probe, subject=subject, reason=reason)
        if issue not in self._issues:
            self._issues.append(issue)

    def _tried(self, read: Callable[[str], T], path: str) -> T | None:
        try:
            return read(path)
        except OSError as error:
            self._failed(path, error)
            return None

    def content(self, path: str) -> bytes | None:
        """Return the bytes of a file, which can be empty."""
        return self._tried(self._tree.content, path)

    def names(self, path: str) -> tuple[str, ...] | None:
        """Return the sorted names in a directory."""
        return self._tried(self._tree.names, path)

    def link(self, path: str) -> str | None:
        """Return the text of a symbolic link; ``None`` where it cannot be read."""
        return self._tried(self._tree.link, path)

    def link_name(self, path: str) -> str | None:
        """Return the last part of a symbolic link's text; its target need not exist."""
        return PurePosixPath(self.link(path) or "").name or None

    def text(self, path: str) -> str | None:
        """Return the text of a file (:func:`plain_text`); empty counts as text."""
        content = self.content(path)
        return None if content is None else plain_text(content)

    def read(self, path: str, parse: Callable[[str], T], text: str | None = None) -> T | None:
        """Return what *parse* makes of the text of a file; its ValueError is an issue.

        *text* is of a file that was read already.
        """
        text = self.text(path) if text is None else text
        try:
            return None if text is None else parse(text)
        except ValueError as error:
            self.report(path, str(error))
            return None

    def number(self, path: str) -> int | None:
        """Return the decimal number that a file holds."""
        return self.read(path, _number)

    def hex_id(self, path: str) -> str | None:
        """Return a PCI id or class without its ``0x``, in lower case: ``0x10DE`` is ``10de``."""
        return self.read(path, lambda text: text.lower().removeprefix("0x"))

    def cpus(self, path: str) -> CpuSet | None:
        """Return the CPUs of a file in the kernel's list format."""
        return self.read(path, CpuSet.parse)

    def cpu_mask(self, path: str) -> CpuSet | None:
        """Return the CPUs of a file in the kernel's mask format.

        Groups of 32 bits in hexadecimal, highest first, separated by commas (kernel lib/vsprintf.c,
        ``%*pb``): ``000000ff,ff000000``. Kernels without the list form of a file have the mask.
        """
        return self.read(path, _mask)

    def real(self, path: str) -> str | None:
        """Return where *path* really is, relative to the root; ``None`` when it is not there."""
        try:
            return self._tried(self._tree.real, path)
        except ValueError as error:
            self.report(path, str(error))
            return None

    def status(self, path: str) -> str | None:
        """Return the kind of *path* (:attr:`Act.STATUS`), empty if missing.

        ``None`` if not visible.
        """
        try:
            return self._tree.status(path)
        except OSError as error:
            self._failed(path, error)
            return "" if error.errno in _ABSENT else None

    def _failed(self, path: str, error: OSError) -> None:
        if error.errno not in _ABSENT:
            code = error.errno or 0
            self.report(path, f"{errorcode.get(code, code)}: {strerror(code)}")


def matched(pattern: str, otherwise: str = "not understood") -> Callable[[str], str]:
    """Return a parser of texts that match *pattern* whole: it returns the last group."""

    def parse(text: str) -> str:
        match = re.fullmatch(pattern, text)
        if match is None:
            raise ValueError(f"{otherwise}: {text[:40]!r}")
        return match[match.lastindex or 0]

    return parse


def _number(text: str) -> int:
    try:
        return whole_number(text)
    except ValueError:
        raise ValueError(f"not a number: {text[:40]!r}") from None


def _mask(text: str) -> CpuSet:
    groups = [_GROUP.fullmatch(group) for group in text.split(",")]
    if not all(groups) or len(groups) > _MAX_GROUPS:
        raise ValueError(f"not a CPU mask: {text[:40]!r}")
    mask = int("".join(f"{int(group[1], 16):08x}" for group in groups if group), 16)
    return CpuSet.of(cpu for cpu in range(mask.bit_length()) if mask >> cpu & 1)
