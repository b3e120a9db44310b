"""What a command did, and what the tests of commands share."""

import io
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

from msgspec import Struct

from nodetopo.cli.main import main
from nodetopo.cli.output import Style
from nodetopo.cli.topo.rows import legend, text
from nodetopo.machines.bundled import names
from nodetopo.model.snapshot import Snapshot
from nodetopo.topology.matrix import matrix

MACHINES = names()

READERS: tuple[tuple[str, ...], ...] = (
    ("topo", "matrix"),
    ("topo", "tree"),
    ("topo", "path", "GPU0", "GPU1"),
    ("topo", "complexes"),
    ("labels",),
    ("health", "--all"),
    ("audit", "--all"),
    ("allocate", "--size", "2"),
    ("nccl", "env"),
    ("nccl", "xml"),
)
"""Every command that answers from a snapshot."""


class Outcome(Struct, frozen=True, kw_only=True):
    """Exit status and both outputs."""

    code: int
    out: str
    err: str


def run(*arguments: str, stdin: str = "") -> Outcome:
    """Run one command in this process, without settings from outside."""
    ours = [name for name in os.environ if name.startswith("NODETOPO_")]
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.dict(os.environ, {"COLUMNS": "80"}),  # argparse wraps --help to it
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode()))),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        for name in ours:
            del os.environ[name]
        code = main(arguments)
    return Outcome(code=code, out=out.getvalue(), err=err.getvalue())


def printed(*arguments: str) -> str:
    """Return what a command prints that succeeds without a warning."""
    outcome = run(*arguments)
    assert (outcome.code, outcome.err) == (0, ""), (arguments, outcome)
    return outcome.out


def transcript(command: tuple[str, ...], flag: str, path: Path) -> str:
    """Return what *command* prints about the input *path*, as a table and in short."""
    parts = []
    for form in ((), ("-o", "short")):
        outcome = run(*command, flag, str(path), *form)
        line = " ".join(("nodetopo", *command, flag, path.name, *form))
        text = f"{outcome.out}{outcome.err}".replace(str(path), path.name)
        parts.append(f"$ {line}\n{text}exit {outcome.code}\n")
    return "\n".join(parts)


def topo_m(snapshot: Snapshot) -> str:
    """Return *snapshot* as `nvidia-smi topo -m` prints it."""
    found = matrix(snapshot)
    return text(found, snapshot, Style(is_on=False)) + legend(found)


def slug(command: tuple[str, ...]) -> str:
    """Return a command as part of a file name or a test's id."""
    return "-".join(word.strip("-").lower() for word in command)
