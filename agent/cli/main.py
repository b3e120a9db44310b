"""``nodetopo``: the parser put together, and every way a command can end."""

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Protocol

from agent import __version__
from agent.cli import (
    admit,
    allocate,
    audit,
    capture,
    cleanup,
    completion,
    doctor,
    explain,
    export,
    health,
    labels,
    nccl,
    publish,
    run,
    version,
)
from agent.cli.output import note, say
from agent.cli.parser import Parser, Subparsers
from agent.cli.simulate import command as simulate
from agent.cli.topo import command as topo
from agent.errors import AgentError, InputError


class Command(Protocol):
    """A module of :mod:`agent.cli` that holds one command."""

    def add(self, subparsers: Subparsers, /) -> None:
        """Add the command's parser, with ``run`` as its default."""


COMMANDS: tuple[Command, ...] = (
    run,
    topo,
    labels,
    publish,
    cleanup,
    health,
    audit,
    admit,
    export,
    doctor,
    allocate,
    capture,
    nccl,
    explain,
    simulate,
    completion,
    version,
)
"""In the order of ``--help``. The modules import little: the rest waits for ``run(args)``."""

OK, FAILED, BAD_INPUT, COULD_NOT_TELL = 0, 1, 2, 3
INTERRUPTED = 130
"""128 + SIGINT, as shells report it."""
BROKEN_PIPE = 141
"""128 + SIGPIPE: the reader, e.g. ``head``, had enough."""

_EPILOG = (
    "exit status: 0 nothing failed, 1 a check failed (warnings too with --strict), "
    "2 bad usage or bad input, 3 could not tell"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status."""
    _fill_closed_streams()
    _use_utf8()
    try:
        return _run(argv)
    except AgentError as error:
        note("error", str(error))
        return BAD_INPUT if isinstance(error, InputError) else COULD_NOT_TELL
    except SystemExit as stop:  # argparse ends --help and --version this way
        return int(stop.code or 0)
    except BrokenPipeError:
        _silence_stdout()
        return BROKEN_PIPE
    except KeyboardInterrupt:
        _silence_stdout()
        return INTERRUPTED


def _run(argv: Sequence[str] | None) -> int:
    args = parser().parse_args(argv, Namespace(warnings=[], strict=False, incomplete=False))
    code: int = args.run(args)
    say("")
    return FAILED if code == OK and args.strict and args.warnings else code


def parser() -> Parser:
    """Return the whole parser."""
    whole = Parser(
        prog="nodetopo",
        description="Read, label, place and verify the topology of one GPU node.",
        epilog=_EPILOG,
    )
    whole.add_argument("--version", action="version", version=f"nodetopo {__version__}")
    subparsers = whole.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add(subparsers)
    return whole


def _fill_closed_streams() -> None:
    """Let a stream that the caller closed (``>&-``) lead nowhere; Python has ``None`` for it."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # This takes the stream's own number, which no other file may then get.
            null = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115 - open to the end
            setattr(sys, name, null)


def _use_utf8() -> None:
    """Print ✓ and × whatever the locale says: containers often have none."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace")


def _silence_stdout() -> None:
    """Keep the interpreter's own flush at exit from failing once more."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
