"""The command as a process: pipes, signals, terminals, and what it loads."""

import os
import pty
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nodetopo.cli.parser import columns

COMMAND = (sys.executable, "-m", "nodetopo")
TIMEOUT_S = 240
HEAVY = (
    *("grpc", "kubernetes", "pynvml", "yaml", "prometheus_client", "structlog", "psutil"),
    *("shutil", "lzma"),  # argparse imports them to learn the width of the terminal
)
LIVE = (
    "nodetopo.kernel.settings",
    "nodetopo.probes",
    "nodetopo.cli.live",
    "nodetopo.drawing.node",
    "ssl",
)
"""What a snapshot or a bundled machine needs nothing of."""


def environment(**extra: str) -> dict[str, str]:
    """Return this process's environment without settings of ours or anybody's wish for colour."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("NODETOPO_") and name not in ("NO_COLOR", "TERM")
    }
    return {**kept, "TERM": "xterm", **extra}


def on_terminal(*arguments: str, **extra: str) -> str:
    """Return what a command prints to a terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen([*COMMAND, *arguments], stdout=theirs, env=environment(**extra)) as child:
        os.close(theirs)
        printed = b""
        while chunk := _read(ours):
            printed += chunk
        child.wait(TIMEOUT_S)
    os.close(ours)
    return printed.decode()


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # EIO: Linux reports so that nobody holds the terminal's other end
        return b""


def piped(*arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run a command with both outputs in pipes."""
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=TIMEOUT_S,
        env=environment(**extra),
        check=False,
    )


def test_a_terminal_gets_colour() -> None:
    assert "\x1b[32m✓\x1b[0m" in on_terminal("health", "--all", "--machine", "dgx-1v")


@pytest.mark.parametrize("options", [(), ("--wide",), ("--nccl",)])
def test_a_matrix_folds_on_a_terminal_alone(options: tuple[str, ...]) -> None:
    command = ("topo", "matrix", "--machine", "dgx-h100", "-o", "short", *options)
    shown = on_terminal(*command, COLUMNS="80").replace("\r", "")
    assert max(len(line) for line in shown.splitlines()) <= 80
    blocks = shown.split("\n\n")
    assert len(blocks) > 1
    first = [[line.split()[0] for line in block.splitlines()[1:]] for block in blocks]
    assert all(names == first[0] for names in first)
    assert len(piped(*command, COLUMNS="80").stdout.split("\n\n")) == 1


def test_a_pipe_gets_no_colour() -> None:
    assert "\x1b" not in piped("health", "--all", "--machine", "dgx-1v").stdout


def test_a_terminal_gets_no_colour_after_no_color() -> None:
    assert "\x1b" not in on_terminal("health", "--all", "--machine", "dgx-1v", NO_COLOR="1")


def test_a_terminal_gets_no_colour_after_the_flag() -> None:
    assert "\x1b" not in on_terminal("health", "--all", "--machine", "dgx-1v", "--no-color")


def test_marks_survive_a_locale_without_them() -> None:
    done = piped("health", "--all", "--machine", "dgx-1v", LC_ALL="C", PYTHONUTF8="0")
    assert (done.returncode, "✓" in done.stdout) == (0, True)


def test_a_reader_that_leaves_ends_the_command_quietly() -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    command = [*COMMAND, "topo", "matrix", "--machine", "dgx-h100"]
    done = subprocess.run(
        command,
        stdout=theirs,
        stderr=subprocess.PIPE,
        timeout=TIMEOUT_S,
        env=environment(),
        check=False,
    )
    os.close(theirs)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_one_clear_line() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*COMMAND, "labels", "--machine", "dgx-h100"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            timeout=TIMEOUT_S,
            env=environment(),
            check=False,
        )
    assert (done.returncode, done.stderr) == (
        3,
        "error: cannot write the output: No space left on device — free the space, then repeat\n",
    )


@pytest.mark.parametrize(
    ("closed", "arguments", "code"),
    [
        (">&-", ("health", "--machine", "dgx-1v"), 0),
        ("2>&-", ("labels", "--machine", "nope"), 2),
        ("<&-", ("labels", "--snapshot", "-"), 2),
    ],
)
def test_a_stream_that_the_caller_closed_leads_nowhere(
    closed: str, arguments: tuple[str, ...], code: int
) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", *COMMAND, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=TIMEOUT_S,
        env=environment(),
        check=False,
    )
    assert (done.returncode, "Traceback" in done.stderr) == (code, False)


def test_ctrl_c_is_quiet() -> None:
    command = [*COMMAND, "topo", "matrix", "--snapshot", "-"]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    ) as child:
        assert child.stdin is not None
        child.stdin.write(b" " * (1 << 20))  # more than a pipe holds: the command is reading now
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=TIMEOUT_S)
    assert (child.returncode, errors) == (130, b"")


@pytest.mark.parametrize("stated", ["", "0", "-3", "wide", "61", "200"])
@pytest.mark.parametrize("width", [None, 0, 133])
def test_help_is_as_wide_as_the_terminal(
    stated: str, width: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def size(*_: object) -> os.terminal_size:
        if width is None:
            raise OSError
        return os.terminal_size((width, 50))

    monkeypatch.setenv("COLUMNS", stated)
    monkeypatch.setattr(os, "get_terminal_size", size)
    assert columns() == shutil.get_terminal_size().columns


@pytest.mark.parametrize(
    ("arguments", "unwanted"),
    [
        (("version",), (*HEAVY, "nodetopo.model.snapshot")),
        (("completion", "bash"), (*HEAVY, "nodetopo.kernel.settings", "nodetopo.model.snapshot")),
        (("doctor", "--help"), (*HEAVY, "nodetopo.cli.doctor", "nodetopo.tools.cluster.doctor")),
        (("labels", "--machine", "dgx-1v", "-o", "json"), HEAVY),
        (("topo", "matrix", "--machine", "dgx-1v"), (*HEAVY, *LIVE)),
        (("topo", "path", "0", "1", "--machine", "dgx-1v"), (*HEAVY, *LIVE)),
        (("allocate", "--size", "2", "--machine", "dgx-1v"), (*HEAVY, *LIVE)),
        (("health", "--machine", "dgx-1v"), (*HEAVY, *LIVE)),
    ],
    ids=lambda value: value[0],
)
def test_a_small_command_loads_nothing_heavy(
    arguments: tuple[str, ...], unwanted: tuple[str, ...]
) -> None:
    program = (
        "import sys; from nodetopo.cli.main import main; "
        f"main({arguments!r}); "
        f"print([name for name in {unwanted!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env=environment(),
        check=True,
    )
    assert done.stderr.splitlines()[-1] == "[]"
