"""A live node as texts that replay it: NVML's answers, an archive of its files, its snapshot.

The archive holds only data read by discovery: each file at its real path, the links that lead
there, and the names in listed directories.
"""

from collections import deque
from collections.abc import Iterator
from datetime import datetime
from errno import errorcode
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from nodetopo.errors import DecodeError, NvmlUnavailable
from nodetopo.model.digits import is_digits
from nodetopo.model.snapshot import Snapshot
from nodetopo.probes.discover import addresses, join, unread
from nodetopo.probes.kubelet.process import arguments, is_kubelet
from nodetopo.probes.kubelet.sources import SECRET_DIRECTORIES
from nodetopo.probes.nvml.recorder import HEADER
from nodetopo.probes.nvml.supervisor import NvmlSupervisor
from nodetopo.probes.sysfs.host import Host, Roots
from nodetopo.probes.sysfs.tree import Act, Key, Outcome, Refusal, Tree
from nodetopo.tools.capture.archive import Entry, parse, render

MAX_LINKS = 40
"""Followed on one path, as Linux does (MAXSYMLINKS)."""


class RawCapture(Struct, frozen=True, kw_only=True):
    """A node as texts."""

    nvml: str  # for `probes.nvml.recorder`'s readers; a comment without NVML
    entries: tuple[Entry, ...]  # for `tools.capture.archive.render`
    snapshot: Snapshot
    left_out: tuple[str, ...] = ()  # omissions, a sentence each
    failure: NvmlUnavailable | None = None  # why NVML's answers are missing


def capture_raw(
    roots: Roots,
    supervisor: NvmlSupervisor,
    *,
    node: str,
    captured_at: datetime,
) -> RawCapture:
    """Read the node once and record everything read.

    The archive has the error counters of HCAs too; the snapshot has not, since it is what
    periodic discovery finds on the node that the texts replay.
    """
    host, failure = Host(roots), None
    try:
        reading = supervisor.record()
    except NvmlUnavailable as error:
        failure = error
        reading = replace(unread(error), answers=f"{HEADER}# It did not answer.\n")
    host.renew()
    host.read(addresses(reading), counters=True)
    snapshot = join(reading, *host.read(addresses(reading)))
    archive = _Archive()
    for tree, prefix in ((host.sysfs, "sys"), (host.procfs, "proc"), (host.host, "")):
        archive.add(tree, prefix)
    return RawCapture(
        nvml=reading.answers,
        entries=archive.entries,
        snapshot=replace(snapshot, node=node, captured_at=captured_at),
        left_out=tuple(archive.left_out),
        failure=failure,
    )


def archive_text(raw: RawCapture) -> str:
    """Return the text of ``sysfs.txt``; a note at its head lists omissions."""
    notes = "".join(f"# {text}\n" for text in raw.left_out)
    return f"# Written by `nodetopo capture --raw`.\n{notes}{render(raw.entries)}"


class _Archive:
    """Collects entries by path; a file's content replaces the bare name."""

    def __init__(self) -> None:
        self.left_out: list[str] = []
        self._entries: dict[str, Entry] = {}

    @property
    def entries(self) -> tuple[Entry, ...]:
        return tuple(self._entries[path] for path in sorted(self._entries))

    def add(self, tree: Tree, prefix: str) -> None:
        """Add the data read from *tree*, below *prefix* in the archive."""
        for key, outcome in tree.known.items():
            if prefix == "proc" and _is_private(tree, key[1]):
                continue
            if (
                prefix == ""
                and isinstance(outcome, bytes)
                and key[1].startswith(SECRET_DIRECTORIES)
            ):
                self.left_out.append(f"{key[1]}: it may hold a token")
                continue
            for entry in self._entries_of(tree.root, prefix, key, outcome):
                if entry.target is not None:
                    try:
                        parse(render([entry]))
                    except DecodeError:
                        self.left_out.append(f"{entry.path}: a link out of the tree")
                        continue
                before = self._entries.get(entry.path)
                if before is None or (not before.content and entry.content is not None):
                    self._entries[entry.path] = entry

    def _entries_of(self, root: Path, prefix: str, key: Key, outcome: Outcome) -> Iterator[Entry]:
        act, path = key
        if isinstance(outcome, Refusal):
            name = errorcode.get(outcome.errno, str(outcome.errno))
            if name not in ("ENOENT", "ENOTDIR"):
                self.left_out.append(f"{_join(prefix, path)}: {name}")
            return
        follows = act not in (Act.LINK, Act.FOLDER, Act.STATUS)
        real, links = _walk(root, path, follows=follows)
        yield from (Entry(path=_join(prefix, at), target=to) for at, to in links.items())
        if real is None:
            self.left_out.append(f"{_join(prefix, path)}: behind a link out of the tree")
        elif isinstance(outcome, bytes):
            yield Entry(path=_join(prefix, real), content=outcome)
        elif act is not Act.LINK and real not in links:
            yield from _place(root, prefix, real)
            if isinstance(outcome, tuple):
                children = (f"{real}/{name}" if real else name for name in outcome)
                yield from (e for child in children for e in _place(root, prefix, child))


def _is_private(procfs: Tree, path: str) -> bool:
    """Return whether *path* shows other processes than a kubelet, which can hold secrets."""
    process = path.split("/", 1)[0]
    if path == "." or not is_digits(process):
        return path == "."
    line = procfs.known.get((Act.CONTENT, f"{process}/cmdline"))
    return not (isinstance(line, bytes) and is_kubelet(arguments(line)))


def _place(root: Path, prefix: str, real: str) -> Iterator[Entry]:
    """Yield the entry that makes *real* exist, without its content."""
    place = root / real
    path = _join(prefix, real)
    if place.is_symlink():
        yield Entry(path=path, target=str(place.readlink()))
    elif place.is_dir():
        yield Entry(path=path)
    elif place.exists():
        yield Entry(path=path, content=b"")


def _walk(root: Path, path: str, *, follows: bool) -> tuple[str | None, dict[str, str]]:
    """Return where *path* leads below *root*, and the links on the way by their real path.

    Without *follows* a link at the very end is a link and the end. ``None``: it leads out.
    """
    links: dict[str, str] = {}
    here: list[str] = []
    followed = 0
    parts = deque(path.split("/"))
    while parts:
        part = parts.popleft()
        if part in ("", "."):
            continue
        if part == "..":
            if not here:
                return None, links
            here.pop()
            continue
        here.append(part)
        place = root.joinpath(*here)
        if not place.is_symlink():
            continue
        target = str(place.readlink())
        links["/".join(here)] = target
        if not parts and not follows:
            break
        followed += 1
        if target.startswith("/") or followed > MAX_LINKS:
            return None, links
        here.pop()
        parts.extendleft(reversed(target.split("/")))
    return "/".join(here), links


def _join(prefix: str, path: str) -> str:
    return "/".join(part for part in (prefix, path) if part not in ("", "."))
