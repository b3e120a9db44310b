"""The archive that ``nodetopo support`` writes: a tar.gz of a few flat files, read with limits.

``manifest.json`` lists the other files with their SHA-256; ``snapshot.json`` is what readers take.
The bytes depend on the files and the time alone: names are sorted, owners and modes fixed.

An archive can come from a stranger: nothing is extracted to disk, only regular files with plain
names are taken, and sizes are bounded before and after decompression.
"""

import gzip
import hashlib
import io
import json
import tarfile
import zlib
from collections.abc import Mapping
from typing import Any

from nodetopo.errors import DecodeError
from nodetopo.model import strict_json
from nodetopo.model.codec import MAX_BYTES

SCHEMA = "nodetopo/support/v1"

MANIFEST, SNAPSHOT = "manifest.json", "snapshot.json"

GZIP_MAGIC = b"\x1f\x8b"
"""The first two bytes of a gzip file (RFC 1952, 2.3.1)."""

MAX_PACKED = MAX_BYTES
"""Bytes of an archive; one of a node with 8 GPUs and 100 pods has some 100 KB."""

MAX_UNPACKED = 4 * MAX_BYTES
"""Bytes of the tar inside; gzip could pack a thousand times as many."""

MAX_FILES = 64
"""Files in an archive; ``nodetopo support`` writes some fifteen."""

_CURE = "give the archive that `nodetopo support` wrote, unchanged"


def is_archive(content: bytes) -> bool:
    """Return whether *content* begins as an archive does; JSON and XML never do."""
    return content.startswith(GZIP_MAGIC)


def pack(files: Mapping[str, bytes], manifest: Mapping[str, Any], mtime: int) -> bytes:
    """Return the archive of *files* and of *manifest*, to which their hashes are added.

    Args:
        files: name → content; names are flat.
        mtime: of every file, in seconds since 1970.
    """
    listed = [
        {"name": name, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        for name, content in sorted(files.items())
    ]
    document = {"schema": SCHEMA, **manifest, "files": listed}
    text = f"{json.dumps(document, indent=2, ensure_ascii=True)}\n"
    members = {MANIFEST: text.encode(), **dict(sorted(files.items()))}
    packed = io.BytesIO()
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=mtime) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = len(content), mtime, 0o600
            tar.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


def snapshot_text(content: bytes) -> str:
    """Return the text of the snapshot in the archive *content*.

    Raises:
        DecodeError: it is no such archive, is too large, was cut or changed.
    """
    files = unpack(content)
    try:
        return files[SNAPSHOT].decode("utf-8")
    except KeyError:
        raise DecodeError("", f"an archive without {SNAPSHOT}", _CURE) from None
    except UnicodeDecodeError as error:
        raise DecodeError(SNAPSHOT, f"not UTF-8: {error.reason}", _CURE) from None


def unpack(content: bytes) -> dict[str, bytes]:
    """Return name → content of the files in the archive *content*, the manifest included."""
    if len(content) > MAX_PACKED:
        raise DecodeError("", f"an archive of more than {MAX_PACKED >> 20} MiB", _CURE)
    files = _members(_decompressed(content))
    if MANIFEST not in files:
        raise DecodeError("", f"an archive without {MANIFEST}", _CURE)
    for name, digest in _digests(files[MANIFEST]).items():
        if name not in files:
            raise DecodeError(name, "listed in the manifest, but not in the archive", _CURE)
        if hashlib.sha256(files[name]).hexdigest() != digest:
            raise DecodeError(name, "its SHA-256 is not that of the manifest", _CURE)
    return files


def _decompressed(content: bytes) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            tar = file.read(MAX_UNPACKED + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DecodeError("", f"not a gzip file: {error}", _CURE) from None
    if len(tar) > MAX_UNPACKED:
        raise DecodeError("", f"more than {MAX_UNPACKED >> 20} MiB when unpacked", _CURE)
    return tar


def _members(tar: bytes) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(tar), mode="r:") as archive:
            for entry in archive:
                _check(entry, files)
                opened = archive.extractfile(entry)
                assert opened is not None, "a regular file"
                files[entry.name] = opened.read()
    except DecodeError:
        raise
    # tarfile raises these for headers that are cut, or hold no numbers where they should.
    except (tarfile.TarError, EOFError, OSError, ValueError, OverflowError) as error:
        raise DecodeError("", f"not a tar file: {error}", _CURE) from None
    return files


def _check(entry: tarfile.TarInfo, before: Mapping[str, bytes]) -> None:
    """Refuse entries that are never in our archives."""
    name, problem = entry.name, None
    if len(before) == MAX_FILES:
        raise DecodeError("", f"more than {MAX_FILES} files", _CURE)
    if not entry.isreg() or entry.issparse():
        problem = "not a regular file"
    elif not name or "/" in name or "\\" in name or name.startswith("."):
        problem = "not a plain file name"
    elif name in before:
        problem = "in the archive twice"
    elif entry.size > MAX_BYTES:
        problem = f"larger than {MAX_BYTES >> 20} MiB"
    if problem is not None:
        raise DecodeError(name[:60], problem, _CURE)


def _digests(text: bytes) -> dict[str, str]:
    """Return name → SHA-256 of the files in the manifest *text*."""
    try:
        document = strict_json.loads(text.decode("utf-8"))
        found = {str(file["name"]): str(file["sha256"]) for file in document["files"]}
        schema = document["schema"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise DecodeError(MANIFEST, "not a manifest", _CURE) from None
    if schema != SCHEMA:
        raise DecodeError(MANIFEST, f"not of schema {SCHEMA}", _CURE)
    return found
