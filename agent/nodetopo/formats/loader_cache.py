"""The cache of the dynamic loader, ``/etc/ld.so.cache``: the host's libraries and their paths.

``ldconfig`` writes it. The format follows glibc 2.41 (sysdeps/generic/dl-cache.h), in use since
glibc 2.2 and the only one since 2.32: a header, an entry for each library, and their texts. Older
hosts prepend entries of an earlier format, which are skipped. Numbers are little-endian, as on
every platform with a driver of NVIDIA's.
"""

import struct
from collections.abc import Iterator

from msgspec import Struct

from nodetopo.errors import DecodeError

_OLD_MAGIC = b"ld.so-1.7.0"
_OLD_HEADER = struct.Struct("<11sxI")
_OLD_ENTRY_BYTES = 12
_ALIGNMENT = 8
"""Bytes; the newer header begins at a multiple of it (dl-cache.h, ``ALIGN_CACHE``)."""

_MAGIC = b"glibc-ld.so.cache1.1"
_HEADER = struct.Struct("<20sIIB3xI12x")
"""Magic with version, number of entries, length of the texts, byte order, further data."""

_ENTRY = struct.Struct("<iIIIQ")
"""Kind, where the name begins, where the path begins, and two fields of the loader's choice."""

_LITTLE_ENDIAN = (0, 2)
"""Values of the two lowest bits of the byte order: glibc before 2.33 wrote 0."""

_IS_ELF = 0x0001
_PLATFORM_MASK = 0xFF00
_PLATFORMS = {"x86_64": 0x0300, "ppc64le": 0x0500, "aarch64": 0x0A00}
"""Bits of an entry's kind for 64-bit libraries, by the machine that ``uname -m`` names
(sysdeps/generic/ldconfig.h, ``FLAG_X8664_LIB64`` ...)."""

_LONGEST_TEXT = 4096
"""Bytes of a name or path; Linux takes no longer path (linux/limits.h, ``PATH_MAX``)."""


class CachedLibrary(Struct, frozen=True):
    """A library that the loader knows: *name* is what programs ask for, *path* is absolute."""

    name: str
    path: str


def cached_libraries(data: bytes, machine: str) -> Iterator[CachedLibrary]:
    """Yield the 64-bit libraries for *machine* of the cache *data*, in its order.

    Args:
        data: the content of the file; whoever reads it limits its size.
        machine: as ``uname -m`` names it; for any other than those that NVIDIA has drivers for,
            nothing is yielded.

    Raises:
        DecodeError: it is no such cache, or ends too early. An entry whose texts cannot be read
            is left out.
    """
    start = 0
    if data.startswith(_OLD_MAGIC) and len(data) >= _OLD_HEADER.size:
        _, count = _OLD_HEADER.unpack_from(data)
        end = _OLD_HEADER.size + count * _OLD_ENTRY_BYTES
        start = -(-end // _ALIGNMENT) * _ALIGNMENT
    if not data.startswith(_MAGIC, start) or len(data) - start < _HEADER.size:
        raise DecodeError("", "not a cache of glibc's loader")
    _, count, _, order, _ = _HEADER.unpack_from(data, start)
    if order & 3 not in _LITTLE_ENDIAN:
        raise DecodeError("", "a cache of a big-endian machine")
    first = start + _HEADER.size
    end = first + count * _ENTRY.size
    if end > len(data):
        raise DecodeError("", f"it ends before the last of {count} entries")

    platform = _PLATFORMS.get(machine)
    for kind, name_at, path_at, _, _ in _ENTRY.iter_unpack(data[first:end]):
        if not kind & _IS_ELF or kind & _PLATFORM_MASK != platform:
            continue
        name, path = _text(data, start + name_at), _text(data, start + path_at)
        if name and path and path.startswith("/"):
            yield CachedLibrary(name, path)


def _text(data: bytes, begin: int) -> str | None:
    """Return the text at *begin*, which a zero byte ends; ``None`` if there is none."""
    end = data.find(b"\0", begin, begin + _LONGEST_TEXT)
    if end < 0:
        return None
    try:
        return data[begin:end].decode()
    except UnicodeDecodeError:
        return None
