"""Files under `/sys` and `/proc`: reads that never raise, and report errors as issues."""

import re
from errno import ENOENT, ENOTDIR, errorcode
from os import strerror
from pathlib import PurePosixPath

from nodetopo.model.digits import whole_number
from nodetopo.model.numa import CpuSet
from nodetopo.model.probe_issue import ProbeIssue
from nodetopo.probes.sysfs.tree import Root, Tree

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

    def content(self, path: str) -> bytes | None:
        """Return the bytes of a file, which can be empty."""
        try:
            return self._tree.content(path)
        except OSError as error:
            self._failed(path, error)
            return None

    def text(self, path: str) -> str | None:
        """Return the text of a file (:func:`plain_text`); empty counts as text."""
        content = self.content(path)
        return None if content is None else plain_text(content)

    def number(self, path: str) -> int | None:
        """Return the decimal number that a file holds."""
        text = self.text(path)
        if text is None:
            return None
        try:
            return whole_number(text)
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
            return self._tree.names(path)
        except OSError as error:
            self._failed(path, error)
            return None

    def real(self, path: str) -> str | None:
        """Return where *path* really is, relative to the root; ``None`` when it is not there."""
        try:
            return self._tree.real(path)
        except OSError as error:
            self._failed(path, error)
        except ValueError as error:
            self.report(path, str(error))
        return None

    def link_name(self, path: str) -> str | None:
        """Return the last part of a symbolic link's text; its target need not exist."""
        try:
            return PurePosixPath(self._tree.link(path)).name or None
        except OSError as error:
            self._failed(path, error)
            return None

    def link(self, path: str) -> str | None:
        """Return the text of a symbolic link; ``None`` where it cannot be read."""
        try:
            return self._tree.link(path)
        except OSError as error:
            self._failed(path, error)
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

    def cpu_mask(self, path: str) -> CpuSet | None:
        """Return the CPUs of a file in the kernel's mask format.

        Groups of 32 bits in hexadecimal, highest first, separated by commas (kernel lib/vsprintf.c,
        ``%*pb``): ``000000ff,ff000000``. Kernels without the list form of a file have the mask.
        """
        text = self.text(path)
        if text is None:
            return None
        groups = [_GROUP.fullmatch(group) for group in text.split(",")]
        if not all(groups) or len(groups) > _MAX_GROUPS:
            self.report(path, f"not a CPU mask: {text[:40]!r}")
            return None
        mask = int("".join(f"{int(group[1], 16):08x}" for group in groups if group), 16)
        return CpuSet.of(cpu for cpu in range(mask.bit_length()) if mask >> cpu & 1)

    def _failed(self, path: str, error: OSError) -> None:
        if error.errno not in _ABSENT:
            code = error.errno or 0
            self.report(path, f"{errorcode.get(code, code)}: {strerror(code)}")
