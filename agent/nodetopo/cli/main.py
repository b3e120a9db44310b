"""``nodetopo``: the commands, the parser, and the exit status of every way they can end."""

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from nodetopo import __version__
from nodetopo.cli.flags.explain import flags_as_words
from nodetopo.cli.output import note, say
from nodetopo.cli.parser import BriefParser, Parser, add_command
from nodetopo.errors import AgentError, InputError


class Command(NamedTuple):
    """A command; its flags are in the module of :mod:`nodetopo.cli.flags` with its name."""

    name: str
    summary: str


COMMANDS = (
    Command("run", "run the daemon of this node"),
    Command("topo", "print the topology: matrix, tree, path, complexes"),
    Command("labels", "print the labels of this node"),
    Command("publish", "publish the labels of this node once"),
    Command("cleanup", "remove the labels published about this node"),
    Command("health", "check the hardware"),
    Command("audit", "check settings and pods"),
    Command("admit", "check whether this node's kubelet would admit a pod"),
    Command("export", "print the cluster's topology for a scheduler"),
    Command("doctor", "check the cluster's labels as schedulers read them"),
    Command("migrate", "check how existing configuration carries over"),
    Command("allocate", "print the GPUs that a request would get"),
    Command("capture", "write the node's snapshot to a file"),
    Command("support", "write one redacted archive about the node"),
    Command("nccl", "print variables and the topology for NCCL"),
    Command("explain", "explain a check, an XID, an Event, or any word that nodetopo reports"),
    Command("explain-claim", "explain the devices of a ResourceClaim"),
    Command("simulate", "list the bundled machines and clusters"),
    Command("completion", "print a completion script for a shell"),
    Command("version", "print the version"),
)
"""In the order of ``--help``."""

OK, FAILED, BAD_INPUT, COULD_NOT_TELL = 0, 1, 2, 3
INTERRUPTED = 130
"""128 + SIGINT, as shells report it."""
BROKEN_PIPE = 141
"""128 + SIGPIPE: the reader, e.g. ``head``, closed the pipe."""

ALL = "all"

_EPILOG = (
    "exit status: 0 nothing failed, 1 a check failed (warnings too with --strict), "
    "2 bad usage or bad input, 3 could not tell"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status."""
    prepare_streams()
    try:
        args = parsed(sys.argv[1:] if argv is None else argv)
        code = execute(args)
        if code == OK and args.strict and args.warnings:
            code = FAILED
        say("")  # a write that failed late must not end in success
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
    return code


def execute(args: Namespace) -> int:
    """Run the command of *args*, whose module is imported now; return its exit status."""
    try:
        module = import_module(f"{__package__}.{args.module}")
    except ModuleNotFoundError as error:
        package, _dot, component = str(error.name).rpartition(".")
        if package != "nodetopo.components":
            raise
        what = f"`nodetopo {args.module}` needs the component {component}, which is not installed"
        raise InputError(what, "install nodetopo with it") from None
    code: int = module.run(args)
    return code


def parsed(argv: Sequence[str]) -> Namespace:
    """Return the arguments, by a parser that knows the flags of the command in *argv* only.

    Few calls give settings as flags, and loading the settings takes as long as most commands run.
    So a parser without them goes first; arguments that it rejects, and every help text, are left to
    the full one.

    Raises:
        InputError: they are not a valid command line.
    """
    command = next((word for word in argv if not word.startswith("-")), None)
    if command == "explain":
        argv = flags_as_words(argv)
    try:
        arguments = parser(command, BriefParser).parse_args(argv, _defaults())
    except InputError:
        arguments = parser(command).parse_args(argv, _defaults())
    return arguments


def _defaults() -> Namespace:
    return Namespace(warnings=[], strict=False, incomplete=False)


def parser(only: str | None = ALL, kind: type[Parser] = Parser) -> Parser:
    """Return the parser, with the flags of the command *only*, or of every command.

    The other commands have a name and a summary alone: importing them takes longer than most
    commands run.
    """
    whole = kind(
        prog="nodetopo",
        description="Read, label, place and verify the topology of one GPU node.",
        epilog=_EPILOG,
    )
    whole.add_argument("--version", action="version", version=f"nodetopo {__version__}")
    subparsers = whole.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        added = add_command(subparsers, command.name, command.summary)
        if only in (ALL, command.name):
            _flags(command).add(added)
    return whole


def _flags(command: Command) -> ModuleType:
    name = command.name.replace("-", "_")
    return import_module(f"{__package__}.flags.{name}")


def prepare_streams() -> None:
    """Open closed streams as ``/dev/null``, and print UTF-8 regardless of the locale."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by the caller, as with `>&-`
            # This takes the stream's descriptor, so that no other file gets it.
            null = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115 - open to the end
            setattr(sys, name, null)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # ✓ and × too: containers often have no locale
            stream.reconfigure(encoding="utf-8", errors="replace")


def _silence_stdout() -> None:
    """Keep the interpreter's own flush at exit from failing once more."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
