"""Caches of the dynamic loader, made of entries as ``ldconfig`` makes them."""

import struct

X86_64 = 0x0303
AARCH64 = 0x0A03
PPC64LE = 0x0503
I386 = 0x0003
X32 = 0x0803

Entry = tuple[str, str, int]
"""What programs ask for, where it is, and its kind."""

HEADER_BYTES = 48
ENTRY_BYTES = 24


def loader_cache(*entries: Entry, order: int = 2) -> bytes:
    """Return a cache of *entries* in the format of today; *order* is its byte order."""
    texts = b""
    table = b""
    begin = HEADER_BYTES + len(entries) * ENTRY_BYTES
    for name, path, kind in entries:
        name_at, path_at = begin + len(texts), begin + len(texts) + len(name) + 1
        texts += f"{name}\0{path}\0".encode()
        table += struct.pack("<iIIIQ", kind, name_at, path_at, 0, 0)
    head = struct.pack("<20sIIB3xI12x", b"glibc-ld.so.cache1.1", len(entries), len(texts), order, 0)
    return head + table + texts


def loader_cache_of_old(*entries: Entry) -> bytes:
    """Return the same behind a table in the format before, as ldconfig wrote until glibc 2.31."""
    head = struct.pack("<11sxI", b"ld.so-1.7.0", len(entries))
    old = head + bytes(12 * len(entries))
    return old + bytes(-len(old) % 8) + loader_cache(*entries, order=0)
