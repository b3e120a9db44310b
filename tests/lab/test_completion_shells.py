"""The completion scripts in the shells that they are for."""

import os
import pty
import subprocess
import time
from pathlib import Path
from select import select

import pytest

from nodetopo.cli.main import main
from tests.lab.debian import ensure_installed

pytestmark = pytest.mark.lab

TIMEOUT_S = 60.0

TYPED = [
    ("heal", ["health"]),
    ("topo ma", ["matrix"]),
    ("labels --machine dgx-1", ["dgx-1v"]),
    ("audit -o js", ["json"]),
    ("run --cdi-spec wr", ["write"]),
    ("completion fi", ["fish"]),
]


@pytest.fixture
def script(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> Path:
    """Return a file with the script of the shell that the test names."""
    path = tmp_path / f"nodetopo.{request.param}"
    assert main(["completion", request.param]) == 0
    path.write_text(capsys.readouterr().out, "utf-8")
    return path


def fish_offers(script: Path, typed: str) -> list[str]:
    """Return the words that fish offers after *typed*, with our *script*, without a complaint."""
    done = subprocess.run(
        [
            ensure_installed("fish", program="fish"),
            "--no-config",
            "-c",
            f"source {script}; complete -C 'nodetopo {typed}'",
        ],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
        cwd=script.parent,
        env={"HOME": str(script.parent), "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize("script", ["fish"], indirect=True)
@pytest.mark.parametrize(("typed", "offered"), TYPED)
def test_fish_offers_the_words(script: Path, typed: str, offered: list[str]) -> None:
    assert fish_offers(script, typed) == offered


@pytest.mark.parametrize("script", ["fish"], indirect=True)
def test_fish_offers_files_where_an_option_takes_one(script: Path) -> None:
    (script.parent / "node.json").write_text("", "utf-8")
    assert "node.json" in fish_offers(script, "health --snapshot nod")


@pytest.mark.parametrize("script", ["zsh"], indirect=True)
def test_zsh_completes_a_line_as_it_is_typed(script: Path) -> None:
    zsh = ensure_installed("zsh", program="zsh")
    terminal, its_end = pty.openpty()
    with subprocess.Popen(
        [zsh, "-f", "-i", "+m"],  # without job control, which needs a terminal of its own
        stdin=its_end,
        stdout=its_end,
        stderr=its_end,
        cwd=script.parent,
        env={"HOME": str(script.parent), "PATH": os.environ["PATH"], "TERM": "dumb"},
        start_new_session=True,
    ) as child:
        os.close(its_end)
        try:
            complete(terminal, script)
        finally:
            child.kill()
            child.wait(TIMEOUT_S)
            os.close(terminal)


def complete(terminal: int, script: Path) -> None:
    """Type the beginning of each line and a tab; the shell prints the line that it ran."""
    send(terminal, "PS1='' PS2='' zle_bracketed_paste=()\n")
    send(terminal, "autoload -U compinit && compinit -u -D\n")
    send(terminal, f"source {script}\n")
    send(terminal, 'nodetopo() { print -r -- GOT:"$*".; }\n')
    send(terminal, "print -r RE''ADY\n")
    received(terminal, "READY")
    for typed, (offered,) in TYPED:
        send(terminal, f"nodetopo {typed}\t\n")
        before = typed.rpartition(" ")[0]
        received(terminal, f"GOT:{f'{before} {offered}'.strip()}")


def send(terminal: int, text: str) -> None:
    os.write(terminal, text.encode())


def received(terminal: int, wanted: str) -> str:
    """Return what the terminal shows up to *wanted*, which comes within a generous time."""
    shown, deadline = "", time.monotonic() + TIMEOUT_S
    while wanted not in shown:
        ready, _, _ = select([terminal], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"{wanted!r} never came: {shown!r}"
        shown += os.read(terminal, 4096).decode("utf-8", "replace")
    return shown
