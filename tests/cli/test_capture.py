"""Capture: a snapshot that appears whole or not at all."""

import os
import stat
from pathlib import Path

import pytest

from agent.machines.bundled import machine
from agent.model.codec import encode
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
