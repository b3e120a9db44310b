"""A root as scans see it: what is kept, what is read again, what it costs."""

import os
import re
from pathlib import Path

import pytest

from nodetopo.probes.sysfs.tree import Memo, Tree


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Two files, of which one may change."""
    (tmp_path / "hot").write_text("1")
    (tmp_path / "cold").write_text("1")
    return Tree(tmp_path, re.compile("hot"))


def test_a_file_is_read_once_a_scan(tree: Tree) -> None:
    assert ([tree.content("hot"), tree.content("hot")], tree.reads) == ([b"1", b"1"], 1)


def test_the_next_scan_reads_again_what_may_change_and_nothing_else(tree: Tree) -> None:
    before = [tree.content("hot"), tree.content("cold")]
    for name in ("hot", "cold"):
        (tree.root / name).write_text("2")
    tree.renew()
    after = [tree.content("hot"), tree.content("cold")]
    assert (before, after, tree.reads) == ([b"1", b"1"], [b"2", b"1"], 1)


def test_what_was_forgotten_is_read_again(tree: Tree) -> None:
    tree.content("cold")
    (tree.root / "cold").write_text("2")
    tree.renew().forget("co")
    assert tree.content("cold") == b"2"


def test_what_this_scan_has_read_already_is_not_forgotten(tree: Tree) -> None:
    tree.content("cold")
    tree.forget()
    tree.content("cold")
    assert tree.reads == 1


def test_that_a_file_is_not_there_is_remembered_too(tree: Tree) -> None:
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            tree.content("none")
    assert tree.reads == 1


def test_a_pipe_is_refused_and_not_waited_for(tree: Tree) -> None:
    os.mkfifo(tree.root / "pipe")
    with pytest.raises(OSError, match="not supported"):
        tree.content("pipe")


def test_a_result_stands_until_one_of_its_reads_differs(tree: Tree) -> None:
    memo, calls = Memo(tree), []

    def both() -> bytes:
        calls.append(1)
        return tree.content("hot") + tree.content("cold")

    found = []
    for text in ("1", "1", "2"):
        (tree.root / "hot").write_text(text)
        tree.renew()
        found.append(memo.part("both", None, both))
    assert (found, len(calls)) == ([b"11", b"11", b"21"], 2)


def test_a_result_of_other_inputs_does_not_stand(tree: Tree) -> None:
    memo = Memo(tree)
    assert [memo.part("p", n, lambda n=n: n) for n in (1, 2)] == [1, 2]  # type: ignore[misc]


def test_a_result_falls_with_a_read_that_another_result_noticed_first(tree: Tree) -> None:
    memo = Memo(tree)
    for text in ("1", "2"):
        (tree.root / "hot").write_text(text)
        tree.renew()
        found = [memo.part(name, None, lambda: tree.content("hot")) for name in ("a", "b")]
    assert found == [b"2", b"2"]


def test_what_is_at_a_path_is_told_without_following_a_link(tree: Tree) -> None:
    (tree.root / "folder").mkdir()
    (tree.root / "link").symlink_to("/dev/null")
    os.mkfifo(tree.root / "fifo")
    names = ("hot", "folder", "link", "fifo")
    assert [tree.status(name) for name in names] == ["file", "folder", "link", "fifo"]
    assert Tree(Path("/")).status("dev/null") == "c 1:3"
    with pytest.raises(FileNotFoundError):
        tree.status("none")
