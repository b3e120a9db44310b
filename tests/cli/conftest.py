"""The command line called in process, and machines as the texts that its flags take."""

import io
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nodetopo.cli.main import main
from nodetopo.machines.bundled import machine
from nodetopo.model.codec import encode
from tests.cli.outcome import Outcome, topo_m

Cli = Callable[..., Outcome]


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("NODETOPO_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "80")  # argparse wraps --help to it


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Return a function that runs one command: ``cli("topo", "matrix", stdin="…")``."""

    def run(*arguments: str, stdin: str = "") -> Outcome:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        code = main(arguments)
        printed = capsys.readouterr()
        return Outcome(code=code, out=printed.out, err=printed.err)

    return run


@pytest.fixture
def snapshot_file(tmp_path: Path) -> Callable[[str], Path]:
    """Return a function from a bundled machine to a snapshot file of it."""

    def written(name: str) -> Path:
        path = tmp_path / f"{name}.json"
        path.write_text(encode(machine(name)), encoding="utf-8")
        return path

    return written


@pytest.fixture
def topo_m_file(tmp_path: Path) -> Callable[[str], Path]:
    """Return a function from a bundled machine to a file with its `nvidia-smi topo -m` text."""

    def written(name: str) -> Path:
        path = tmp_path / f"{name}.txt"
        path.write_text(topo_m(machine(name)), encoding="utf-8")
        return path

    return written
