"""The program called in process, as the tests of the command line call theirs."""

import io
import sys

import pytest

from tests.bench.traces.__main__ import main
from tests.cli.conftest import Cli, _no_settings_from_outside
from tests.cli.outcome import Outcome

__all__ = ["_no_settings_from_outside"]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Return a function that runs the program: ``cli("--machine", "dgx-1v", stdin="…")``."""

    def run(*arguments: str, stdin: str = "") -> Outcome:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        code = main(arguments)
        printed = capsys.readouterr()
        return Outcome(code=code, out=printed.out, err=printed.err)

    return run
