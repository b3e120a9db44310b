"""The text archive: what goes in comes out, and nothing gets out of its root."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodetopo.errors import DecodeError, InputError
from nodetopo.tools.capture.archive import Entry, pack, parse, render, unpack
from tests.budget import cases

EXAMPLE = """\
sys/bus/
  config 0x
    :de1030ff
  empty 0x
  lines |
    |first
    |
    |= third
  link -> ../devices/x
  newline =
  number = 42
  with\\x20blank = a  b\x20
sys/class/
sys/devices/x/
  cpu2 = two
  cpu10 = ten
"""


def test_a_packed_tree_is_the_text_it_was_unpacked_from(tmp_path: Path) -> None:
    unpack(EXAMPLE, tmp_path)
    assert pack(tmp_path, [Path("sys")]) == EXAMPLE


def test_an_unpacked_tree_holds_files_links_and_empty_directories(tmp_path: Path) -> None:
    unpack(EXAMPLE, tmp_path)
    bus = tmp_path / "sys/bus"
    found = {path.name: path.read_bytes() for path in bus.iterdir() if path.is_file()}
    assert (found, (bus / "link").readlink(), list((tmp_path / "sys/class").iterdir())) == (
        {
            "config": b"\xde\x10\x30\xff",
            "empty": b"",
            "lines": b"first\n\n= third\n",
            "newline": b"\n",
            "number": b"42\n",
            "with blank": b"a  b \n",
        },
        Path("../devices/x"),
        [],
    )


def test_comments_and_empty_lines_between_entries_are_nothing() -> None:
    assert parse("# a note\n\nsys/\n\n  a = 1\n") == (
        Entry(path="sys"),
        Entry(path="sys/a", content=b"1\n"),
    )


CONTENT = st.one_of(st.binary(max_size=80), st.text(max_size=80).map(str.encode))
NAME = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=8)


@settings(max_examples=cases(40, 400))
@given(st.dictionaries(NAME.filter(lambda name: name not in (".", "..")), CONTENT, min_size=1))
def test_any_names_and_contents_survive(files: dict[str, bytes]) -> None:
    entries = {Entry(path=f"sys/{name}", content=content) for name, content in files.items()}
    assert set(parse(render(entries))) == entries | {Entry(path="sys")}


@pytest.mark.parametrize(
    "archive",
    [
        "/etc/\n  passwd = x\n",
        "../\n  x = x\n",
        "sys/../../\n  x = x\n",
        "sys/\n  ../../x = x\n",
        "sys/\n  \\x2e\\x2e/\\x2e\\x2e/x = x\n",
        "sys//\n  x = x\n",
        "sys/\n  x\\x00 = x\n",
        "sys/\n  x -> /etc/passwd\n",
        "sys/\n  x -> ../../etc\n",
        "sys/a/b/\n  x -> ../../../../etc\n",
        "sys/\n  x -> a/../../../etc\n",
        "sys/\n  x -> \n",
        "sys/a/\n  up -> ..\nsys/\n  x -> a/up/../..\n",
        "sys/\n  x -> a\nsys/x/\n  y = z\n",
        "sys/\n  x -> a\nsys/x/\n",
        "sys/\n  x = 1\n  x = 2\n",
        "sys/\n  x -> a\n  x = 2\n",
        "sys/\n  x = 1\n  x/y = 2\n",
    ],
)
def test_an_archive_that_could_write_elsewhere_is_refused_whole(
    archive: str,
    tmp_path: Path,
) -> None:
    with pytest.raises(DecodeError):
        unpack(f"sys/first/\n  a = b\n{archive}", tmp_path / "root")
    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize(
    ("archive", "place"),
    [
        ("  a = 1\n", "line 1"),
        ("sys/\n  a: 1\n", "line 2"),
        ("sys\n", "line 1"),
        ("sys/\n  a 0x\n    :zz\n", "line 2"),
        ("sys/\n    |stray\n", "line 2"),
        ("sys/\n  a\\q = 1\n", "line 2"),
    ],
)
def test_a_malformed_archive_is_refused_with_the_line(archive: str, place: str) -> None:
    with pytest.raises(DecodeError) as caught:
        parse(archive)
    assert caught.value.path == place


def test_a_directory_that_holds_something_is_not_unpacked_into(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(InputError, match="not empty"):
        unpack(EXAMPLE, tmp_path)


PLACE = st.sampled_from(["a", "a/b", "a/b/c", "d"])
LINK = st.tuples(
    PLACE,
    st.sampled_from(["b", "c", "up", "x"]),
    st.lists(st.sampled_from(["..", "a", "b", "c", "d", "up", "x"]), min_size=1, max_size=5),
)


@settings(max_examples=cases(50, 400), deadline=None)
@given(links=st.lists(LINK, min_size=1, max_size=6))
def test_no_link_of_an_accepted_archive_leads_out(
    links: list[tuple[str, str, list[str]]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    root = tmp_path_factory.mktemp("top") / "inner" / "host"
    archive = "".join(f"{place}/\n  {name} -> {'/'.join(to)}\n" for place, name, to in links)
    try:
        unpack(archive, root)
    except DecodeError:
        return
    for path in root.rglob("*"):
        if path.is_symlink():
            assert Path(os.path.realpath(path)).is_relative_to(root)
