"""``nodetopo``: the parser put together, and every way a command can end."""

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import NamedTuple

from agent import __version__
from agent.cli.output import note, say
from agent.cli.parser import Parser, add_command
from agent.errors import AgentError, InputError


class Command(NamedTuple):
    """A command: its module, imported only when it is used, has ``add`` for its flags."""

    name: str
    module: str
    summary: str


COMMANDS = (
    Command("run", "agent.cli.run", "run the daemon of this node"),
    Command("topo", "agent.cli.topo.command", "print the topology: matrix, tree, path"),
    Command("labels", "agent.cli.labels", "print the labels that this node gets"),
    Command("publish", "agent.cli.publish", "bring the labels of this node out, once"),
    Command("cleanup", "agent.cli.cleanup", "remove what was published about this node"),
    Command("health", "agent.cli.health", "check the hardware"),
    Command("audit", "agent.cli.audit", "check settings and pods"),
    Command("admit", "agent.cli.admit", "print whether this node's kubelet would admit a pod"),
    Command("export", "agent.cli.export", "print the cluster's topology for a scheduler"),
    Command("doctor", "agent.cli.doctor", "check the cluster's labels as schedulers read them"),
    Command("allocate", "agent.cli.allocate", "print the GPUs that a request would get"),
    Command("capture", "agent.cli.capture", "write the node's snapshot to a file"),
    Command("nccl", "agent.cli.nccl", "print what NCCL can be told of this node"),
    Command("explain", "agent.cli.explain", "explain a check by its code"),
    Command(
        "simulate", "agent.cli.simulate.command", "list the bundled machines; replay jobs on one"
    ),
    Command("completion", "agent.cli.completion", "print a completion script for a shell"),
    Command("version", "agent.cli.version", "print the version"),
)
"""In the order of ``--help``."""

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
    argv = sys.argv[1:] if argv is None else argv
    whole = parser(only=next((word for word in argv if not word.startswith("-")), None))
    args = whole.parse_args(argv, Namespace(warnings=[], strict=False, incomplete=False))
    code: int = args.run(args)
    say("")
    return FAILED if code == OK and args.strict and args.warnings else code


ALL = "all"


def parser(only: str | None = ALL) -> Parser:
    """Return the parser, with the flags of the command *only*, or of every command.

    The other commands are there by name and summary alone: to import them takes longer than
    most commands run.
    """
    whole = Parser(
        prog="nodetopo",
        description="Read, label, place and verify the topology of one GPU node.",
        epilog=_EPILOG,
    )
    whole.add_argument("--version", action="version", version=f"nodetopo {__version__}")
    subparsers = whole.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        added = add_command(subparsers, command.name, command.summary)
        if only in (ALL, command.name):
            import_module(command.module).add(added)
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
