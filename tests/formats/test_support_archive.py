"""The archive of `support`: the same bytes each time, and a reader that trusts none of them."""

import gzip
import io
import json
import tarfile
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodetopo.errors import DecodeError
from nodetopo.formats import support_archive
from nodetopo.formats.support_archive import (
    MANIFEST,
    SNAPSHOT,
    is_archive,
    pack,
    snapshot_text,
    unpack,
)

FILES = {SNAPSHOT: b'{"schema": "nodetopo/v1"}\n', "log.txt": b"a line\n"}
GOOD = pack(FILES, {"source": "test"}, 1_700_000_000)


def archived(*entries: tuple[tarfile.TarInfo, bytes]) -> bytes:
    """Return a tar.gz of *entries* behind the manifest and the snapshot of :data:`GOOD`."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name in (MANIFEST, *FILES):
            add(tar, tarfile.TarInfo(name), unpack(GOOD)[name])
        for entry, content in entries:
            add(tar, entry, content)
    return packed.getvalue()


def add(tar: tarfile.TarFile, entry: tarfile.TarInfo, content: bytes) -> None:
    if entry.isreg():
        entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content) if entry.isreg() else None)


def entry(name: str, **fields: Any) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    for field, value in fields.items():
        setattr(made, field, value)
    return made


def test_what_was_packed_is_unpacked() -> None:
    found = unpack(GOOD)
    assert {name: found[name] for name in FILES} == FILES
    assert snapshot_text(GOOD).encode() == FILES[SNAPSHOT]
    assert is_archive(GOOD)
    assert not is_archive(FILES[SNAPSHOT])


def test_the_bytes_depend_on_the_content_alone() -> None:
    turned = dict(reversed(FILES.items()))
    assert pack(turned, {"source": "test"}, 1_700_000_000) == GOOD
    with tarfile.open(fileobj=io.BytesIO(GOOD)) as tar:
        kept = {(one.uid, one.gid, one.uname, one.mode, one.mtime) for one in tar}
    assert kept == {(0, 0, "", 0o600, 1_700_000_000)}


def test_the_manifest_has_the_hash_of_every_other_file() -> None:
    document = json.loads(unpack(GOOD)[MANIFEST])
    assert [file["name"] for file in document["files"]] == sorted(FILES)
    assert document["source"] == "test"


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (entry("../../etc/cron.d/x"), "not a plain file name"),
        (entry("/etc/passwd"), "not a plain file name"),
        (entry(".hidden"), "not a plain file name"),
        (entry("x", type=tarfile.SYMTYPE, linkname="/etc/passwd"), "not a regular file"),
        (entry("x", type=tarfile.LNKTYPE, linkname=SNAPSHOT), "not a regular file"),
        (entry("x", type=tarfile.FIFOTYPE), "not a regular file"),
        (entry("x", type=tarfile.CHRTYPE), "not a regular file"),
        (entry("x", type=tarfile.DIRTYPE), "not a regular file"),
        (entry(SNAPSHOT), "in the archive twice"),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{value.name} {value.type!r}",
)
def test_an_entry_that_no_archive_of_ours_has_is_refused(
    more: tarfile.TarInfo, problem: str
) -> None:
    with pytest.raises(DecodeError, match=problem):
        unpack(archived((more, b"")))


def test_a_file_that_was_changed_is_refused() -> None:
    with pytest.raises(DecodeError, match=r"snapshot\.json: its SHA-256 is not that"):
        unpack(changed(lambda files: {**files, SNAPSHOT: b"{}"}))


def test_a_file_that_was_taken_out_is_refused() -> None:
    with pytest.raises(DecodeError, match="listed in the manifest"):
        unpack(changed(lambda files: {k: v for k, v in files.items() if k != "log.txt"}))


@pytest.mark.parametrize("text", [b"[]", b"{}", b'{"files": 1}', b"\xff", b"[" * 100_000])
def test_a_manifest_that_is_none_is_refused(text: bytes) -> None:
    with pytest.raises(DecodeError, match="not a manifest"):
        unpack(changed(lambda files: {**files, MANIFEST: text}))


def test_an_archive_of_another_schema_is_refused() -> None:
    other = b'{"schema": "nodetopo/support/v2", "files": []}'
    with pytest.raises(DecodeError, match="not of schema nodetopo/support/v1"):
        unpack(changed(lambda files: {**files, MANIFEST: other}))


def test_an_archive_without_a_snapshot_is_refused() -> None:
    with pytest.raises(DecodeError, match=r"without snapshot\.json"):
        snapshot_text(pack({"log.txt": b""}, {}, 0))


def test_a_small_file_that_unpacks_to_a_huge_one_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(support_archive, "MAX_UNPACKED", 1 << 20)
    bomb = gzip.compress(bytes(64 << 20))
    assert len(bomb) < 100_000
    with pytest.raises(DecodeError, match="more than 1 MiB when unpacked"):
        unpack(bomb)


def test_more_files_than_anybody_writes_are_refused() -> None:
    many = [(entry(f"f{number}"), b"") for number in range(70)]
    with pytest.raises(DecodeError, match="more than 64 files"):
        unpack(archived(*many))


@settings(max_examples=150, deadline=None)
@given(
    cut=st.integers(0, len(gzip.decompress(GOOD))), at=st.integers(0, 4000), by=st.integers(1, 255)
)
def test_any_damage_is_a_decode_error_or_harmless(cut: int, at: int, by: int) -> None:
    tar = bytearray(gzip.decompress(GOOD))
    tar[at % len(tar)] = (tar[at % len(tar)] + by) % 256
    for damaged in (gzip.compress(bytes(tar)), gzip.compress(bytes(tar[:cut])), GOOD[: cut // 20]):
        try:
            found = unpack(damaged)
        except DecodeError:
            continue
        assert found[SNAPSHOT] == FILES[SNAPSHOT]


def changed(change: Callable[[dict[str, bytes]], dict[str, bytes]]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in change(unpack(GOOD)).items():
            add(tar, tarfile.TarInfo(name), content)
    return packed.getvalue()
