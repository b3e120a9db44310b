r"""Part of a host's file tree as one text that a person can review and a test can unpack.

::

    # anything after a hash in the first column sys/devices/system/node/node0/
      cpulist = 0-55,112-167 cpu0 -> ../../cpu/cpu0 meminfo |
        |Node 0 MemTotal:       1055744000 kB |Node 0 MemFree:        1055744000 kB
      config 0x
        :de103023

A line that ends in ``/`` is a directory, relative to the root of the host; the indented lines below
it are its entries. ``=`` holds one line of text and ``|`` several, each ended by a newline; ``0x``
holds any other content, in hexadecimal; ``->`` is a symbolic link. White space and backslashes in
names are written ``\xNN``.

An archive is untrusted: :func:`unpack` writes nothing outside its root.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import accumulate
from pathlib import Path

from msgspec import Struct

from nodetopo.errors import DecodeError, InputError

MAX_BYTES = 32 * 1024 * 1024
"""Largest archive accepted; a 224-CPU node with its whole CPU tree is about 0.5 MiB."""

_CURE = "unpack archives that `pack` wrote, unchanged"
_HEX_LINE = 32
_ESCAPED = re.compile(r"\\x([0-9a-f]{2})")
_UNSAFE = re.compile(r"[\s\\\x00-\x1f\x7f]")
_NUMBERED = re.compile(r"([^:]*[^:0-9])([0-9]+)")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


class Entry(Struct, frozen=True, kw_only=True):
    """One name in the tree: a file if it has *content*, a link if *target*, else a directory."""

    path: str  # relative to the host's root, without leading slash
    content: bytes | None = None
    target: str | None = None


def pack(root: Path, paths: Iterable[Path]) -> str:
    """Return the archive of *paths* below *root*; directories whole, links not followed.

    Raises:
        OSError: a file cannot be read.
    """
    return render(entry for path in paths for entry in _collect(root, root / path))


def unpack(text: str, root: Path) -> None:
    """Write the archive's tree into *root*, a new or empty directory.

    Raises:
        DecodeError: the archive is malformed, or an entry or a link would leave *root*; then
            nothing is written.
        InputError: *root* is not empty.
    """
    entries = parse(text)
    if root.exists() and any(root.iterdir()):
        raise InputError(f"{root} is not empty", "unpack into a new directory")
    root.mkdir(parents=True, exist_ok=True)
    for entry in entries:
        place = root / entry.path
        if entry.content is None and entry.target is None:
            place.mkdir(parents=True, exist_ok=True)
            continue
        if entry.target is not None:
            place.symlink_to(entry.target)
        else:
            place.write_bytes(entry.content or b"")


def render(entries: Iterable[Entry]) -> str:
    """Return the archive of *entries*: directories and names sorted, numbers by value."""
    directories: dict[str, dict[str, Entry]] = {}
    for entry in entries:
        if entry.content is None and entry.target is None:
            directories.setdefault(entry.path, {})
        else:
            parent, _, name = entry.path.rpartition("/")
            directories.setdefault(parent, {})[name] = entry
    lines: list[str] = []
    for directory in sorted(directories, key=_natural):
        names = directories[directory]
        if names or not any(other.startswith(directory + "/") for other in directories):
            lines.append(_escape(directory) + "/")
        for key in sorted(names, key=_natural):
            entry, name = names[key], _escape(key)
            if entry.target is not None:
                lines.append(f"  {name} -> {entry.target}")
                continue
            content = entry.content or b""
            try:
                text = content.decode("utf-8")
            except UnicodeDecodeError:
                text = ""
            if not text.endswith("\n") or _CONTROL.search(text):
                digits = (content[at : at + _HEX_LINE] for at in range(0, len(content), _HEX_LINE))
                lines += [f"  {name} 0x", *(f"    :{each.hex()}" for each in digits)]
            elif text == "\n":
                lines.append(f"  {name} =")
            elif text.count("\n") == 1:
                lines.append(f"  {name} = {text[:-1]}")
            else:
                lines += [f"  {name} |", *(f"    |{line}" for line in text[:-1].split("\n"))]
    return "\n".join(lines) + "\n"


def parse(text: str) -> tuple[Entry, ...]:
    """Read an archive without writing it, directories before their entries.

    Raises:
        DecodeError: malformed, or not safe to write; its path is the line.
    """
    if len(text) > MAX_BYTES:
        raise DecodeError("", f"larger than {MAX_BYTES >> 20} MiB", _CURE)
    entries: list[Entry] = []
    directory: str | None = None
    lines = deque(enumerate(text.split("\n"), 1))
    while lines:
        number, line = lines.popleft()
        if not line or line.startswith("#"):
            continue
        if not line.startswith(" "):
            if not line.endswith("/"):
                raise _bad(number, f"expected a directory ending in '/', found {line[:60]!r}")
            directory = _safe(_unescape(line[:-1], number), number)
            entries.append(Entry(path=directory))
            continue
        if directory is None:
            raise _bad(number, "an entry before the first directory")
        entries.append(_entry(directory, line, number, lines))
    # Names are unique, and no entry is below a file or a link.
    leaves: set[str] = set()
    for entry in entries:
        if entry.content is not None or entry.target is not None:
            if entry.path in leaves:
                raise DecodeError(entry.path, "named twice", _CURE)
            leaves.add(entry.path)
    for entry in entries:
        is_leaf = entry.content is not None or entry.target is not None
        above = accumulate(entry.path.split("/")[:-1], "{}/{}".format)
        if not leaves.isdisjoint(above) or (not is_leaf and entry.path in leaves):
            raise DecodeError(entry.path, "lies behind a file or a link", _CURE)
    return tuple(entries)


def _collect(root: Path, place: Path) -> Iterator[Entry]:
    path = place.relative_to(root).as_posix()
    if place.is_symlink():
        yield Entry(path=path, target=str(place.readlink()))
    elif place.is_dir():
        yield Entry(path=path)
        for child in place.iterdir():
            yield from _collect(root, child)
    elif place.is_file():
        yield Entry(path=path, content=place.read_bytes())


def _entry(directory: str, line: str, number: int, rest: deque[tuple[int, str]]) -> Entry:
    name, _, value = line.removeprefix("  ").partition(" ")
    path = _safe(f"{directory}/{_unescape(name, number)}", number)
    if value == "=" or value.startswith("= "):
        return Entry(path=path, content=f"{value[2:]}\n".encode())
    if value.startswith("-> "):
        # The link must not lead out of the root. ``..`` can stand in front only: behind a name it
        # would climb from wherever a link of that name leads, which no reader of the text can see.
        target = value[3:]
        parts = target.split("/")
        climbs = next((at for at, part in enumerate(parts) if part != ".."), len(parts))
        is_plain = target and "\0" not in target and not {"", ".", ".."} & set(parts[climbs:])
        if not is_plain or climbs > path.count("/"):
            raise _bad(number, f"not a link inside the root: {target[:60]!r}")
        return Entry(path=path, target=target)
    if value == "|":
        text = "".join(f"{line}\n" for line in _block("    |", rest))
        return Entry(path=path, content=text.encode())
    if value == "0x":
        try:
            return Entry(path=path, content=bytes.fromhex("".join(_block("    :", rest))))
        except ValueError:
            raise _bad(number, "not hexadecimal") from None
    raise _bad(number, f"expected '=', '|', '0x' or '->' after {name[:60]!r}")


def _block(prefix: str, rest: deque[tuple[int, str]]) -> Iterator[str]:
    while rest and rest[0][1].startswith(prefix):
        yield rest.popleft()[1].removeprefix(prefix)


def _safe(path: str, number: int) -> str:
    """Return *path* if it stays below the root."""
    parts = path.split("/")
    if "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise _bad(number, f"not a path below the root: {path[:60]!r}")
    return path


def _escape(name: str) -> str:
    return _UNSAFE.sub(lambda match: f"\\x{ord(match[0]):02x}", name)


def _unescape(name: str, number: int) -> str:
    if re.search(r"\\(?!x[0-9a-f]{2})", name):
        raise _bad(number, f"a backslash must start \\xNN: {name[:60]!r}")
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), name)


def _natural(path: str) -> list[tuple[str, int]]:
    """Return a key that sorts ``cpu2`` before ``cpu10``."""
    matches = [(part, _NUMBERED.fullmatch(part)) for part in path.split("/")]
    return [(match[1], int(match[2])) if match else (part, -1) for part, match in matches]


def _bad(number: int, problem: str) -> DecodeError:
    return DecodeError(f"line {number}", problem, _CURE)
