"""Capture: a snapshot that appears whole or not at all."""

import os
import stat
from pathlib import Path

import pytest
from msgspec.structs import replace

from nodetopo.machines.bundled import machine
from nodetopo.model.codec import decode, encode
from nodetopo.topology.matrix import matrix
from tests.cli.conftest import Cli

CAPTURE = ("capture", "--machine", "dgx-1v", "-o")


def test_the_file_holds_the_snapshot(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "node.json"
    outcome = cli(*CAPTURE, str(path))
    assert (outcome.code, path.read_text(encoding="utf-8")) == (0, encode(machine("dgx-1v")))


def test_standard_output_holds_nothing_but_the_snapshot(cli: Cli) -> None:
    outcome = cli(*CAPTURE, "-")
    assert (outcome.code, outcome.out, outcome.err) == (0, encode(machine("dgx-1v")), "")


def test_an_old_file_is_replaced_and_nothing_else_left(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "node.json"
    path.write_text("old", encoding="utf-8")
    cli(*CAPTURE, str(path))
    assert [entry.name for entry in tmp_path.iterdir()] == ["node.json"]


def test_the_file_has_the_mode_that_the_umask_leaves(cli: Cli, tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        cli(*CAPTURE, str(tmp_path / "node.json"))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "node.json").stat().st_mode) == 0o640


def test_a_failed_write_keeps_the_old_file(
    cli: Cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "node.json"
    path.write_text("old", encoding="utf-8")
    monkeypatch.setattr(os, "fsync", full)
    assert cli(*CAPTURE, str(path)).code == 2
    assert [entry.read_text(encoding="utf-8") for entry in tmp_path.iterdir()] == ["old"]


def test_a_capture_can_be_read_from_standard_input(cli: Cli) -> None:
    text = cli(*CAPTURE, "-").out
    expected = cli("labels", "--machine", "dgx-1v")
    assert cli("labels", "--snapshot", "-", stdin=text) == expected


def test_a_scrubbed_capture_keeps_the_machine_and_not_its_names(cli: Cli) -> None:
    before = machine("dgx-1v")
    outcome = cli(*CAPTURE, "-", "--scrub")
    after = decode(outcome.out).snapshot
    uuids = [gpu.uuid or "" for gpu in before.gpus]
    assert [name for name in (*uuids, before.node or "?") if name in outcome.out] == []
    assert "GPU UUIDs replaced" in outcome.err
    assert matrix(after).cells == matrix(before).cells


def test_a_name_that_no_file_can_have_is_one_clear_line(cli: Cli, tmp_path: Path) -> None:
    path = str(tmp_path / ("x" * 300))  # NAME_MAX of Linux is 255
    outcome = cli(*CAPTURE, path)
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert outcome.err.startswith(f"error: cannot write {tmp_path}/xxx"[:60])
    assert outcome.err.endswith("xxx: File name too long — check the path\n")


def test_a_directory_that_cannot_be_listed_takes_no_raw_texts(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_path: Path) -> None:  # modes do not keep root out
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refuse)
    outcome = cli("capture", "--raw", "-o", str(tmp_path))
    assert (outcome.code, outcome.err) == (
        2,
        f"error: cannot read {tmp_path}: Permission denied — name a new directory\n",
    )


def test_a_capture_steers_no_terminal(cli: Cli) -> None:
    name = "a\x1b[2J\x9b31m\u202e"
    text = encode(replace(machine("dgx-1v"), node=name))
    outcome = cli("capture", "-o", "-", "--snapshot", "-", stdin=text)
    assert [char for char in "\x1b\x9b\u202e" if char in outcome.out] == []
    assert decode(outcome.out).snapshot.node == name


@pytest.mark.parametrize(
    "source", [("--machine", "dgx-1v"), ("--snapshot", "x.json"), ("--topo-m", "x.txt")]
)
def test_raw_texts_are_of_the_live_node_only(
    cli: Cli, tmp_path: Path, source: tuple[str, str]
) -> None:
    outcome = cli("capture", "--raw", "-o", str(tmp_path / "raw"), *source)
    assert (outcome.code, outcome.err) == (
        2,
        "error: --raw reads the live node — give no other source with it\n",
    )


@pytest.mark.parametrize("kind", ["file", "directory", "stdout"])
def test_raw_texts_never_replace_anything(cli: Cli, tmp_path: Path, kind: str) -> None:
    target = tmp_path / "raw"
    if kind == "file":
        target.write_text("mine", encoding="utf-8")
    elif kind == "directory":
        target.mkdir()
        (target / "mine").touch()
    before = sorted(tmp_path.rglob("*"))
    outcome = cli("capture", "--raw", "-o", "-" if kind == "stdout" else str(target))
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert sorted(tmp_path.rglob("*")) == before
