"""The host's paths as a container runtime sees them, where only parts are mounted.

In a container the host's files are below a directory, and only some of them are mounted: files
absent there may exist on the host. Absence counts only below a directory that shows all of the
host's files, which is recognised by files that every host has there.
"""

import re
from collections import deque
from collections.abc import Iterable
from functools import cached_property

from nodetopo.model.cdi import HostNode
from nodetopo.probes.sysfs.files import Files
from nodetopo.probes.sysfs.tree import FIFO, FILE, LINK

_WITNESSES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("dev/", ("dev/nvidiactl",)),
    ("usr/local/", ("usr/local/bin",)),
    ("usr/", ("usr/bin", "usr/lib")),
    ("", ("etc/os-release", "usr/bin")),
)
"""Files that prove that everything below a directory is visible; the first match for a path counts.
"""

_MERGED = ("bin", "sbin", "lib", "lib64")
"""Links into ``usr`` on every current distribution, which a mount of ``/usr`` leaves out."""

_CHANGING = re.compile(r"(?:.*/)?(?:dev|usr|lib|lib64)(?:/.*)?")
"""Directories in which files come and go with the driver, and little else does."""

_MAX_LINKS = 40
"""On one path, as in the kernel (linux/namei.h, MAXSYMLINKS)."""

_NODE = re.compile(r"([bc]) ([0-9]+):([0-9]+)")
_MAJOR = re.compile(r"\s*([0-9]{1,4})\s+(\S+)")


class HostPaths:
    """Paths of the host below a root, without leaving it by a link."""

    def __init__(self, files: Files, procfs: Files | None = None) -> None:
        """Read nothing yet; *files* show the host's root, *procfs* its ``/proc``."""
        self._files = files
        self._procfs = procfs
        self._known: dict[tuple[str, bool], str | None] = {}
        self.folders: set[str] = set()
        """Directories looked into whose content changes with the driver, relative to the root."""

    def exists(self, path: str) -> bool | None:
        """Return whether *path* exists, following links; ``None`` where it cannot be seen."""
        found = self._find(path, follows=True)
        return None if found is None else bool(found)

    def node(self, path: str) -> HostNode:
        """Return the node at *path* itself.

        A plain file can stand for a device node: archives of a host hold device nodes as empty
        files.
        """
        found = self._find(path, follows=False)
        if found is None or not found:
            return HostNode(exists=None if found is None else False)
        if match := _NODE.fullmatch(found):
            return HostNode(exists=True, type=match[1], numbers=(int(match[2]), int(match[3])))
        return HostNode(exists=True, type={FIFO: "p", FILE: None}.get(found, ""))

    def major(self, drivers: Iterable[str]) -> int | None:
        """Return the major number of the first of *drivers* that ``/proc/devices`` lists."""
        return next((self._majors[name] for name in drivers if name in self._majors), None)

    @cached_property
    def _majors(self) -> dict[str, int]:
        """Major numbers of character devices by driver (kernel fs/proc/devices.c)."""
        text = (self._procfs.text("devices") if self._procfs else None) or ""
        lines = text.partition("Block devices:")[0].splitlines()
        matches = (match for match in map(_MAJOR.fullmatch, lines) if match)
        return {match[2]: int(match[1]) for match in matches}

    def _find(self, path: str, *, follows: bool) -> str | None:
        key = (path, follows)
        if key not in self._known:
            self._known[key] = self._look(path, follows=follows)
        return self._known[key]

    def _look(self, path: str, *, follows: bool) -> str | None:
        """Return the status of *path*; empty where it is absent, ``None`` where it is not seen."""
        ahead, done, links, found = deque(path.split("/")), list[str](), 0, None
        while ahead:
            part = ahead.popleft()
            if part in ("", "."):
                continue
            if part == "..":
                done = done[:-1]
                continue
            place = "/".join([*done, part])
            found = self._files.status(place)
            if found is None:
                return None
            if not found:
                if not done and part in _MERGED and not self._is_whole(place):
                    ahead.extendleft((part, "usr"))
                    continue
                self._watch(done)
                return found if self._is_whole(place) else None
            if found == LINK and (ahead or follows):
                target, links = self._files.link(place), links + 1
                if target is None:
                    return None
                if links > _MAX_LINKS:
                    return ""
                done = [] if target.startswith("/") else done
                ahead.extendleft(reversed(target.split("/")))
                continue
            done.append(part)
        self._watch(done[:-1])
        return found

    def _watch(self, folder: list[str]) -> None:
        path = "/".join(folder)
        if _CHANGING.fullmatch(path):
            self.folders.add(path)

    def _is_whole(self, place: str) -> bool:
        """Return whether a path absent at *place* is absent on the host."""
        witnesses = next(names for prefix, names in _WITNESSES if place.startswith(prefix))
        return all(self._files.status(name) for name in witnesses)
